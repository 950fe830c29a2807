"""Claim: ranges of 20 GB of text within 4 GB of memory, page cache counted; sampled bytes are removed by definition.

The corpus is that of dedup_scale.py. All steps run in a process within a memory control group. Then bytes are drawn,
half of them beside an end of a range: one is to be removed if a window of L bytes that covers it has occurred earlier.
All windows of all drawn bytes are looked for in the whole text, with a rolling hash of this file's own.

    python benchmarks/dedup_large.py CORPUS_FOLDER SCRATCH_FOLDER [--gigabytes 20 --limit 4 --changed-every 397]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from dedup_scale import MATCH_BYTES, MINIMUM_BYTES, STEPS_BYTES, write_copy
from dedup_speed import text_shards
from dedup_steps import find_ranges
from memory_group import forget_pages, within
from numba import njit
from numpy.typing import NDArray
from results import write_result

from corpusmill.dedup.stages.partitions import partitions_for

DRAWN = 200
BASE = np.uint64(0x9E3779B97F4A7C15)
BITS = np.uint64(64 - 22)  # of a table of wanted hashes: 512 KiB, a bit each, so that a core's own cache holds it
SECOND = np.uint64(0xD6E8FEB86659FD93)  # the second table's bits are the high ones of hash x this


def find(copies: Path, shards: int) -> None:
    """Find the ranges of every shard into `copies`/found.json and `copies`/ranges; what it cost."""
    texts = [copies / str(number) for number in range(shards)]
    done = find_ranges(
        texts,
        MINIMUM_BYTES,
        copies / "scratch",
        lambda anchors, largest: partitions_for(anchors, largest, MATCH_BYTES),
    )
    np.savez(copies / "ranges.npz", *done.ranges)
    figures = {"cpu_seconds": done.cpu_seconds, "counts": done.counts, "scratch_bytes": done.scratch_bytes}
    (copies / "found.json").write_text(json.dumps({**figures, "partitions": done.partitions}))


@njit(cache=True)
def window_hash(text: Any) -> Any:
    value = np.uint64(0)
    for byte in text:
        value = value * BASE + np.uint64(byte) + np.uint64(1)
    return value


@njit(cache=True)
def is_set(table: Any, value: Any) -> Any:
    bit = value >> BITS
    return (table[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1) != np.uint64(0)


@njit(cache=True)
def scan(text: Any, length: Any, top: Any, tables: Any, hits: Any) -> Any:
    """Positions of windows without a separator whose hash may be wanted, into `hits`; how many there are."""
    value, run, count = np.uint64(0), 0, 0
    for at in range(len(text)):
        if text[at] == 0xFF:
            value, run = np.uint64(0), 0
            continue
        if run == length:
            value -= (np.uint64(text[at - length]) + np.uint64(1)) * top
        else:
            run += 1
        value = value * BASE + np.uint64(text[at]) + np.uint64(1)
        if run == length and is_set(tables[0], value) and is_set(tables[1], (value ^ value >> np.uint64(32)) * SECOND):
            hits[count] = at + 1 - length
            count += 1
    return count


def is_covered(ranges: NDArray[np.uint64], position: int) -> bool:
    row = int(np.searchsorted(ranges[:, 0], position, side="right")) - 1
    return row >= 0 and position < int(ranges[row, 1])


def draw(shards: list[NDArray[np.uint8]], ranges: list[NDArray[np.uint64]]) -> list[tuple[int, int]]:
    """(shard, position) of bytes of documents."""
    rng = random.Random(1)
    drawn: list[tuple[int, int]] = []
    while len(drawn) < DRAWN:
        shard = rng.randrange(len(shards))
        position = rng.randrange(len(shards[shard]))
        if len(drawn) % 2 and len(ranges[shard]):
            edge = int(ranges[shard][rng.randrange(len(ranges[shard])), rng.randrange(2)])
            position = min(max(0, edge + rng.choice([-1, 0])), len(shards[shard]) - 1)
        if shards[shard][position] != 0xFF:
            drawn.append((shard, position))
    return drawn


def windows_over(text: NDArray[np.uint8], position: int) -> range:
    """Starts of the windows of one document that cover a byte."""
    around = text[max(0, position - MINIMUM_BYTES + 1) : position + MINIMUM_BYTES]
    at = min(position, MINIMUM_BYTES - 1)
    separators = np.flatnonzero(around == 0xFF)
    before, after = separators[separators < at], separators[separators > at]
    first = int(before[-1]) + 1 if len(before) else 0
    end = int(after[0]) if len(after) else len(around)
    origin = position - at
    return range(origin + first, origin + min(at, end - MINIMUM_BYTES) + 1)


def check(copies: Path, shards: int) -> dict[str, int]:
    """Compare drawn bytes with the definition; AssertionError for the first that differs."""
    texts = [np.memmap(copies / str(number) / "tokenized", "u1", "r").view(np.ndarray) for number in range(shards)]
    saved = np.load(copies / "ranges.npz")
    ranges = [saved[f"arr_{number}"] for number in range(shards)]
    drawn = draw(texts, ranges)
    wanted = [[(shard, start) for start in windows_over(texts[shard], position)] for shard, position in drawn]
    content = {place: texts[place[0]][place[1] : place[1] + MINIMUM_BYTES].tobytes() for own in wanted for place in own}
    first: dict[bytes, tuple[int, int] | None] = dict.fromkeys(content.values())
    tables = np.zeros((2, 1 << 16), np.uint64)
    for window in first:
        value = int(window_hash(np.frombuffer(window, np.uint8)))
        second = (value ^ value >> 32) * int(SECOND) % (1 << 64)
        for table, bit in zip(tables, (value >> int(BITS), second >> int(BITS)), strict=True):
            table[bit >> 6] |= np.uint64(1 << (bit & 63))
    top = np.uint64(pow(int(BASE), MINIMUM_BYTES - 1, 1 << 64))
    for shard, text in enumerate(texts):
        hits = np.empty(len(text), np.int64)
        print(f"checking shard {shard}", file=sys.stderr)
        for start in hits[: scan(text, MINIMUM_BYTES, top, tables, hits)].tolist():
            window = text[start : start + MINIMUM_BYTES].tobytes()
            if window in first and first[window] is None:
                first[window] = (shard, start)
    removed = 0
    for (shard, position), own in zip(drawn, wanted, strict=True):
        expected = any(first[content[place]] != place for place in own)
        assert is_covered(ranges[shard], position) == expected, (shard, position, expected)
        removed += expected
    return {"bytes_drawn": len(drawn), "of_these_removed": removed, "windows_looked_for": len(first)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--limit", type=float, default=4, help="GB")
    parser.add_argument("--changed-every", type=int, default=STEPS_BYTES[1])
    parser.add_argument("--find", type=int, help="the number of shards: only find the ranges, in this process")
    parser.add_argument("--check", action="store_true", help="check ranges that an interrupted run has found")
    arguments = parser.parse_args()
    copies = arguments.scratch / "copies"
    if arguments.find:
        find(copies, arguments.find)
        return
    if not arguments.check:
        measure(arguments, copies)
    report(arguments, copies)


def measure(arguments: argparse.Namespace, copies: Path) -> None:
    """Write the corpus and find its ranges within the limit; what that took, into `copies`/taken.json."""
    (arguments.scratch / "sample").mkdir(parents=True)
    sample = text_shards(arguments.corpus, arguments.scratch / "sample")
    texts, offsets = [shard.text for shard in sample], [shard.offsets for shard in sample]
    shards = max(1, round(arguments.gigabytes * 1e9 / sum(map(len, texts))))
    for number in range(shards):
        write_copy(texts, offsets, number, arguments.changed_every, copies / str(number))
    forget_pages()
    command = [sys.executable, __file__, *sys.argv[1:], "--find", str(shards)]
    taken = within(int(arguments.limit * 1e9), command)
    (copies / "taken.json").write_text(json.dumps(taken))


def report(arguments: argparse.Namespace, copies: Path) -> None:
    taken = json.loads((copies / "taken.json").read_text())
    shards = sum(path.name.isdigit() for path in copies.iterdir())
    actual = json.loads((copies / "found.json").read_text())
    steps = actual.pop("cpu_seconds")
    text_bytes = sum((copies / str(number) / "tokenized").stat().st_size for number in range(shards))
    figures = {
        "text_bytes": text_bytes,
        "shards": shards,
        "a_letter_changed_every": arguments.changed_every,
        **taken,
        "megabytes_per_cpu_second": round(text_bytes / 1e6 / sum(steps.values()), 1),
        "scratch_bytes_per_text_byte": round(actual.pop("scratch_bytes") / text_bytes, 3),
        "cpu_seconds_of_steps": steps,
        **actual,
        "checked": check(copies, shards),
    }
    print(json.dumps(figures, indent=1))
    shutil.rmtree(arguments.scratch)
    print(write_result("dedup_large", (__doc__ or "").split("\n\n", maxsplit=1)[0], figures))


if __name__ == "__main__":
    main()
