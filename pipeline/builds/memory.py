"""The memory that stages take by their settings, and how much there is for them."""

from __future__ import annotations

import os

from corpusmill.config import DatasetConfig
from corpusmill.errors import ConfigError
from corpusmill.stages.graph import GRAPH

GIB = 1 << 30
MEMORY_GIB = "CORPUSMILL_MEMORY_GIB"


def needed_memory(config: DatasetConfig) -> dict[str, tuple[str, int]]:
    """{stage: (the key that decides, bytes that one of its tasks takes)}."""
    return {stage.name: needed for stage in GRAPH if (needed := stage.memory(config))}


def whole_gib(size_bytes: int) -> int:
    """GiB, rounded up, at least one: the slots that a task takes of a pool."""
    return max(1, -(-size_bytes // GIB))


def require_memory(config: DatasetConfig, *, where: str) -> None:
    """ConfigError if a stage would need more memory than there is: its tasks would wait for ever, or be killed.

    That is what CORPUSMILL_MEMORY_GIB says, which is the size of the scheduler's pool, else the memory of this machine.
    """
    stated = os.environ.get(MEMORY_GIB, "")
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gib = int(stated) if stated.isdecimal() else max(1, machine_bytes // GIB)
    needed = needed_memory(config)
    if config.index.method != "suffix_array":
        del needed["suffix_array"]
    if config.dedup.mode == "none":
        del needed["match"]
    too_large = {key: size_bytes for key, size_bytes in needed.values() if whole_gib(size_bytes) > gib}
    if too_large:
        there = f"{MEMORY_GIB}, the size of the memory pool" if stated.isdecimal() else "the memory of this machine"
        raise ConfigError(
            "a task would take more memory than there is",
            details=tuple((key, f"{whole_gib(size_bytes):,} GiB a task") for key, size_bytes in too_large.items()),
            where=where,
            expected=f"at most {gib:,} GiB: {there}",
            next_step="lower these keys"
            + ("" if stated.isdecimal() else f", or set {MEMORY_GIB} if tasks run on larger machines"),
        )
