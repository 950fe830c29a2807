"""Decided: finds the decisions, and the rows of the list of `forget`, that match no document.

Too many are an error (max_unmatched_share). Unless it sets that, one row of the list must match, except in a sample: a
list that matches nothing has other ids than the documents, or names other files, or the sources have removed them all.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import ALL_BUT_ONE, FORGOTTEN
from corpusmill.engine.stage import Stage, whole
from corpusmill.errors import PermanentError
from corpusmill.ledger import Check, Outcome, Receipt
from corpusmill.stages.decisions import decisions_called
from corpusmill.stages.joined import matched_file

if TYPE_CHECKING:
    from corpusmill.config import DecisionsConfig
    from corpusmill.engine.build import Build

UNMATCHED = "unmatched.jsonl"


class UnmatchedDecisionsError(PermanentError):
    """More rows match no document than the configuration allows."""


def _units(build: Build) -> list[str]:
    return build.units("decisions")


def _settings(build: Build, unit: str) -> dict[str, Any]:
    return {"max_unmatched_share": decisions_called(build, unit)[0].max_unmatched_share}


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    matched, places = require_matched(build, unit)
    with (folder / UNMATCHED).open("w") as listed:
        listed.writelines(json.dumps({"file": file, "row": row}) + "\n" for file, row in places)
    return Outcome(counts={"matched": matched, "unmatched": len(places), "bytes_read": 0})


def require_matched(build: Build, unit: str) -> tuple[int, list[tuple[str, int]]]:
    """(how many decisions match a document; file and row of those that do not); UnmatchedDecisionsError if these are
    too many.
    """
    import numpy as np

    from corpusmill.sources.sampled import read_sampled
    from corpusmill.steps.decisions import Sorted, place_of_row

    wanted, files = decisions_called(build, unit)
    decisions = Sorted(build.folder("decisions", unit))
    met = np.zeros(len(decisions), np.bool_)
    for shard in build.units("join"):
        keys = np.fromfile(build.folder("join", shard, matched_file(unit)) / matched_file(unit), "<u8").reshape(-1, 2)
        met[decisions.places(keys)] = True
    lacking = np.flatnonzero(~met)
    rows = np.sort(decisions.row[lacking])
    names = [file.name for file in files]
    places = [place_of_row(row, names) for row in rows.tolist()]
    is_sample = unit == FORGOTTEN and read_sampled(build.work) is not None
    if len(lacking) > wanted.max_unmatched_share * len(decisions) and not is_sample:
        _refuse(wanted, len(decisions), places)
    return int(met.sum()), places


def _refuse(wanted: DecisionsConfig, rows: int, unmatched: list[tuple[str, int]]) -> None:
    """UnmatchedDecisionsError with the first rows that match no document."""
    what, key = "decisions", f"max_unmatched_share of the decisions {wanted.name}"
    next_step = "compare the keys with the documents' ids, or files and lines; or raise max_unmatched_share"
    if wanted.name == FORGOTTEN:
        what, key = "rows of the list to forget", "forget.max_unmatched_share"
        next_step = (
            "compare the list with the documents' ids (source.id_field), or files and lines; if the sources have"
            " removed its documents, set forget.max_unmatched_share: 1"
        )
    expected = f"at most {wanted.max_unmatched_share:.4%} ({key})"
    if wanted.max_unmatched_share == ALL_BUT_ONE:
        expected = "a row that matches"
    raise UnmatchedDecisionsError(
        f"{len(unmatched):,} of {rows:,} {what} match no document",
        where="\n".join(f"{file}, row {row:,}" for file, row in unmatched[:5]),
        expected=expected,
        got=f"{len(unmatched) / rows:.4%} unmatched",
        next_step=next_step,
    )


def _checks(build: Build, unit: str, receipt: Receipt) -> list[Check]:
    counts, decisions = receipt.counts, build.receipt("decisions", unit).counts["decisions"]
    met = (("matched", counts["matched"]), ("unmatched", counts["unmatched"]))
    return [Check("decisions", (("sorted", decisions),), met)]


def unmatched_rows(build: Build, unit: str) -> set[tuple[str, int]]:
    """(file, row) of the decisions that match no document."""
    with build.opened("decided", unit, UNMATCHED) as folder, (folder / UNMATCHED).open() as listed:
        return {(place["file"], place["row"]) for place in map(json.loads, listed)}


def first_unmatched(build: Build, unit: str, most: int) -> tuple[str, ...]:
    """`list.jsonl row 2` for the first decisions that match no document."""
    with build.opened("decided", unit, UNMATCHED) as folder, (folder / UNMATCHED).open() as listed:
        return tuple(f"{place['file']} row {place['row']:,}" for place in map(json.loads, islice(listed, most)))


STAGE = Stage(
    "decided",
    version=3,
    after=("join",),
    unit_word="source",
    units=_units,
    inputs=lambda build, unit: [("decisions", unit), *whole(build, "join")],
    settings=_settings,
    run=_run,
    checks=_checks,
    on_trunk=False,
)
