"""Match: compare the text around equal anchors, one partition of the hash space at a time (dedup steps 2 to 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage, every
from corpusmill.errors import ConfigError
from corpusmill.ledger import Outcome

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.dedup.matches import Matches
    from corpusmill.dedup.repeated import RepeatedWindow
    from corpusmill.engine.build import Build

BUCKETS = 4096  # of every shard's anchors (dedup/anchors.py, which imports numpy)
MINIMUM_PARTITIONS, MAXIMUM_PARTITIONS = 4, BUCKETS
EXCERPT_BYTES = 160  # of a repeated string, for the report
BYTES_PER_ANCHOR = 64  # in memory while its partition is matched (dedup/matches.py: 49, and 16 where a level waits)


def _units(build: Build) -> list[str]:
    """As many partitions as keep one partition's anchors within dedup.memory: a power of two, from 4 to 4096.

    The number changes how work is divided, never a byte of the ranges.
    """
    if build.config.dedup.mode == "none":
        return []
    partitions = MINIMUM_PARTITIONS
    if build.config.index.method == "anchors":
        anchors, largest = (build.total("anchor", count) for count in ("anchors", "largest_bucket"))
        partitions = partitions_for(anchors, largest, build.config.dedup.memory)
    return [f"{partition:05d}" for partition in range(partitions)]


def partitions_for(anchors: int, largest_bucket: int, memory_bytes: int) -> int:
    """The least power of two, 4 at least, of partitions of which each needs at most `memory_bytes`.

    `largest_bucket`: the anchors of every shard's largest bucket, added up. Hashes spread different strings evenly, so
    that a partition holds anchors / partitions; but one string that is everywhere has all its anchors in one bucket,
    and the partition with it holds those on top. Each anchor takes BYTES_PER_ANCHOR.
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


def _inputs(build: Build, _partition: str) -> list[tuple[str, str]]:
    index = "anchor" if build.config.index.method == "anchors" else "suffix_array"
    return [*every(build, "index"), *every(build, index)]


def _settings(build: Build, unit: str) -> dict[str, Any]:
    units = build.units("match")
    dedup = build.config.dedup
    settings = {"minimum_bytes": dedup.minimum_bytes, "keep": dedup.keep}
    return {**settings, "partition": units.index(unit), "partitions": len(units)}


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    from corpusmill.dedup.matches import EARLIER_WINDOWS, LATER_WINDOWS, write_match_ranges
    from corpusmill.documents.text_shard import open_text_shard

    units = build.units("match")
    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    texts = [open_text_shard(build.folder("index", shard)).text for shard in build.units("index")]
    matches, counts = _matched(build, texts, units.index(unit), len(units), minimum_bytes)
    ranges = matches.ranges(minimum_bytes)
    write_match_ranges(folder, ranges)
    if build.config.dedup.keep == "every_string":
        write_match_ranges(folder, matches.windows, LATER_WINDOWS)
        write_match_ranges(folder, matches.earlier, EARLIER_WINDOWS)
    # Every partition looks at the anchors of all text; its share of the text is what adds up over partitions.
    bytes_read = sum(map(len, texts)) // len(units)
    return Outcome(
        counts={**counts, "ranges": sum(map(len, ranges)), "bytes_read": bytes_read},
        details={"repeated": [_described(build, one, minimum_bytes) for one in matches.repeated]},
    )


def _described(build: Build, window: RepeatedWindow, minimum_bytes: int) -> dict[str, Any]:
    """How often, where first (file, 1-based line), and the beginning of the string."""
    import numpy as np

    from corpusmill.documents.text_shard import open_text_shard

    text = open_text_shard(build.folder("index", build.units("index")[window.shard]))
    document = int(np.searchsorted(text.offsets, np.uint64(window.position), side="right")) - 1
    source, line = text.source_of(document)
    string = text.text[window.position : window.position + min(minimum_bytes, EXCERPT_BYTES)].tobytes()
    return {
        "count": window.count,
        "source_file": source,
        "line": line + 1,
        "excerpt": string.decode(errors="ignore"),
    }


def _matched(
    build: Build, texts: list[NDArray[np.uint8]], partition: int, partitions: int, minimum_bytes: int
) -> tuple[Matches, dict[str, int]]:
    if build.config.index.method == "suffix_array":
        from corpusmill.dedup.suffix_array import open_suffix_array
        from corpusmill.dedup.suffix_matches import SortedShard, match_suffixes

        folders = (build.folder("suffix_array", shard) for shard in build.units("suffix_array"))
        ordered = [
            SortedShard(text, open_suffix_array(folder, len(text))) for text, folder in zip(texts, folders, strict=True)
        ]
        return match_suffixes(ordered, partition, partitions, minimum_bytes)
    from corpusmill.dedup.anchors import open_anchors
    from corpusmill.dedup.matches import IndexedShard, match_partition

    folders = (build.folder("anchor", shard) for shard in build.units("anchor"))
    indexed = [IndexedShard(text, open_anchors(folder)) for text, folder in zip(texts, folders, strict=True)]
    whole = build.config.dedup.keep == "every_string"
    return match_partition(indexed, partition, partitions, minimum_bytes, want_earlier=whole)


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    import numpy as np

    from corpusmill.stages.recounting import contradiction

    starts = np.fromfile(folder / "match_ranges.index", "<u8")
    ranges, rest = divmod((folder / "match_ranges").stat().st_size, 16)
    if rest or not len(starts) or int(starts[-1]) != ranges or bool((starts[1:] < starts[:-1]).any()):
        expected = f"{ranges:,} ranges, ascending starts of shards"
        raise contradiction(folder / "match_ranges.index", expected, starts[-3:].tolist())
    return Recount({"ranges": ranges})


STAGE = Stage(
    "match",
    version=3,
    after=("anchor", "suffix_array"),
    units_after=("anchor", "suffix_array"),
    group="find_ranges",
    unit_word="partition",
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    memory=lambda config: ("dedup.memory", int(config.dedup.memory)),
)
