"""Claims: a build of one document of 3 kB takes at most 2 s and 3 s of CPU by command, `corpusmill dedup` of it 1 s.

Modules are compiled and kernels cached: the first of the rounds, which compiles what is missing, does not count, and of
the others the least does. Of the CPU that of the command and of all processes that it waited for.

    env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m benchmarks.small_job
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.results import write_result

ROUNDS = 7
LIMITS = {"build": (2.0, 3.0), "dedup": (1.0, 1.0)}  # seconds, CPU seconds


def configuration(root: Path) -> dict[str, Any]:
    """Repeats are removed; random order, four formats."""
    return {
        "name": "small",
        "source": {"paths": [str(root / "corpus")]},
        "dedup": {"mode": "remove", "minimum_bytes": 500},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 7},
        "exports": {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }


def least(command: list[str], clean: Callable[[], None]) -> tuple[float, float]:
    """(seconds, CPU seconds) of the quickest round."""
    rounds = []
    for _ in range(ROUNDS + 1):
        clean()
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "corpusmill.cli", *command], check=True, stdout=2)
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        rounds.append((seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return round(min(wall for wall, _ in rounds[1:]), 2), round(min(cpu for _, cpu in rounds[1:]), 2)


def main() -> int:
    """Measure and write the result; 1 if a limit is passed."""
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        raise SystemExit("modules would be compiled in every round: env -u PYTHONDONTWRITEBYTECODE")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "corpus").mkdir()
        document = {"id": "1", "text": "".join(f"Sentence {number} of a document of 3 kB. " for number in range(75))}
        (root / "corpus" / "one.jsonl").write_text(json.dumps(document) + "\n")
        (root / "small.yaml").write_text(yaml.safe_dump(configuration(root)))

        def clean() -> None:
            for name in ("work", "outputs", "clean"):
                shutil.rmtree(root / name, ignore_errors=True)

        dedup = ["dedup", str(root / "corpus" / "one.jsonl"), "--output", str(root / "clean"), "--minimum-bytes", "500"]
        measured = {
            "build": least(["build", str(root / "small.yaml")], clean),
            "dedup": least([*dedup, "--mode", "remove"], clean),
        }
    figures = {name: {"seconds": wall, "cpu_seconds": cpu} for name, (wall, cpu) in measured.items()}
    print(json.dumps(figures, indent=1))
    claim = "a build of one document of 3 kB in 2 s and 3 s of CPU, dedup of it in 1 s, modules compiled"
    write_result("small_job", claim, figures)
    return any(got > most for name in LIMITS for got, most in zip(measured[name], LIMITS[name], strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
