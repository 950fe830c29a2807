"""Join: finds the documents of a shard that are forgotten, or dropped by external decisions, and the reasons.

matched_<name>   uint64 LE (rows, 2): high and low of every key that matches a document here, ascending
left_out         uint64 LE: the ordinals of dropped documents, ascending
reasons          uint16 LE: for each of them, the index of its reason in the receipt's details

It reads ids and lines, never a text. After a change of decisions this stage runs for every shard, and later stages only
where other documents are dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from corpusmill.config import FORGOTTEN
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Recount, Shown, Stage, StepName, whole
from corpusmill.engine.work import Input, Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.sources.parts import FilePlace, PlacedSettings, lines_before, places_in, shard_sources
from corpusmill.steps.stages.decisions import decisions_called

with lazily:
    import numpy as np

    from corpusmill.documents import text_shard
    from corpusmill.steps import decisions as steps_decisions


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build

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


class Settings(PlacedSettings, frozen=True, kw_only=True):
    """`undecided`: what happens to documents without a decision, by the decisions' name; `by_line`: those decisions
    that name documents by file and line.
    """

    undecided: dict[str, str]
    by_line: list[str]


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {"text": [("index", shard)], "decisions": whole(build, "decisions")}


def _identity(build: Build, shard: str) -> Settings:
    wanted = [decisions_called(build, name)[0] for name in build.units("decisions")]
    by_line = [decision.name for decision in wanted if not isinstance(decision.key, str)]
    return Settings(
        undecided={decision.name: decision.undecided for decision in wanted},
        by_line=by_line,
        lines_before=lines_before(build, shard) or UNSET if by_line else UNSET,
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:

    text = text_shard.open_text_shard(inputs["text"].folder())
    place = places_in(inputs.source.files, text, settings.lines_before)
    reasons: list[str] = []
    codes = np.full(text.documents, -1, np.int64)
    for step in inputs.every("decisions"):
        name, decisions = step.unit, steps_decisions.Sorted(step.folder())
        places = decisions.find(document_keys(text, place, by_id=name not in settings.by_line))
        met = np.unique(places[places >= 0])
        keys = np.stack([decisions.high[met], decisions.low[met]], axis=1)
        (folder / matched_file(name)).write_bytes(keys.astype("<u8").tobytes())
        dropped = places >= 0
        dropped[dropped] = decisions.keep[places[dropped]] == 0
        undecided = places < 0 if settings.undecided[name] == "drop" else np.zeros_like(dropped)
        for mask, reason in ((dropped, name), (undecided, f"{name}: undecided")):
            first = mask & (codes < 0)  # the first of several reasons
            if first.any():
                codes[first] = len(reasons)
                reasons.append(reason)
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


STAGE = Stage(
    "join",
    version=1,
    after=("quarantine", "decisions"),  # with the first of these, stages stop at too many rejected lines
    per_shard=True,
    wanted=lambda config: bool(config.all_decisions()),
    units_of="index",
    work=Work(Settings, _identity, _inputs, _run, shard_sources),
    recount=recount_left_out,
    shown=Shown(on_trunk=False),
)
