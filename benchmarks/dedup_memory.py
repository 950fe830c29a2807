"""Claims: `dedup` of text several times the memory, page cache counted, takes at most 1/0.6 of the time in memory.

The corpus is the sample again and again, under other ids, one word in a hundred changed in each copy. `corpusmill
dedup` runs in a memory control group (memory_group.py), first without a limit, then within it. Major faults show the
order of reads: mapped text that is read forward takes one for each stretch the kernel reads ahead, in any other order
one for each page of 4 KiB.

    python benchmarks/dedup_memory.py CORPUS_FOLDER SCRATCH_FOLDER --gigabytes 3.2 --limits 0 1 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import zstandard

from benchmarks.memory_group import forget_pages, within
from benchmarks.results import write_result

WORDS_TO_A_CHANGE = 100
WORKERS = 2
RANGE_STAGES = ("anchor", "shared", "context", "settle", "border", "match", "union")
MEMORY = "128MiB"
"""dedup.memory. By arithmetic, the sections of two partitions (125 MB each) and what two workers hold (250 MB each) fit
into 1 GB, so that all turns of match but the first read a section from the page cache."""


def write_corpus(sample: Path, folder: Path, gigabytes: float, written: int = 0) -> int:
    """Copies of the sample's files, until there are so many bytes of text, `written` of them already; returns them."""
    folder.mkdir(parents=True, exist_ok=bool(written))
    paths = sorted(sample.glob("*.jsonl.zst"))
    copy = len(list(folder.iterdir())) // len(paths)
    while written < gigabytes * 1e9:
        for path in paths:
            rng = random.Random(f"{copy} {path.name}")
            compressor = zstandard.ZstdCompressor(level=1)
            with (
                path.open("rb") as source,
                zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True) as lines,
                (folder / f"copy{copy:03d}_{path.name}").open("wb") as target,
                compressor.stream_writer(target) as sink,
            ):
                for line in lines.read().splitlines():
                    document = json.loads(line)
                    words = document["text"].split(" ")
                    if copy:
                        for at in range(rng.randrange(WORDS_TO_A_CHANGE), len(words), WORDS_TO_A_CHANGE):
                            words[at] += rng.choice("abcdefghijklmnop")
                    document |= {"id": f"{copy}-{document['id']}", "text": " ".join(words)}
                    written += len(document["text"].encode())
                    sink.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")
        copy += 1
    return written


def stages(work: Path) -> dict[str, Any]:
    """Of every stage: seconds of all its steps, the largest step's peak of memory, and bytes on disk."""
    figures: dict[str, Counter[str]] = {}
    for receipt in sorted(work.glob("*/*/*/receipt.json")):
        read = json.loads(receipt.read_bytes())
        own = figures.setdefault(read["stage"], Counter())
        own["seconds"] += read["seconds"]
        own["peak_rss_bytes"] = max(own["peak_rss_bytes"], read["peak_rss_bytes"])
        own["disk_bytes"] += sum(item["size_bytes"] for item in read["outputs"])
        own["steps"] += 1
    return {name: {key: round(value, 2) for key, value in own.items()} for name, own in figures.items()}


def measure(corpus: Path, scratch: Path, limit_bytes: int, minimum_bytes: int) -> dict[str, Any]:
    for name in ("work", "clean"):
        shutil.rmtree(scratch / name, ignore_errors=True)
    forget_pages()
    command = [sys.executable, "-m", "corpusmill.cli", "dedup", str(corpus), "--output", str(scratch / "clean")]
    command += ["--minimum-bytes", str(minimum_bytes), "--work-folder", str(scratch / "work")]
    figures = within(limit_bytes, [*command, "--workers", str(WORKERS), "--memory", MEMORY, "--shard-bytes", "32MiB"])
    with Path("/proc/loadavg").open() as load:
        return {**figures, "load_of_the_machine": load.read().split()[1], "stages": stages(scratch / "work")}


def ranges_seconds(figures: dict[str, Any]) -> float:
    """Seconds of all steps that find ranges."""
    return float(sum(figures["stages"][name]["seconds"] for name in RANGE_STAGES))


def scratch_share(figures: dict[str, Any]) -> float:
    """Bytes on disk beside the text shards and the result, per byte of text."""
    text_bytes = figures["stages"]["index"]["disk_bytes"]
    return round(sum(figures["stages"][name]["disk_bytes"] for name in RANGE_STAGES) / text_bytes, 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--gigabytes", type=float, default=3.2)
    parser.add_argument("--limits", type=float, nargs="+", default=[0, 1], help="GB; 0: none")
    parser.add_argument("--minimum-bytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1, help="how often each limit is measured, in turn")
    parser.add_argument("--name", default="dedup_memory")
    arguments = parser.parse_args()
    source = arguments.scratch / f"corpus{arguments.gigabytes:g}"
    if not source.exists():
        write_corpus(arguments.corpus, source, arguments.gigabytes)
    rounds = [
        [measure(source, arguments.scratch, int(limit * 1e9), arguments.minimum_bytes) for limit in arguments.limits]
        for _ in range(arguments.rounds)
    ]
    runs = rounds[-1]
    for figure in runs:
        figure["scratch_bytes_per_text_byte"] = scratch_share(figure)
    rates = [round(ranges_seconds(each[0]) / ranges_seconds(each[-1]), 3) for each in rounds]
    figures = {
        "dedup_memory": MEMORY,
        "workers": WORKERS,
        "runs": runs,
        "seconds_by_round": [[run["seconds"] for run in each] for each in rounds],
        "rate_of_ranges_to_that_of_the_first_limit": statistics.median(rates),
        "that_rate_by_round": rates,
    }
    print(json.dumps(figures, indent=1))
    print(write_result(arguments.name, "text of several times the memory: at most 1/0.6 of the time", figures))


if __name__ == "__main__":
    main()
