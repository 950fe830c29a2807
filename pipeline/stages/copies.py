"""Copies: finds the documents of a shard with the text of a forgotten document, which are dropped, too (`copies:
also`).

    left_out   uint64 LE: their ordinals, ascending

Only texts as long as a forgotten one are read. Empty texts never count as copies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import FORGOTTEN
from corpusmill.engine.stage import Stage
from corpusmill.ledger import Outcome
from corpusmill.stages.joined import LEFT_OUT, left_out_of, recount_left_out

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build, StepView

COPY = f"{FORGOTTEN}: copy"


def copies_of(build: Build, shard: str) -> dict[int, str]:
    """{ordinal: reason} of the documents of a shard that are dropped as copies, ascending."""
    import numpy as np

    return dict.fromkeys(np.fromfile(build.folder("copies", shard) / LEFT_OUT, "<u8").tolist(), COPY)


def _units(build: Build) -> list[str]:
    return build.units("index") if build.config.forget and build.config.forget.copies == "also" else []


def _settings(build: Build, _shard: str) -> dict[str, Any]:
    return {"forgetting": [unit for unit in build.units("join") if build.receipt("join", unit).counts.get(FORGOTTEN)]}


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    forgetting = _settings(build, shard)["forgetting"]
    return [
        *(("index", unit) for unit in dict.fromkeys([shard, *forgetting])),
        *(("join", unit) for unit in forgetting),
    ]


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.documents.text_shard import open_text_shard

    forgotten: set[bytes] = set()
    sizes, own = [0], np.empty(0, np.int64)
    for name in build.settings["forgetting"]:
        reasons = left_out_of(build, name)
        ordinals = np.array([ordinal for ordinal in reasons if reasons[ordinal] == FORGOTTEN], np.int64)
        with build.opened("index", name) as indexed:
            text = open_text_shard(indexed)
            forgotten.update(_digests(text, ordinals.tolist()))
            sizes += _lengths(text)[ordinals].tolist()
        own = ordinals if name == shard else own
    text = open_text_shard(build.folder("index", shard))
    lengths = _lengths(text)
    alike = np.flatnonzero(np.isin(lengths, sizes) & (lengths > 0))
    alike = np.setdiff1d(alike, own, assume_unique=True)
    places = alike.tolist()
    copies = [place for place, digest in zip(places, _digests(text, places), strict=True) if digest in forgotten]
    (folder / LEFT_OUT).write_bytes(np.array(copies, "<u8").tobytes())
    return Outcome(counts={"left_out": len(copies), "bytes_read": int(lengths[alike].sum())})


def _lengths(text: TextShard) -> NDArray[np.int64]:
    import numpy as np

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
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=recount_left_out,
    on_trunk=False,
)
