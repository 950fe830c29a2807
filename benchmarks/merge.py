"""Claim: merging parts runs at 80 % of `cp` of the same bytes, in memory that does not grow with the documents.

Writes parts of short documents (so that the indexes weigh), then in turn copies them with cp and merges them; the best
of several rounds each, in seconds of CPU (user and system: the copying is the kernel's) and of the clock, which a busy
machine decides. Peak memory is that of a process of its own, for a number of documents and for ten times as many.
`python benchmarks/merge.py`
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from results import write_result

from pipeline.export import megatron

CODE = """
import json, sys, time
from pathlib import Path
from pipeline.export import merge
append, copying = merge._append, []
def timed(data, path):
    began = time.process_time()
    append(data, path)
    copying.append(time.process_time() - began)
merge._append = timed
began, cpu = time.perf_counter(), time.process_time()
merge.merge_parts([Path(one) for one in sys.argv[2:]], Path(sys.argv[1]))
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
(peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
print(json.dumps([seconds, cpu, int(peak.split()[1]) * 1024, sum(copying)]))
"""


def write_parts(folder: Path, parts: int, documents: int, document_tokens: int) -> list[Path]:
    tokens = (np.arange(documents * document_tokens) % 50_000).astype(np.uint16)
    ends = np.arange(1, documents + 1, dtype=np.uint64) * np.uint64(document_tokens)
    for number in range(parts):
        megatron.write_part(
            folder,
            f"p{number}",
            [(tokens, ends)],
            dtype=megatron.token_dtype(50_257),
            eod_id=50_256,
            vocabulary_size=50_257,
        )
    return [folder / f"p{number}" for number in range(parts)]


def merged(folder: Path, prefixes: list[Path]) -> tuple[float, float, int, float]:
    """(seconds, seconds of CPU, peak bytes, seconds of CPU in which tokens were copied) of one merge."""
    out = folder / "out"
    out.mkdir()
    command = [sys.executable, "-c", CODE, str(out / "merged"), *map(str, prefixes)]
    seconds, cpu, peak_bytes, copying = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    shutil.rmtree(out)
    return seconds, cpu, peak_bytes, copying


def copied(folder: Path, prefixes: list[Path]) -> tuple[float, float]:
    """(seconds, seconds of CPU) of cp, its start included."""
    out = folder / "out"
    out.mkdir()
    files = [f"{prefix}{suffix}" for prefix in prefixes for suffix in (".bin", ".idx")]
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["cp", *files, str(out)], check=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(out)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one_round(folder: Path, prefixes: list[Path], *, cp_first: bool) -> tuple[tuple[float, ...], tuple[float, float]]:
    """Both once; who comes second finds fewer free pages, so they take turns."""
    if cp_first:
        by_cp = copied(folder, prefixes)
        return merged(folder, prefixes), by_cp
    return merged(folder, prefixes), copied(folder, prefixes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    root = Path(tempfile.mkdtemp(prefix="merge-"))
    large = write_parts(root, 8, 200_000, 300)
    merged_bytes = sum(path.stat().st_size for path in root.iterdir())
    timed = [one_round(root, large, cp_first=number % 2 == 1) for number in range(rounds)]
    (root / "small").mkdir()
    small = write_parts(root / "small", 8, 20_000, 300)
    peaks = {"160,000 documents": merged(root, small)[2], "1,600,000 documents": merged(root, large)[2]}
    shutil.rmtree(root)
    merge_seconds, cp_seconds = (min(one[0] for one in rows) for rows in zip(*timed, strict=True))
    merge_cpu, cp_cpu = (min(one[1] for one in rows) for rows in zip(*timed, strict=True))
    figures = {
        "bytes": merged_bytes,
        "merge_seconds": round(merge_seconds, 3),
        "cp_seconds": round(cp_seconds, 3),
        "merge_to_cp_speed": round(cp_seconds / merge_seconds, 3),
        "merge_cpu_seconds": round(merge_cpu, 3),
        "merge_cpu_seconds_copying_tokens": round(min(ours[3] for ours, _ in timed), 3),
        "cp_cpu_seconds": round(cp_cpu, 3),
        "merge_to_cp_speed_by_cpu": round(cp_cpu / merge_cpu, 3),
        "peak_rss_bytes": peaks,
    }
    print(write_result("merge", "merge at 80 % of cp, memory flat in the number of documents", figures))


if __name__ == "__main__":
    main()
