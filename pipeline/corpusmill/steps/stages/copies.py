"""Copies: finds the documents of a shard with the text of a forgotten document, which are dropped, too (`copies:
also`).

    left_out   uint64 LE: their ordinals, ascending

Only texts as long as a forgotten one are read. Empty texts never count as copies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.config import FORGOTTEN
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Shown, Stage, StepName
from corpusmill.engine.work import Identity, Input, Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.steps.stages.join import LEFT_OUT, left_out_of, recount_left_out

with lazily:
    import numpy as np

    from corpusmill.documents import text_shard


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build

COPY = f"{FORGOTTEN}: copy"


def copies_of(copied: Input) -> dict[int, str]:
    """{ordinal: reason} of the documents of a shard that are dropped as copies, ascending."""
    return dict.fromkeys(np.fromfile(copied.folder() / LEFT_OUT, "<u8").tolist(), COPY)


class Settings(Identity, frozen=True, kw_only=True):
    """The shards that hold forgotten documents."""

    forgetting: list[str]


def _identity(build: Build, _shard: str) -> Settings:
    units = build.units("join")
    return Settings(forgetting=[unit for unit in units if build.receipt("join", unit).counts.get(FORGOTTEN)])


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    forgetting = _identity(build, shard).forgetting
    return {
        "text": [("index", shard)],
        "forgetting": [("index", unit) for unit in forgetting],
        "joined": [("join", unit) for unit in forgetting],
    }


def _run(inputs: Inputs, _settings: Settings, folder: Path, _resources: Resources) -> Outcome:

    forgotten: set[bytes] = set()
    sizes, own = [0], np.empty(0, np.int64)
    for holding, joined in zip(inputs.every("forgetting"), inputs.every("joined"), strict=True):
        reasons = left_out_of(joined)
        ordinals = np.array([ordinal for ordinal in reasons if reasons[ordinal] == FORGOTTEN], np.int64)
        with holding.opened() as indexed:
            text = text_shard.open_text_shard(indexed)
            forgotten.update(_digests(text, ordinals.tolist()))
            sizes += _lengths(text)[ordinals].tolist()
        own = ordinals if holding.unit == inputs.unit else own
    text = text_shard.open_text_shard(inputs["text"].folder())
    lengths = _lengths(text)
    alike = np.flatnonzero(np.isin(lengths, sizes) & (lengths > 0))
    alike = np.setdiff1d(alike, own, assume_unique=True)
    places = alike.tolist()
    copies = [place for place, digest in zip(places, _digests(text, places), strict=True) if digest in forgotten]
    (folder / LEFT_OUT).write_bytes(np.array(copies, "<u8").tobytes())
    return Outcome(counts={"left_out": len(copies), "bytes_read": int(lengths[alike].sum())})


def _lengths(text: TextShard) -> NDArray[np.int64]:
    bounds = text.bounds(0, text.documents).astype(np.int64)
    return bounds[1:] - bounds[:-1] - 1


def _digests(text: TextShard, ordinals: Iterable[int]) -> Iterator[bytes]:
    """The sha256 of each document's text; with a weaker hash, a crafted text could get another document removed."""
    bounds = text.bounds(0, text.documents).astype("<i8")
    for ordinal in ordinals:
        yield hashlib.sha256(text.text[bounds[ordinal] + 1 : bounds[ordinal + 1]].data).digest()


STAGE = Stage(
    "copies",
    version=1,
    after=("join",),
    per_shard=True,
    wanted=lambda config: bool(config.forget and config.forget.copies == "also"),
    units_of="index",
    work=Work(Settings, _identity, _inputs, _run),
    recount=recount_left_out,
    shown=Shown(on_trunk=False),
)
