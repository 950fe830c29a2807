"""How much memory stages need by their settings, and how much there is."""

from __future__ import annotations

import os
from collections.abc import Sequence

from corpusmill.builds.chain import STEP_OF
from corpusmill.builds.graph import GRAPH
from corpusmill.config import DatasetConfig, check_config
from corpusmill.errors import ConfigError

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
