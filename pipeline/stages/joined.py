"""Join: finds the documents of a shard that are forgotten, or dropped by external decisions, and the reasons.

matched_<name>   uint64 LE (rows, 2): high and low of every key that matches a document here, ascending
left_out         uint64 LE: the ordinals of dropped documents, ascending
reasons          uint16 LE: for each of them, the index of its reason in the receipt's details

It reads ids and lines, never a text. After a change of decisions this stage runs for every shard, and later stages only
where other documents are dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import FORGOTTEN
from corpusmill.engine.stage import Recount, Stage, whole
from corpusmill.ledger import Outcome
from corpusmill.stages.decisions import decisions_called
from corpusmill.stages.parts import FilePlace, lines_before_settings, places_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build, StepView
    from corpusmill.steps.decisions import Sorted

LEFT_OUT, REASONS = "left_out", "reasons"


def matched_file(name: str) -> str:
    """The file with the keys of the decisions called `name` that match documents of the shard."""
    return f"matched_{name}"


def left_out_of(build: Build, shard: str) -> dict[int, str]:
    """{ordinal: reason} of the documents of a shard that are dropped, ascending."""
    import numpy as np

    reasons = build.receipt("join", shard).details["reasons"]
    with build.opened("join", shard) as folder:
        ordinals, codes = np.fromfile(folder / LEFT_OUT, "<u8").tolist(), np.fromfile(folder / REASONS, "<u2").tolist()
    return {ordinal: reasons[code] for ordinal, code in zip(ordinals, codes, strict=True)}


def _units(build: Build) -> list[str]:
    return build.units("index") if build.units("decisions") else []


def _by_line(build: Build) -> list[str]:
    return [name for name in build.units("decisions") if not isinstance(decisions_called(build, name)[0].key, str)]


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    return [("index", shard), *whole(build, "decisions")]


def _settings(build: Build, shard: str) -> dict[str, Any]:
    from corpusmill.sources.sampled import sampled_settings

    undecided = {name: decisions_called(build, name)[0].undecided for name in build.units("decisions")}
    before = lines_before_settings(build, shard) if _by_line(build) else {}
    return {"undecided": undecided, "by_line": _by_line(build), **before, **sampled_settings(build.work)}


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.steps.decisions import Sorted

    text = open_text_shard(build.folder("index", shard))
    place = places_of(build, shard, text, build.settings.get("lines_before", {}))
    reasons: list[str] = []
    codes = np.full(text.documents, -1, np.int64)
    for name in build.units("decisions"):
        decisions = Sorted(build.folder("decisions", name))
        places = find_decisions(build, name, decisions, text, place)
        met = np.unique(places[places >= 0])
        keys = np.stack([decisions.high[met], decisions.low[met]], axis=1)
        (folder / matched_file(name)).write_bytes(keys.astype("<u8").tobytes())
        dropped = places >= 0
        dropped[dropped] = decisions.keep[places[dropped]] == 0
        undecided = places < 0 if decisions_called(build, name)[0].undecided == "drop" else np.zeros_like(dropped)
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


def find_decisions(
    build: Build, name: str, decisions: Sorted, text: TextShard, place: Callable[[int], FilePlace]
) -> NDArray[np.int64]:
    """int64 (documents,): the index of each document's decision among those called `name`; -1 without one.

    `text` is a text shard of any stage, `place` that of a document in it.
    """
    import numpy as np

    by_id = isinstance(decisions_called(build, name)[0].key, str)
    places = decisions.find(document_keys(text, place, by_id=by_id))
    if by_id:
        places[np.diff(text.document_ids().ends, prepend=np.uint64(0)) == 0] = -1  # without an id
    return places


def document_keys(text: TextShard, place: Callable[[int], FilePlace], *, by_id: bool) -> Iterator[bytes]:
    """What is hashed of each document of a text shard: its id (b"" without one), or its file and line."""
    from corpusmill.steps.decisions import key_of_id, key_of_line

    if by_id:
        ids = text.document_ids()
        return (key_of_id(ids[ordinal]) for ordinal in range(text.documents))
    return (key_of_line(file, line + 1) for file, line in map(place, range(text.documents)))


def recount_left_out(_build: Build, _unit: str, folder: Path) -> Recount:
    """How many documents a step of `join` or `copies` listed."""
    return Recount({"left_out": (folder / LEFT_OUT).stat().st_size // 8})


STAGE = Stage(
    "join",
    version=1,
    after=("decisions",),
    per_shard=True,
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=recount_left_out,
    on_trunk=False,
)
