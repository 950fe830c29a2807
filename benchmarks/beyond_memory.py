"""Claim: `dedup` of text five times the memory waits for the disk at most half as long again as it computes.

Corpora as in dedup_memory.py, each size in a memory control group of a fifth of its text (at least 1 GB, which two
workers take), page cache counted: wall seconds, CPU seconds, their ratio, and the seconds that each further GB takes.

    python -m benchmarks.beyond_memory CORPUS_FOLDER SCRATCH_FOLDER --gigabytes 2 5 10 20
"""

from __future__ import annotations

import argparse
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.dedup_memory import MEMORY, WORKERS, measure, write_corpus
from benchmarks.results import write_result

LEAST_BYTES, MINIMUM_BYTES, MOST = 1_000_000_000, 500, 1.5
SHOWN = ("text_gb", "limit_gb", "wall_seconds", "cpu_seconds", "wall_to_cpu", "wall_seconds_per_further_gb")


def row(scratch: Path, text_bytes: int) -> dict[str, Any]:
    """One size."""
    run = measure(scratch / "corpus", scratch, max(LEAST_BYTES, text_bytes // 5), MINIMUM_BYTES)
    return {
        "text_gb": round(text_bytes / 1e9, 2),
        "limit_gb": round(run["limit_bytes"] / 1e9, 2),
        "wall_seconds": run["seconds"],
        "cpu_seconds": run["cpu_seconds"],
        "wall_to_cpu": round(run["seconds"] / run["cpu_seconds"], 2),
        "major_faults": run["major_faults"],
        "load_of_the_machine": run["load_of_the_machine"],
        "stages": run["stages"],
    }


def main() -> int:
    """Measure, print the table, write the result; 1 if a size waits longer than claimed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[2, 5, 10])
    asked = parser.parse_args()
    rows, text_bytes = [], 0
    for gigabytes in sorted(asked.gigabytes):  # each corpus is the one before and more copies
        text_bytes = write_corpus(asked.corpus, asked.scratch / "corpus", gigabytes, text_bytes)
        rows.append(row(asked.scratch, text_bytes))
    for less, more in pairwise(rows):
        further = (more["wall_seconds"] - less["wall_seconds"]) / (more["text_gb"] - less["text_gb"])
        more["wall_seconds_per_further_gb"] = round(further, 1)
    print("| " + " | ".join(SHOWN) + " |\n|" + "---|" * len(SHOWN))
    for figures in rows:
        print("| " + " | ".join(str(figures.get(name, "")) for name in SHOWN) + " |")
    result: dict[str, object] = {"dedup_memory": MEMORY, "workers": WORKERS, "sizes": rows}
    print(write_result("beyond_memory", (__doc__ or "").split("\n\n", maxsplit=1)[0], result))
    shutil.rmtree(asked.scratch)
    return any(figures["wall_to_cpu"] > MOST for figures in rows)


if __name__ == "__main__":
    raise SystemExit(main())
