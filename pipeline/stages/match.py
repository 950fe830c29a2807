"""Match: compare the text around equal anchors, one partition of the hash space at a time (dedup steps 2 to 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.ledger import Outcome
from pipeline.stages.stage import Stage, every

if TYPE_CHECKING:
    from pipeline.stages.build import Build

MINIMUM_PARTITIONS, MAXIMUM_PARTITIONS = 4, 128
BYTES_PER_ANCHOR = 64  # in memory while its partition is matched: hash, place, order, and the tables over them


def _units(build: Build) -> list[str]:
    """As many partitions as keep one partition's anchors within dedup.memory: a power of two, from 4 to 128.

    The number changes how work is divided, never a byte of the ranges.
    """
    if build.config.dedup.mode == "none":
        return []
    needed = -(-build.total("anchor", "anchors") * BYTES_PER_ANCHOR // build.config.dedup.memory)
    partitions = MINIMUM_PARTITIONS
    while partitions < min(needed, MAXIMUM_PARTITIONS):
        partitions *= 2
    return [f"{partition:05d}" for partition in range(partitions)]


def _inputs(build: Build, _partition: str) -> list[tuple[str, str]]:
    return [*every(build, "index"), *every(build, "anchor")]


def _settings(build: Build, partition: str) -> dict[str, Any]:
    settings = {"minimum_bytes": build.config.dedup.minimum_bytes}
    return {**settings, "partition": int(partition), "partitions": len(build.units("match"))}


def _run(build: Build, partition: str, folder: Path) -> Outcome:
    from pipeline.dedup.anchors import open_anchors
    from pipeline.dedup.matches import IndexedShard, match_partition, write_match_ranges
    from pipeline.documents.text_shard import open_text_shard

    shards = []
    for shard in build.units("index"):
        text = open_text_shard(build.folder("index", shard))
        shards.append(IndexedShard(text.text, open_anchors(build.folder("anchor", shard))))
    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    partitions = len(build.units("match"))
    found, counts = match_partition(shards, int(partition), partitions, minimum_bytes)
    write_match_ranges(folder, found)
    # Every partition looks at the anchors of all text; its share of the text is what adds up over partitions.
    return Outcome(counts={**counts, "bytes_read": sum(len(one.text) for one in shards) // partitions})


STAGE = Stage("match", units=_units, inputs=_inputs, settings=_settings, run=_run)
