"""Disk that a build with everything on takes at its worst moment, with `reclaim: keep` and `eager`, and as stated.

The text is 400 MB in .jsonl.zst (benchmarks/numbered.py makes it), the configuration four formats, deduplicated
documents and random order. A thread adds up the blocks of every file below the work folder and the destination all the
time (a file of two names counts once). `corpusmill estimate` is asked before, with its usual sample.

    .venv/bin/python -m benchmarks.disk
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from typing import Any

from benchmarks.numbered import write_numbered
from benchmarks.results import write_result
from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.room import moments
from corpusmill.config import DatasetConfig, check_config

MEGABYTES = 400
MOST_PER_TEXT_BYTE = 6.5  # with reclaiming
CLOSE = 0.10  # what is stated is at most so far from what is measured


def configured(root: Path, reclaim: str, shard_bytes: str = "8MB") -> DatasetConfig:
    """Everything on."""
    values: dict[str, Any] = {
        "name": "disk",
        "source": {"paths": [str(root / "corpus")], "shard_bytes": shard_bytes},
        "dedup": {"mode": "remove", "minimum_bytes": 500},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 7},
        "exports": {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
        "reclaim": reclaim,
    }
    return check_config(values, where="benchmark")


def disk_bytes(*roots: Path) -> int:
    """What everything below some folders takes on disk; a file of several names counts once."""
    blocks: dict[int, int] = {}
    for parent, _, names in chain.from_iterable(map(os.walk, roots)):
        for name in names:
            try:
                status = os.lstat(f"{parent}/{name}")
            except FileNotFoundError:
                continue
            blocks[status.st_ino] = status.st_blocks
    return 512 * sum(blocks.values())


@contextmanager
def sampled_disk(*roots: Path, every_seconds: float = 0.02) -> Iterator[list[int]]:
    """What the folders took on disk together, looked at again and again while the body runs."""
    seen, done = [0], Event()

    def look() -> None:
        while not done.wait(every_seconds):
            seen.append(disk_bytes(*roots))

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def measure(root: Path, reclaim: str) -> dict[str, Any]:
    """Build once; bytes per byte of text at the worst moment and at the end, and the stated peak by the measured."""
    config = configured(root, reclaim, shard_bytes="32MB")
    stated = max(map(sum, stated_moments := moments(estimate_dataset(config).held)[reclaim]))
    with sampled_disk(root / "work", root / "outputs") as seen:
        build = open_build(build_dataset(config))
    text_bytes = build.total("index", "text_bytes_out")
    end = disk_bytes(root / "work", root / "outputs")
    for folder in ("work", "outputs"):
        shutil.rmtree(root / folder)
    return {
        "text_bytes": text_bytes,
        "peak_per_text_byte": round(max(seen) / text_bytes, 2),
        "end_per_text_byte": round(end / text_bytes, 2),
        "stated_by_measured": round(stated / max(seen), 3),
        "stated_moments": stated_moments,
        "samples": len(seen),
    }


def main() -> int:
    """Measure both settings; 1 if a reach is missed."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_numbered(root / "corpus", MEGABYTES, MEGABYTES // 32, compressed=True)
        figures: dict[str, Any] = {reclaim: measure(root, reclaim) for reclaim in ("keep", "eager")}
    claim = f"with reclaim: eager, a build with everything on takes at most {MOST_PER_TEXT_BYTE} bytes per byte of text"
    claim += f", and estimate states the peak within {CLOSE:.0%}"
    print(write_result("disk", claim, figures).read_text())
    close = all(abs(figure["stated_by_measured"] - 1) <= CLOSE for figure in figures.values())
    return 0 if close and figures["eager"]["peak_per_text_byte"] <= MOST_PER_TEXT_BYTE else 1


if __name__ == "__main__":
    sys.exit(main())
