"""Claim: merging parts runs at 80 % of `cp` of the same bytes, in memory that does not grow with the documents.

Writes parts of short documents (so that the indexes weigh), 2.5 and 4 GB of them (the start of a process, told beside,
weighs less the more there is), and runs `cp` and `corpusmill merge` in turn on the same files, .bin and .idx. Both are
measured alike: as processes of their own from start to end, by the clock and by the CPU seconds, user and system, that
the kernel counted for them; the inputs are in the page cache, what was written before is on the device, nobody waits
for the device. The best of several rounds each. Memory: merges of three numbers of documents in a control group of
64 MiB, which counts the page cache (memory_group.py).
`python benchmarks/merge.py`
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import Process
from pathlib import Path

import numpy as np
from memory_group import forget_pages, within
from results import write_result

from corpusmill.export import megatron

PARTS = 8
DOCUMENT_TOKENS = 300
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class Spent:
    """What a process took from its start to its end."""

    seconds: float
    cpu_seconds: float


def write_parts(folder: Path, documents: int) -> list[Path]:
    """In a process of its own: this one stays small, and so quick to start others from."""
    writing = Process(target=_write_parts, args=(folder, documents))
    writing.start()
    writing.join()
    return [folder / f"p{number}" for number in range(PARTS)]


def _write_parts(folder: Path, documents: int) -> None:
    folder.mkdir()
    tokens = (np.arange(documents * DOCUMENT_TOKENS) % 50_000).astype(np.uint16)
    ends = np.arange(1, documents + 1, dtype=np.uint64) * np.uint64(DOCUMENT_TOKENS)
    dtype = megatron.token_dtype(50_257)
    for number in range(PARTS):
        batches = [(tokens, ends)]
        megatron.write_part(folder, f"p{number}", batches, dtype=dtype, eod_id=50_256, vocabulary_size=50_257)


def spent(command: list[str], out: Path) -> Spent:
    """Run a command that writes to the folder `out`, and remove what it wrote."""
    out.mkdir()
    os.sync()
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    assert status == 0, command
    shutil.rmtree(out)
    return Spent(seconds, used.ru_utime + used.ru_stime)


def merged(prefixes: list[Path], out: Path) -> Spent:
    return spent([sys.executable, "-m", "corpusmill.cli", *_arguments(prefixes, out)], out)


def copied(prefixes: list[Path], out: Path) -> Spent:
    return spent(["cp", *(f"{prefix}{suffix}" for prefix in prefixes for suffix in (".bin", ".idx")), str(out)], out)


def within_limit(prefixes: list[Path], out: Path) -> dict[str, object]:
    out.mkdir()
    forget_pages()
    taken = within(LIMIT_BYTES, [sys.executable, "-m", "corpusmill.cli", *_arguments(prefixes, out)])
    shutil.rmtree(out)
    return taken


def _arguments(prefixes: list[Path], out: Path) -> list[str]:
    return ["merge", *map(str, prefixes), "--output", str(out / "merged")]


def compared(large: list[Path], out: Path, rounds: int) -> dict[str, float]:
    """Both `rounds` times; who comes first takes turns, too."""
    ours, theirs = [], []
    for number in range(rounds):
        for of_cp in (number % 2 == 0, number % 2 == 1):
            (theirs if of_cp else ours).append((copied if of_cp else merged)(large, out))
    merge_seconds, cp_seconds = (min(item.seconds for item in side) for side in (ours, theirs))
    merge_cpu, cp_cpu = (min(item.cpu_seconds for item in side) for side in (ours, theirs))
    return {
        "merge_seconds": round(merge_seconds, 3),
        "cp_seconds": round(cp_seconds, 3),
        "merge_to_cp_speed": round(cp_seconds / merge_seconds, 3),
        "merge_cpu_seconds": round(merge_cpu, 3),
        "cp_cpu_seconds": round(cp_cpu, 3),
        "merge_to_cp_speed_by_cpu": round(cp_cpu / merge_cpu, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=4)
    rounds = parser.parse_args().rounds
    root = Path(tempfile.mkdtemp(prefix="merge-"))
    tiny, out = write_parts(root / "tiny", 10), root / "out"
    start = min(merged(tiny, out).cpu_seconds for _ in range(3))
    figures: dict[str, object] = {"cpu_seconds_of_merging_80_documents": round(start, 3)}
    limited = {}
    for documents in (80_000, 500_000, 800_000):
        parts = write_parts(root / "parts", documents)
        if documents > 80_000:
            copied_bytes = sum(path.stat().st_size for path in (root / "parts").iterdir())
            figures[f"{copied_bytes:,} bytes"] = compared(parts, out, rounds)
        limited[f"{PARTS * documents:,} documents"] = within_limit(parts, out)
        shutil.rmtree(root / "parts")
    figures["within_a_limit"] = limited
    shutil.rmtree(root)
    print(
        write_result(
            "merge", "merge at 80 % of cp, within 64 MiB, page cache counted, for any number of documents", figures
        )
    )


if __name__ == "__main__":
    main()
