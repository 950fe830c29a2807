"""Copies, filter: forgotten documents, those with the same text (`copies: also`) and those that external decisions drop
are left out, then the steps `before: index` run.

copies finds the documents of a shard with the text of a forgotten document. Only texts as long as a forgotten one are
read. Empty texts never count as copies.

    left_out   uint64 LE: their ordinals, ascending

Without steps filter rewrites only shards that lose documents; the others keep the text of index. Because dropped
documents take no part in deduplication, the copy that dedup keeps is never dropped after its repeats were removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from corpusmill.config import FORGOTTEN
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Shown, Stage, StepName
from corpusmill.engine.work import Identity, Input, Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.sources.parts import lines_before, places_in, shard_sources
from corpusmill.sources.stages.index import filtered_stage, require_few_rejected, text_total
from corpusmill.steps.stages.applying import (
    COPY,
    GONE_BYTES,
    AppliedSteps,
    StepsSettings,
    account_checks,
    batch_of,
    chain_of,
    dropped_by_reason,
    recount_applied,
    rewritten_bytes,
    steps_before,
)
from corpusmill.steps.stages.decisions import LEFT_OUT, left_out_of, recount_left_out

with lazily:
    import numpy as np

    from corpusmill.documents import batch, text_shard


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import DocumentStrings, TextShard
    from corpusmill.engine.build import Build
    from corpusmill.steps import Batch


def copies_of(copied: Input) -> dict[int, str]:
    """{ordinal: reason} of the documents of a shard that are dropped as copies, ascending."""
    return dict.fromkeys(np.fromfile(copied.folder() / LEFT_OUT, "<u8").tolist(), COPY)


class CopiesSettings(Identity, frozen=True, kw_only=True):
    """The shards that hold forgotten documents."""

    forgetting: list[str]


def _identity_copies(build: Build, _shard: str) -> CopiesSettings:
    units = build.units("join")
    return CopiesSettings(forgetting=[unit for unit in units if build.receipt("join", unit).counts.get(FORGOTTEN)])


def _inputs_copies(build: Build, shard: str) -> dict[str, list[StepName]]:
    forgetting = _identity_copies(build, shard).forgetting
    return {
        "text": [("index", shard)],
        "forgetting": [("index", unit) for unit in forgetting],
        "joined": [("join", unit) for unit in forgetting],
    }


def _run_copies(inputs: Inputs, _settings: CopiesSettings, folder: Path, _resources: Resources) -> Outcome:

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


COPIES = Stage(
    "copies",
    version=1,
    after=("join",),
    per_shard=True,
    wanted=lambda config: bool(config.forget and config.forget.copies == "also"),
    units_of="index",
    work=Work(CopiesSettings, _identity_copies, _inputs_copies, _run_copies),
    recount=recount_left_out,
    shown=Shown(on_trunk=False),
)


READERS = {"join": left_out_of, "copies": copies_of}


def _has_unit(build: Build, shard: str) -> bool:
    return bool(build.config.steps_before("index") or _lists(build, shard))


def _stages_of_lists(build: Build) -> list[str]:
    return [stage for stage in READERS if build.units(stage)]


def _lists(build: Build, shard: str) -> list[str]:
    """The stages that drop documents of a shard before any step is asked; the first of them gives the reason."""
    return [stage for stage in _stages_of_lists(build) if build.receipt(stage, shard).counts["left_out"]]


class Settings(StepsSettings, frozen=True, kw_only=True):
    """`lists`: see `_lists`."""

    lists: list[str] | UnsetType = UNSET


def _identity(build: Build, shard: str) -> Settings:
    return Settings(
        **steps_before(build, "index"),
        lines_before=lines_before(build, shard) or UNSET,
        lists=_lists(build, shard) or UNSET,
    )


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {"text": [("index", shard)], **{stage: [(stage, shard)] for stage in _lists(build, shard)}}


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:

    text = text_shard.open_text_shard(inputs["text"].folder())
    listed = {stage: READERS[stage](inputs[stage]) for stage in settings.lists or ()}
    place = places_in(inputs.source.files, text, settings.lines_before)
    gone = listed.get("copies", {}) | listed.get("join", {})
    applied = AppliedSteps(text, chain_of(settings, resources), place, gone=gone)

    def read(ids: DocumentStrings, first: int, last: int) -> Batch:
        bounds = text.bounds(first, last - first).astype(np.int64)
        data = text.text[bounds[0] : bounds[-1]]
        return batch_of(text, ids, first, data, bounds - bounds[0], place, between=len(batch.SEPARATOR))

    applied.write(folder, read)
    counts, details = applied.account(inputs.unit, folder)
    return Outcome(counts={**counts, "bytes_read": len(text.text)}, details=details)


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    return account_checks("filtered text", build.receipt("index", shard), receipt)


def _flows(build: Build) -> dict[str, Flow]:
    totals = build.rollup("filter").totals
    documents, texts = (build.total("index", name) for name in ("documents_out", "text_bytes_out"))
    documents_out, texts_out = (
        text_total(build, f"{name}_out", filtered_stage) for name in ("documents", "text_bytes")
    )
    cut, added = rewritten_bytes(totals)
    lost = {**dropped_by_reason(totals, GONE_BYTES), **cut}
    return {
        "documents": Flow(into=documents, out=documents_out, lost=dropped_by_reason(totals)),
        "text_bytes": Flow(into=texts, out=texts_out, lost=lost, gained=added),
    }


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    recount = recount_applied(unit, folder)
    rewritten = len(text_shard.open_text_shard(folder).rewritten)  # no earlier stage rewrites texts
    return Recount({**recount.counts, "documents_rewritten": rewritten}, recount.details)


STAGE = Stage(
    "filter",
    version=2,
    after=("decided", "copies"),
    per_shard=True,
    wanted=lambda config: bool(config.steps_before("index") or config.decides()),
    units_of="index",
    has_unit=_has_unit,
    work=Work(Settings, _identity, _inputs, _run, shard_sources),
    recount=_recount,
    checks=_checks,
    gate=require_few_rejected,
    shown=Shown(flows=_flows),
)
