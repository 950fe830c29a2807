"""Decisions, join, decided: the list of `forget`, each configured source of decisions, and the documents of both.

decisions   reads each source once and sorts it by document
join        finds the documents of a shard that are forgotten, or dropped by external decisions or for their own fields,
            and the reasons
decided     finds the decisions, and the rows of the list of `forget`, that match no document

Files of join, which reads ids and lines, never a text. After a change of decisions it runs for every shard, and later
stages only where other documents are dropped.

matched_<name>   uint64 LE (rows, 2): high and low of every key that matches a document here, ascending
left_out         uint64 LE: the ordinals of dropped documents, ascending
reasons          uint16 LE: for each of them, the index of its reason in the receipt's details

Too many decisions without a document are an error of decided (max_unmatched_share). Unless it sets that, one row of the
list must match: a list that matches nothing has other ids than the documents, or names other files, or the sources have
removed them all.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from corpusmill.config import ALL_BUT_ONE, FORGOTTEN
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName, whole
from corpusmill.engine.work import Identity, Input, Inputs, Resources, Sources, Work
from corpusmill.errors import PermanentError
from corpusmill.lazy import lazily
from corpusmill.sources.parts import FilePlace, PlacedSettings, lines_before, places_in, shard_sources

with lazily:
    import numpy as np

    from corpusmill.documents import conditions, text_shard
    from corpusmill.steps import decisions as steps_decisions


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from corpusmill.config import DecisionsConfig
    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import SourceFile


def decisions_called(build: Build, name: str) -> tuple[DecisionsConfig, list[SourceFile]]:
    """The configured decisions of a name, and their planned files."""
    configured = zip(build.config.listed_decisions(), build.plan.decisions or (), strict=True)
    return next((decision, files) for decision, files in configured if decision.name == name)


def _units(build: Build) -> list[str]:
    return [decision.name for decision in build.config.listed_decisions()]


class Settings(Identity, frozen=True, kw_only=True):
    """`files`: name, size and identity of each."""

    key: str | tuple[str, str]
    keep: str
    files: list[tuple[str, int, str]]


def _identity(build: Build, unit: str) -> Settings:
    wanted, files = decisions_called(build, unit)
    listed = [(file.name, file.size_bytes, file.identity) for file in files]
    return Settings(key=wanted.key, keep=wanted.keep, files=listed)


def decisions_sources(build: Build, unit: str) -> list[Sources]:
    """The files of decisions."""
    wanted, files = decisions_called(build, unit)
    return [Sources(files, wanted.endpoint)]


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    files = [file.stored() for file in inputs.source.files]
    columns = (settings.key,) if isinstance(settings.key, str) else settings.key
    runs = steps_decisions.read_decisions(
        files, inputs.source.endpoint_url, columns, conditions.read_condition(settings.keep), folder
    )
    counts = steps_decisions.write_sorted(runs, folder, [file.name for file in files], once=inputs.unit != FORGOTTEN)
    return Outcome(counts={**counts, "bytes_read": sum(file.size_bytes for file in files)})


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    decisions = steps_decisions.Sorted(folder)
    return Recount({"decisions": len(decisions), "decisions_keep": int(decisions.keep.sum())})


STAGE = Stage(
    "decisions",
    version=2,
    after=(),
    wanted=lambda config: bool(config.listed_decisions()),
    units=_units,
    work=Work(Settings, _identity, lambda _build, _unit: {}, _run, decisions_sources),
    recount=_recount,
    schedule=Schedule(stores=True),
    shown=Shown(unit_word="source", on_trunk=False),
)


LEFT_OUT, REASONS = "left_out", "reasons"


def matched_file(name: str) -> str:
    """The file with the keys of the decisions called `name` that match documents of the shard."""
    return f"matched_{name}"


def left_out_of(joined: Input) -> dict[int, str]:
    """{ordinal: reason} of the documents of a shard that are dropped, ascending."""
    reasons = joined.receipt.details["reasons"]
    with joined.opened() as folder:
        ordinals, codes = np.fromfile(folder / LEFT_OUT, "<u8").tolist(), np.fromfile(folder / REASONS, "<u2").tolist()
    return {ordinal: reasons[code] for ordinal, code in zip(ordinals, codes, strict=True)}


class JoinSettings(PlacedSettings, frozen=True, kw_only=True):
    """`undecided`: what happens to documents without a decision, by the decisions' name; `by_line`: those decisions
    that name documents by file and line; `own`: by name the condition of decisions by the documents' own fields, UNSET
    if there are none.
    """

    undecided: dict[str, str]
    by_line: list[str]
    own: dict[str, str] | UnsetType = UNSET


def _inputs_join(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {"text": [("index", shard)], "decisions": whole(build, "decisions")}


def _identity_join(build: Build, shard: str) -> JoinSettings:
    wanted = [decisions_called(build, name)[0] for name in build.units("decisions")]
    by_line = [decision.name for decision in wanted if not isinstance(decision.key, str)]
    return JoinSettings(
        undecided={decision.name: decision.undecided for decision in (*wanted, *build.config.own_decisions())},
        by_line=by_line,
        own={decision.name: decision.keep for decision in build.config.own_decisions()} or UNSET,
        lines_before=lines_before(build, shard) or UNSET if by_line else UNSET,
    )


def _run_join(inputs: Inputs, settings: JoinSettings, folder: Path, _resources: Resources) -> Outcome:

    text = text_shard.open_text_shard(inputs["text"].folder())
    place = places_in(inputs.source.files, text, settings.lines_before)
    reasons: list[str] = []
    codes = np.full(text.documents, -1, np.int64)

    def drop(name: str, dropped: NDArray[np.bool_], lacking: NDArray[np.bool_]) -> None:
        undecided = lacking if settings.undecided[name] == "drop" else np.zeros_like(lacking)
        for mask, reason in ((dropped, name), (undecided, f"{name}: undecided")):
            first = mask & (codes < 0)  # the first of several reasons
            if first.any():
                codes[first] = len(reasons)
                reasons.append(reason)

    for step in inputs.every("decisions"):
        name, decisions = step.unit, steps_decisions.Sorted(step.folder())
        places = decisions.find(document_keys(text, place, by_id=name not in settings.by_line))
        met = np.unique(places[places >= 0])
        keys = np.stack([decisions.high[met], decisions.low[met]], axis=1)
        (folder / matched_file(name)).write_bytes(keys.astype("<u8").tobytes())
        dropped = places >= 0
        dropped[dropped] = decisions.keep[places[dropped]] == 0
        drop(name, dropped, places < 0)
    for name, keep in (settings.own or {}).items():
        outcomes = conditions.of_documents(conditions.read_condition(keep), text.document_fields(), text.documents)
        drop(name, outcomes == 0, outcomes < 0)
    gone = np.flatnonzero(codes >= 0)
    (folder / LEFT_OUT).write_bytes(gone.astype("<u8").tobytes())
    (folder / REASONS).write_bytes(codes[gone].astype("<u2").tobytes())
    counts = {"left_out": len(gone), "bytes_read": len(text.document_ids().data)}
    if FORGOTTEN in reasons:
        counts[FORGOTTEN] = int((codes[gone] == reasons.index(FORGOTTEN)).sum())
    return Outcome(counts=counts, details={"reasons": reasons})


def document_keys(text: TextShard, place: Callable[[int], FilePlace], *, by_id: bool) -> Iterator[bytes]:
    """What is hashed of each document of a text shard: its id (b"" without one, which no decision has), or its file
    and line.
    """
    if by_id:
        ids = text.document_ids()
        return (steps_decisions.key_of(ids[ordinal]) for ordinal in range(text.documents))
    return (steps_decisions.key_of(file, line + 1) for file, line in map(place, range(text.documents)))


def recount_left_out(_build: Build, _unit: str, folder: Path) -> Recount:
    """How many documents a step of `join` or `copies` listed."""
    return Recount({"left_out": (folder / LEFT_OUT).stat().st_size // 8})


JOIN = Stage(
    "join",
    version=1,
    after=("quarantine", "decisions"),  # with the first of these, stages stop at too many rejected lines
    per_shard=True,
    wanted=lambda config: config.decides(),
    units_of="index",
    work=Work(JoinSettings, _identity_join, _inputs_join, _run_join, shard_sources),
    recount=recount_left_out,
    shown=Shown(on_trunk=False),
)


UNMATCHED = "unmatched.jsonl"


class UnmatchedDecisionsError(PermanentError):
    """More rows match no document than the configuration allows."""


class DecidedSettings(Identity, frozen=True, kw_only=True):
    """How many decisions may match no document."""

    max_unmatched_share: float


def _identity_decided(build: Build, unit: str) -> DecidedSettings:
    return DecidedSettings(max_unmatched_share=decisions_called(build, unit)[0].max_unmatched_share)


def _inputs_decided(build: Build, unit: str) -> dict[str, list[StepName]]:
    return {"decisions": [("decisions", unit)], "joined": whole(build, "join")}


def _run_decided(inputs: Inputs, settings: DecidedSettings, folder: Path, _resources: Resources) -> Outcome:
    matched, places = require_matched(inputs, settings)
    with (folder / UNMATCHED).open("w") as listed:
        listed.writelines(json.dumps({"file": file, "row": row}) + "\n" for file, row in places)
    return Outcome(counts={"matched": matched, "unmatched": len(places), "bytes_read": 0})


def require_matched(inputs: Inputs, settings: DecidedSettings) -> tuple[int, list[tuple[str, int]]]:
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
    if len(lacking) / max(len(decisions), 1) > settings.max_unmatched_share:
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


def _checks_decided(build: Build, unit: str, receipt: Receipt) -> list[Check]:
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


DECIDED_WORK = Work(DecidedSettings, _identity_decided, _inputs_decided, _run_decided, decisions_sources)

DECIDED = Stage(
    "decided",
    version=3,
    after=("join",),
    units_of="decisions",
    work=DECIDED_WORK,
    checks=_checks_decided,
    shown=Shown(unit_word="source", on_trunk=False),
)
