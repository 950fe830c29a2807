"""Shared: finds the anchors that share their hash with another, one partition of the hash space at a time.

It writes the first of the two requests to the texts (dedup step 2), one row per such anchor.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.errors import ConfigError
from corpusmill.ledger import Outcome
from corpusmill.stages.reference import all_shards, index_step, whole_index

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
    if build.config.dedup.mode == "none" or build.config.index.method != "anchors":
        return []
    anchors, largest = (
        build.total("anchor", count) + build.total("reference_index", count) for count in ("anchors", "largest_bucket")
    )
    return partition_names(partitions_for(anchors, largest, build.config.dedup.memory))


def partition_names(partitions: int) -> list[str]:
    """The units of stages that work by partition."""
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
            "the anchors of one partition do not fit into the memory of a match task",
            where="dedup.memory",
            expected=f"at least {least:,} bytes: {anchors:,} anchors in {MAXIMUM_PARTITIONS:,} partitions, and up to "
            f"{beyond:,} of one string",
            got=f"{memory_bytes:,} bytes",
            next_step="raise dedup.memory, or dedup.minimum_bytes: longer repeats have fewer anchors",
        )
    return partitions


def _settings(build: Build, unit: str) -> dict[str, Any]:
    units = build.units("shared")
    settings = {"minimum_bytes": build.config.dedup.minimum_bytes}
    if references := len(build.units("reference")):
        settings["first_shard"] = references
    return {**settings, "partition": units.index(unit), "partitions": len(units)}


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    from corpusmill.dedup.shared import AnchorSlices, share

    units = build.units("shared")
    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    shards = []
    for shard in all_shards(build):
        blocks = build.blocks(*index_step(build, shard))
        shards.append(AnchorSlices(blocks.folder, blocks.open))
    first_shard = len(build.units("reference"))
    counts = share(shards, units.index(unit), len(units), minimum_bytes, folder, first_shard=first_shard)
    return Outcome(counts={**counts, "bytes_read": 16 * counts["anchors"]})


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    from corpusmill.dedup.exchange import CONTEXTS
    from corpusmill.stages.recounting import section_rows

    return Recount({"candidates": section_rows(folder, CONTEXTS, 8)})


STAGE = Stage(
    "shared",
    version=1,
    after=("anchor", "reference_index"),
    units_after=("anchor", "reference_index"),
    group="find_ranges",
    unit_word="partition",
    units=_units,
    inputs=lambda build, _unit: whole_index(build),
    settings=_settings,
    run=_run,
    recount=_recount,
    reclaimed=("*",),
    read_until="match",
    memory=lambda config: ("dedup.memory", int(config.dedup.memory)),
)
