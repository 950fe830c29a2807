"""Claims: ranges of 0.5 to 10 GB of text in linear time (MB/s at least 0.8 of the smallest), within 1 GiB of memory.

The corpora are copies of the sample's text shards, each copy changed in a letter every so many bytes, except for every
fifth document, which is repeated as it is. With a change every 97 bytes, changed copies share no k-gram (166 bytes), as
different documents do not; with one every 397 bytes, a k-gram has a copy in every copy of the sample, each in other
surroundings, which is as crowded as groups of anchors get: the number of near-duplicates grows with the corpus.

Each size runs in a process and a memory control group of its own, which counts the page cache (memory_group.py). All
tasks of a size share that process, one after another.
`python benchmarks/dedup_scale.py CORPUS_FOLDER SCRATCH_FOLDER [--gigabytes 0.5 2 10]`
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from dedup_speed import text_shards
from dedup_steps import covered, find_ranges
from memory_group import forget_pages, within
from results import write_result

from corpusmill.dedup.stages.partitions import partitions_for

MINIMUM_BYTES = 500
MEMORY_BYTES = 1 << 30
MATCH_BYTES = 3 << 28  # dedup.memory: what the interpreter and its libraries take is not counted in it
STEPS_BYTES = (97, 397)  # from one changed letter to the next; primes, so that no layout of the text agrees with them


def write_copy(texts: list[np.ndarray], offsets: list[np.ndarray], number: int, step: int, folder: Path) -> None:
    """The sample as one text shard, changed for copy `number`; copy 0 is the sample itself."""
    text = np.concatenate(texts)
    starts = np.concatenate([own + sum(map(len, texts[:i])) for i, own in enumerate(offsets)]).astype(np.uint64)
    places = np.arange(1 + number * 131 % step, len(text), step)
    document = np.searchsorted(starts, places.astype(np.uint64), side="right")
    letter = (text[places] >= ord("a")) & (text[places] <= ord("z")) & ((document + number) % 5 != 0)
    if number:
        places = places[letter]
        text[places] = ord("a") + (text[places] - ord("a") + 1 + number % 25) % 26
    folder.mkdir(parents=True)
    (folder / "tokenized").write_bytes(text.data)
    (folder / "offset").write_bytes(starts.data)


def run(corpus: Path, copies: int) -> dict[str, Any]:
    """Everything from text shards to remove_ranges; what it cost."""
    texts = [corpus / str(number) for number in range(copies)]
    text_bytes = sum((text / "tokenized").stat().st_size for text in texts)
    done = find_ranges(
        texts, MINIMUM_BYTES, corpus / "scratch", lambda anchors, largest: partitions_for(anchors, largest, MATCH_BYTES)
    )
    return {
        "text_bytes": text_bytes,
        "shards": copies,
        "partitions": done.partitions,
        "removed_share": round(covered(done.ranges) / text_bytes, 4),
        "cpu_seconds_of_steps": done.cpu_seconds,
        "counts": done.counts,
        "megabytes_per_cpu_second": round(text_bytes / 1e6 / done.seconds, 1),
        "scratch_bytes_per_text_byte": round(done.scratch_bytes / text_bytes, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.5, 2, 10])
    parser.add_argument("--copies", type=int)
    arguments = parser.parse_args()
    if arguments.copies:
        print(json.dumps(run(arguments.scratch / "copies", arguments.copies)))
        return
    arguments.scratch.mkdir(parents=True)
    (arguments.scratch / "sample").mkdir()
    sample = text_shards(arguments.corpus, arguments.scratch / "sample")
    texts, offsets = [shard.text for shard in sample], [shard.offsets for shard in sample]
    sample_bytes = sum(map(len, texts))
    result = {
        f"a letter changed every {step} bytes": _series(arguments, texts, offsets, sample_bytes, step)
        for step in STEPS_BYTES
    }
    shutil.rmtree(arguments.scratch)
    print(write_result("dedup_scale", "linear from 0.5 to 10 GB, within 1 GiB of memory, page cache counted", result))


def _series(
    arguments: argparse.Namespace, texts: list[np.ndarray], offsets: list[np.ndarray], sample_bytes: int, step: int
) -> dict[str, Any]:
    copied = arguments.scratch / "copies"
    figures: list[dict[str, Any]] = []
    done = 0
    for gigabytes in sorted(arguments.gigabytes):
        copies = max(1, round(gigabytes * 1e9 / sample_bytes))
        for number in range(done, copies):
            write_copy(texts, offsets, number, step, copied / str(number))
        done = copies
        command = [sys.executable, __file__, str(arguments.corpus), str(arguments.scratch), "--copies", str(copies)]
        printed = arguments.scratch / "figures.json"
        for _ in range(2 if copies < 10 else 1):  # the first compiles
            forget_pages()
            group = within(MEMORY_BYTES, command, printed)
            shutil.rmtree(copied / "scratch")
        figures.append(json.loads(printed.read_bytes()) | group)
        print(figures[-1], flush=True)
    shutil.rmtree(copied)
    slowest = min(figure["megabytes_per_cpu_second"] for figure in figures) / figures[0]["megabytes_per_cpu_second"]
    return {"sizes": figures, "slowest_to_smallest": round(slowest, 3)}


if __name__ == "__main__":
    main()
