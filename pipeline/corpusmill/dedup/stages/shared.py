"""Shared: finds the anchors that share their hash with another, one partition of the hash space at a time.

It writes the first of the two requests to the texts (dedup step 2), one row per such anchor.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.context import sections_in
from corpusmill.dedup.stages.reference import whole_index
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily
from corpusmill.sources.stages.index import require_few_rejected

with lazily:
    from corpusmill.dedup import exchange, shared
    from corpusmill.engine import recounting


if TYPE_CHECKING:
    from corpusmill.engine.build import Build

BUCKETS = 4096  # of every shard's anchors (dedup/anchors.py, which imports numpy)
MINIMUM_PARTITIONS, MAXIMUM_PARTITIONS = 4, BUCKETS
BYTES_PER_ANCHOR = (
    96  # in memory: the peak is in dedup/settle.py if all are shared; dedup/shared.py takes 49 if none is
)


def _units(build: Build) -> list[str]:
    """As many partitions as keep one partition's anchors within dedup.memory: a power of two, from 4 to 4096.

    The number changes how work is divided, never a byte of the ranges.
    """
    anchors, largest = (
        build.total("anchor", count) + build.total("reference_index", count) for count in ("anchors", "largest_bucket")
    )
    partitions = partitions_for(anchors, largest, build.config.dedup.memory)
    return [f"{partition:05d}" for partition in range(partitions)]


def partitions_for(anchors: int, largest_bucket: int, memory_bytes: int) -> int:
    """The smallest power of two, at least 4, of partitions that each need at most `memory_bytes`.

    `largest_bucket`: the anchors of every shard's largest bucket, added up. Hashes spread different strings evenly, so
    that a partition holds anchors / partitions; but a string that occurs everywhere has all its anchors in one bucket,
    and its partition holds those in addition. Each anchor takes BYTES_PER_ANCHOR.
    """
    beyond = max(0, largest_bucket - anchors // BUCKETS)
    partitions = MINIMUM_PARTITIONS
    while partitions <= MAXIMUM_PARTITIONS and anchors / partitions + beyond > memory_bytes / BYTES_PER_ANCHOR:
        partitions *= 2
    if partitions > MAXIMUM_PARTITIONS:
        least = (beyond + -(-anchors // MAXIMUM_PARTITIONS)) * BYTES_PER_ANCHOR
        raise ConfigError(
            "dedup.too_little_memory: the anchors of one partition do not fit into the memory of a match task",
            where="dedup.memory",
            expected=f"at least {least:,} bytes: {anchors:,} anchors in {MAXIMUM_PARTITIONS:,} partitions, and up to "
            f"{beyond:,} of one string",
            got=f"{memory_bytes:,} bytes",
            next_step="raise dedup.memory, or dedup.minimum_bytes: longer repeats have fewer anchors",
        )
    return partitions


class Settings(Identity, frozen=True, kw_only=True):
    """Which partition it is, and how many shards of references come first."""

    minimum_bytes: int
    first_shard: int | UnsetType = UNSET
    partition: int
    partitions: int


def _identity(build: Build, unit: str) -> Settings:
    units = build.units("shared")
    return Settings(
        minimum_bytes=build.config.dedup.window_bytes,
        first_shard=len(build.units("reference")) or UNSET,
        partition=units.index(unit),
        partitions=len(units),
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    shards = [sections_in(step.blocks) for step in inputs.every("anchors")]
    first_shard = settings.first_shard or 0
    counts = shared.share(shards, settings.partition, settings.partitions, folder, first_shard=first_shard)
    return Outcome(counts={**counts, "bytes_read": 16 * counts["anchors"]})


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    return Recount({"candidates": recounting.section_rows(folder, exchange.CONTEXTS, 8)})


STAGE = Stage(
    "shared",
    version=1,
    after=("anchor", "reference_index"),
    wanted=lambda config: config.dedup.mode != "none",
    units=_units,
    work=Work(Settings, _identity, lambda build, _unit: {"anchors": whole_index(build)}, _run),
    recount=_recount,
    gate=require_few_rejected,
    reclaimed=("*",),
    read_until="match",
    schedule=Schedule(memory=lambda config: ("dedup.memory", int(config.dedup.memory))),
    shown=Shown(unit_word="partition"),
)
