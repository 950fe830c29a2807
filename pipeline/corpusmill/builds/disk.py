"""How much disk a build holds at every moment, with `reclaim: keep` and with `reclaim: eager`.

A moment is the end of a wave of stages, or of the part of a stage that writes one kind of files, before anything is
reclaimed, so outputs and inputs are on disk together: scattered documents are deleted when the documents' cells are
complete, and only then the contexts' cells are written. The destination fills in the last wave but one, when an eager
build has already deleted the gathered records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from corpusmill.builds.graph import GRAPH
from corpusmill.config import DatasetConfig
from corpusmill.engine.build import Build
from corpusmill.engine.estimates import HeldRow
from corpusmill.engine.stage import kind_of
from corpusmill.report.figures import bytes_text
from corpusmill.shuffle.stages.scatter import KINDS
from corpusmill.storage import is_local

Moments = list[tuple[int, int]]
"""(bytes in the work folder, bytes at each destination), one after the other."""

# Bytes per byte of text, measured with 32-bit ids and 136 MB of text. Those of deduplication are times minimum_bytes:
# 12 bytes for each anchor, of which there is one in a third of minimum_bytes, and answers to most of them.
TEXT, TOKENS, RECORDS = 1.0, 0.85, 0.85
ANCHORS, EXCHANGED = 35, 85
EXPORTS = {"webdataset": 0.36, "numpy": TOKENS, "megatron": TOKENS, "nanoset": TOKENS}
TOKENS_OF_A_BYTE = TOKENS / 4
DELIVERED = {"export", "writeback", "manifest"}


class Held(NamedTuple):
    """What a stage's units of one kind leave in the work folder: bytes that stay, and bytes that may go once their last
    reader has finished. `reads` is the kind of the files that they read.
    """

    stage: str
    kept_bytes: float
    reclaimed_bytes: float = 0
    kind: str = ""
    reads: str = ""


def moments(held: Iterable[HeldRow], *, handed_over: bool = True) -> dict[str, Moments]:
    """What a build holds, by setting of `reclaim`; `held`: rows of Held in the order in which they are written, where a
    stage that is left out holds nothing.

    `handed_over`: an eager build has one destination, which gets links instead of copies (upload/stages/upload.py).
    """
    rows = [Held(*row) for row in held]
    return {
        "keep": list(_moments(rows, eager=False, handed_over=False)),
        "eager": list(_moments(rows, eager=True, handed_over=handed_over)),
    }


def _moments(rows: list[Held], *, eager: bool, handed_over: bool) -> Iterator[tuple[int, int]]:
    work = destination = 0.0
    for wave in GRAPH.waves():
        own = [row for row in rows if row.stage in wave]
        freed = [row for row in rows if eager and GRAPH[row.stage].read_until in wave]
        for number, row in enumerate(own):
            work += row.kept_bytes + row.reclaimed_bytes
            yield round(work), round(destination)
            if row.reads and row.reads not in {later.reads for later in own[number + 1 :]}:
                work -= sum(other.reclaimed_bytes for other in freed if other.kind == row.reads)
                freed = [other for other in freed if other.kind != row.reads]
        freed_bytes = sum(row.reclaimed_bytes for row in freed)
        if "upload" in wave:
            destination = sum(row.kept_bytes + row.reclaimed_bytes for row in rows if row.stage in DELIVERED)
            work -= freed_bytes * handed_over
            freed_bytes *= not handed_over
        yield round(work), round(destination)
        work -= freed_bytes


def held_by(build: Build) -> list[Held]:
    """What the stages of a finished build hold, if nothing was reclaimed. Hard links of one file count once."""
    rows = []
    for stage in build.graph.names:
        by_kind: dict[tuple[str, str], list[str]] = {}
        for unit in build.units(stage):
            read = {kind_of(of) for name, of in build.inputs(stage, unit) if build.graph[name].reclaimed}
            by_kind.setdefault((kind_of(unit), read.pop() if len(read) == 1 else ""), []).append(unit)
        rows += [_held(build, stage, units, *kinds) for kinds, units in by_kind.items()]
    return rows


def _held(build: Build, stage: str, units: list[str], kind: str, reads: str) -> Held:
    patterns = build.graph[stage].reclaimed
    kept = reclaimed = 0
    for unit in units:
        folder, outputs = build.step_folder(stage, unit), build.receipt(stage, unit).outputs
        names = {output.name for output in outputs if any(fnmatchcase(output.name, pattern) for pattern in patterns)}
        files = {path.lstat().st_ino: path for path in _files(folder)}
        for path in files.values():
            size_bytes = path.lstat().st_size
            if path.relative_to(folder).as_posix() in names:
                reclaimed += size_bytes
            else:
                kept += size_bytes
    return Held(stage, kept, reclaimed, kind, reads)


def _files(folder: Path) -> Iterator[Path]:
    return (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


def usually_held(
    config: DatasetConfig, source_bytes: int, text_bytes: int, shown: float = 1.0, reference_text_bytes: int = 0
) -> list[Held]:
    """The same before anything was built or estimated: bytes per byte of text in measured builds, times the text of the
    sources. Downloaded sources and deduplicated documents take what the sources take, stored as they are. `shown`:
    tokens that a budget shows for each token there is.
    """
    formats = config.exports.formats()
    deduplicated = config.dedup.mode != "none"
    remote = not config.source.stream and any(not is_local(path) for path in config.source.paths)
    anchors, exchanged = _of_anchors(config)
    changes_text = config.decontamination is not None and config.decontamination.changes_text()
    kinds = sorted({KINDS[name] for name in formats}, reverse=True)  # in the order of shuffle/stages/scatter.py
    records = RECORDS * (config.shuffle.order == "random")
    linked = {"nanoset"} if "megatron" in formats else set()  # one file of tokens with two names
    shares = [
        Held("index", TEXT),
        Held("filter", TEXT if config.steps_before("index") or config.decisions else 0.0),
        Held("decontaminate", TEXT if changes_text else 0.0),
        Held("anchor", anchors),
        Held("context", 0.0, exchanged),
        Held("refine", TEXT if config.steps_before("writeback") or config.drops_emptied else 0.0),
        Held("tokenize", TOKENS),
        *(Held("scatter", 0.0, shown * records, kind) for kind in kinds),
        *(Held("gather", 0.0, shown * records, kind, kind) for kind in kinds),
        *(Held("export", 0.0, shown * EXPORTS[name] * (name not in linked), name, KINDS[name]) for name in formats),
    ]
    return [
        Held("download", source_bytes * remote),
        *(scaled(row, text_bytes) for row in shares),
        Held("writeback", source_bytes * (deduplicated and config.dedup.writeback)),
        *held_of_references(config, reference_text_bytes),
    ]


def scaled(row: Held, times: float) -> Held:
    """The row of a stage that holds so many times the bytes."""
    return row._replace(kept_bytes=times * row.kept_bytes, reclaimed_bytes=times * row.reclaimed_bytes)


def held_of_references(config: DatasetConfig, text_bytes: int) -> list[Held]:
    """What the stages of references hold, by the text of the references."""
    anchors, exchanged = _of_anchors(config)
    return [
        Held("reference", TEXT * text_bytes),
        Held("reference_index", anchors * text_bytes),
        Held("reference_context", 0.0, exchanged * text_bytes),
    ]


def _of_anchors(config: DatasetConfig) -> tuple[float, float]:
    """Bytes per byte of text of anchors, and of what they are exchanged for."""
    if config.dedup.minimum_bytes is None or config.dedup.mode == "none":
        return 0.0, 0.0
    return ANCHORS / config.dedup.minimum_bytes, EXCHANGED / config.dedup.minimum_bytes


def render_disk(by_setting: dict[str, Moments], *, reclaim: str, stated_by: str) -> str:
    """For people: the most that a build holds with either setting."""
    lines = []
    for setting, timeline in by_setting.items():
        work = max(work for work, _ in timeline)
        together = max(map(sum, timeline))
        mine = ", as configured" if setting == reclaim else ""
        lines.append(
            f"peak disk   {bytes_text(work)} in the work folder, {bytes_text(together)} with one destination on the"
            f" same disk (reclaim: {setting}{mine})"
        )
    return "\n".join([*lines, f"            by {stated_by}"])
