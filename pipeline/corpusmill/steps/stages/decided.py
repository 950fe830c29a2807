"""Decided: finds the decisions, and the rows of the list of `forget`, that match no document.

Too many are an error (max_unmatched_share). Unless it sets that, one row of the list must match: a list that matches
nothing has other ids than the documents, or names other files, or the sources have removed them all.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.config import ALL_BUT_ONE, FORGOTTEN
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Shown, Stage, StepName, whole
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.errors import PermanentError
from corpusmill.lazy import lazily
from corpusmill.steps.stages.decisions import decisions_called, decisions_sources
from corpusmill.steps.stages.join import matched_file

with lazily:
    import numpy as np

    from corpusmill.steps import decisions as steps_decisions


if TYPE_CHECKING:
    from corpusmill.engine.build import Build

UNMATCHED = "unmatched.jsonl"


class UnmatchedDecisionsError(PermanentError):
    """More rows match no document than the configuration allows."""


class Settings(Identity, frozen=True, kw_only=True):
    """How many decisions may match no document."""

    max_unmatched_share: float


def _identity(build: Build, unit: str) -> Settings:
    return Settings(max_unmatched_share=decisions_called(build, unit)[0].max_unmatched_share)


def _inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    return {"decisions": [("decisions", unit)], "joined": whole(build, "join")}


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    matched, places = require_matched(inputs, settings)
    with (folder / UNMATCHED).open("w") as listed:
        listed.writelines(json.dumps({"file": file, "row": row}) + "\n" for file, row in places)
    return Outcome(counts={"matched": matched, "unmatched": len(places), "bytes_read": 0})


def require_matched(inputs: Inputs, settings: Settings) -> tuple[int, list[tuple[str, int]]]:
    """(how many decisions match a document; file and row of those that do not); UnmatchedDecisionsError if these are
    too many.
    """

    name, decisions = matched_file(inputs.unit), steps_decisions.Sorted(inputs["decisions"].folder())
    met = np.zeros(len(decisions), np.bool_)
    for step in inputs.every("joined"):
        keys = np.fromfile(step.folder(name) / name, "<u8").reshape(-1, 2)
        met[decisions.places(keys)] = True
    lacking = np.flatnonzero(~met)
    rows = np.sort(decisions.row[lacking])
    names = [file.name for file in inputs.source.files]
    places = [steps_decisions.place_of_row(row, names) for row in rows.tolist()]
    if len(lacking) > settings.max_unmatched_share * len(decisions):
        _refuse(inputs.unit, settings.max_unmatched_share, len(decisions), places)
    return int(met.sum()), places


def _refuse(name: str, most: float, rows: int, unmatched: list[tuple[str, int]]) -> None:
    """UnmatchedDecisionsError with the first rows that match no document."""
    what, key = "decisions", f"max_unmatched_share of the decisions {name}"
    next_step = "compare the keys with the documents' ids, or files and lines; or raise max_unmatched_share"
    if name == FORGOTTEN:
        what, key = "rows of the list to forget", "forget.max_unmatched_share"
        next_step = (
            "compare the list with the documents' ids (source.id_field), or files and lines; if the sources have"
            " removed its documents, set forget.max_unmatched_share: 1"
        )
    expected = f"at most {most:.4%} ({key})"
    if most == ALL_BUT_ONE:
        expected = "a row that matches"
    raise UnmatchedDecisionsError(
        f"decisions.unmatched: {len(unmatched):,} of {rows:,} {what} match no document",
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


WORK = Work(Settings, _identity, _inputs, _run, decisions_sources)

STAGE = Stage(
    "decided",
    version=3,
    after=("join",),
    units_of="decisions",
    work=WORK,
    checks=_checks,
    shown=Shown(unit_word="source", on_trunk=False),
)
