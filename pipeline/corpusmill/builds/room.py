"""How much disk a build holds at every moment, and how much memory its stages need by their settings.

A moment is the end of a wave of stages, or of the part of a stage that writes one kind of files, before anything is
reclaimed, so outputs and inputs are on disk together: scattered documents are deleted when the documents' cells are
complete, and only then the contexts' cells are written. The destination fills in the last wave but one, when an eager
build has already deleted the gathered records. ``moments`` tells with `reclaim: keep` and with `reclaim: eager`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from corpusmill.builds.chain import STEP_OF
from corpusmill.builds.graph import GRAPH
from corpusmill.config import FORMATS, DatasetConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.engine.estimates import HeldRow
from corpusmill.engine.stage import kind_of
from corpusmill.errors import ConfigError
from corpusmill.export.stages.layout import unit_formats
from corpusmill.report.figures import bytes_text
from corpusmill.shuffle.stages.scatter import KINDS, kinds_of
from corpusmill.storage import is_local

Moments = list[tuple[int, int]]
"""(bytes in the work folder, bytes at each destination), one after the other."""

# Bytes per byte of text, measured with 32-bit ids and 136 MB of text. Those of deduplication are times minimum_bytes:
# 12 bytes for each anchor, of which there is one in a third of minimum_bytes, and answers to most of them.
TEXT, TOKENS, RECORDS = 1.0, 0.85, 0.85
ANCHORS, EXCHANGED = 35, 85
KEYS = 0.17  # 16 bytes for each of 19 keys of a document of 1,800 bytes
RECORDS_OF = {"pieces": 0.02, "texts": TEXT / RECORDS}  # kinds of record that are not the tokens: their share of those
EXPORTS = {**dict.fromkeys(FORMATS, TOKENS), "webdataset": 0.36, "parquet_text": 0.45}
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
    near = config.near_duplicates
    kinds = kinds_of(config.exports)
    records = RECORDS * (config.shuffle.order == "random")
    linked = {name for together in unit_formats(config.exports).values() for name in together[1:]}
    shares = [
        Held("index", TEXT),
        Held("filter", TEXT if config.steps_before("index") or config.decisions else 0.0),
        Held("decontaminate", TEXT if changes_text else 0.0),
        Held("sign", 0.0, KEYS * bool(near)),
        Held("near_duplicates", TEXT if near and near.action == "remove" else 0.0),
        Held("anchor", anchors),
        Held("context", 0.0, exchanged),
        Held("refine", TEXT if config.steps_before("writeback") or config.drops_emptied else 0.0),
        Held("tokenize", TOKENS),
        *(Held("scatter", 0.0, shown * records * RECORDS_OF.get(kind, 1), kind) for kind in kinds),
        *(Held("gather", 0.0, shown * records * RECORDS_OF.get(kind, 1), kind, kind) for kind in kinds),
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
        Held("reference_sign", KEYS * text_bytes * config.near_duplicates_of_references),
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


GIB = 1 << 30
MEMORY_GIB = "CORPUSMILL_MEMORY_GIB"
LEAST = {  # a configuration that leaves every limit of memory at its default
    "name": "defaults",
    "source": {"paths": ["text"]},
    "dedup": {"mode": "remove", "minimum_bytes": 100},
    "tokenizer": {"name": "cl100k_base"},
    "shuffle": {"seed": 0},
    "exports": {"numpy": {}},
    "destinations": [{"path": "outputs"}],
}


def needed_memory(config: DatasetConfig, processes: int = 1) -> dict[str, tuple[str, int]]:
    """{stage: (the key that decides, bytes that one of its tasks takes)}, for tasks of `processes` units at a time."""
    needed = ((stage.name, stage.schedule.memory(config)) for stage in GRAPH if GRAPH.is_wanted(stage.name, config))
    return {name: (memory[0], processes * memory[1]) for name, memory in needed if memory}


def task_gib(configs: Sequence[DatasetConfig], processes: int = 1) -> dict[str, int]:
    """{step: pool slots of one of its tasks}: the most that any of these configurations needs, or else the defaults.

    At most the stated size of the pool: more would wait forever, and plans refuse the configurations that need more.
    """
    most = _stated_gib()
    gib: dict[str, int] = {}
    for config in configs or [check_config(LEAST, where="the defaults")]:
        for stage, (_, size_bytes) in needed_memory(config, processes).items():
            needed = max(whole_gib(size_bytes), gib.get(STEP_OF[stage], 1))
            gib[STEP_OF[stage]] = min(needed, most) if most else needed
    return gib


def whole_gib(size_bytes: int) -> int:
    """GiB, rounded up, at least one: the pool slots that a task takes."""
    return max(1, -(-size_bytes // GIB))


def require_memory(config: DatasetConfig, *, where: str, processes: int = 1) -> None:
    """ConfigError if a stage needs more memory than there is: its tasks would wait forever, or be killed.

    The limit is CORPUSMILL_MEMORY_GIB, the size of the scheduler's pool, or else the memory of this machine.
    """
    gib, stated_by = _memory_gib()
    needed = needed_memory(config, processes)
    too_large = {key: size_bytes for key, size_bytes in needed.values() if whole_gib(size_bytes) > gib}
    if too_large:
        several, or_fewer = (f" of {processes} processes", " or dag.task_processes") if processes > 1 else ("", "")
        raise ConfigError(
            "run.too_little_memory: a task would take more memory than available",
            details=tuple((key, f"{whole_gib(size):,} GiB a task{several}") for key, size in too_large.items()),
            where=where,
            expected=f"at most {gib:,} GiB: {stated_by}",
            next_step=f"lower these keys{or_fewer}, or set {MEMORY_GIB} if tasks run on larger machines",
        )


def _memory_gib() -> tuple[int, str]:
    """(GiB of memory there are, where that figure comes from)."""
    stated = _stated_gib()
    if stated is not None:
        return stated, f"{MEMORY_GIB}, the size of the memory pool"
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, machine_bytes // GIB), "the memory of this machine"


def _stated_gib() -> int | None:
    stated = os.environ.get(MEMORY_GIB, "")
    return int(stated) if stated.isdecimal() else None
