"""Thousands of shards: what planning, opening a task and an unchanged build cost beside the work itself.

Every file is a shard of its own: texts of random words, one in ten of them a copy from another shard. The build has
everything on (removal of duplicates, random order, four formats). A task is opened in a process of its own, with its
modules loaded: plan, units of the task, identity of its first step; the longest of some tasks of every stage counts.

    .venv/bin/python -m benchmarks.many_shards --shards 10000
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.results import write_result

SHARD_BYTES = 100_000
DOCUMENT_WORDS = 600
LIMITS = {"plan_seconds": 10.0, "open_task_seconds": 0.05, "unchanged_build_seconds": 60.0}  # of 10,000 shards
TASKS_OPENED = 3  # of each stage

OPEN = """
import gc, sys, time
import corpusmill.builds.local, corpusmill.builds.preflight, corpusmill.export.nanoset, corpusmill.export.numpy_shards
from pathlib import Path
from corpusmill.cli import GARBAGE_THRESHOLD
from corpusmill.builds.plan import require_same_code
from corpusmill.stages.graph import open_build
import corpusmill.stages.layout
stage, task = sys.argv[2:]
gc.set_threshold(GARBAGE_THRESHOLD)  # as every command does
began = time.process_time()
require_same_code(Path(sys.argv[1]))
build = open_build(sys.argv[1])
unit = build.units_of_task(stage, task)[0]
build.step(stage, unit)
print(time.process_time() - began)
"""


def write_corpus(folder: Path, shards: int) -> None:
    """A file of about SHARD_BYTES for each shard."""
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshrdlucmfw", k=draw.randint(2, 9))) for _ in range(20_000)]
    copied = [" ".join(draw.choices(words, k=DOCUMENT_WORDS)) for _ in range(50)]
    folder.mkdir(parents=True)
    for shard in range(shards):
        lines, size_bytes = [], 0
        while size_bytes < SHARD_BYTES:
            fresh = " ".join(draw.choices(words, k=DOCUMENT_WORDS))
            text = draw.choice(copied) if draw.random() < 0.1 else fresh
            lines.append(json.dumps({"id": f"{shard}-{len(lines)}", "text": text}) + "\n")
            size_bytes += len(lines[-1])
        (folder / f"{shard:05d}.jsonl").write_text("".join(lines))


def write_configuration(root: Path) -> Path:
    """Everything on; a shard for each file."""
    path = root / "many.yaml"
    values = {
        "name": "many",
        "source": {"paths": [str(root / "corpus")], "shard_bytes": SHARD_BYTES},
        "dedup": {"mode": "remove", "minimum_bytes": 500},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 7},
        "exports": {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
        "reclaim": "eager",
    }
    path.write_text(yaml.safe_dump(values))
    return path


def timed(*arguments: str) -> float:
    """Seconds of a command."""
    began = time.perf_counter()
    done = subprocess.run(["corpusmill", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"corpusmill {' '.join(arguments)}: {done.stderr[-2000:]}")
    return time.perf_counter() - began


def open_tasks(plan_receipt: Path) -> dict[str, float]:
    """By stage, the longest that one of its first tasks takes to open."""
    from corpusmill.stages.graph import open_build

    build = open_build(plan_receipt)
    longest = {}
    for stage in build.graph.names:
        tasks = build.tasks(stage)
        command = [sys.executable, "-c", OPEN, str(plan_receipt), stage]
        seconds = [
            float(subprocess.run([*command, task], capture_output=True, text=True, check=True).stdout)
            for task in tasks[:TASKS_OPENED]
        ]
        longest[stage] = max(seconds, default=0.0)
    return longest


def measure(root: Path, shards: int) -> dict[str, Any]:
    """Build once, then again, and look."""
    write_corpus(root / "corpus", shards)
    configuration = str(write_configuration(root))
    plan_new = timed("plan", configuration)
    build = timed("build", configuration)
    plan_seconds = timed("plan", configuration)
    unchanged = timed("build", configuration)
    opened = open_tasks(next((root / "work" / "many" / "plan").glob("*/receipt.json")))
    return {
        "shards": shards,
        "plan_of_a_new_dataset_seconds": round(plan_new, 1),
        "build_seconds": round(build, 1),
        "plan_seconds": round(plan_seconds, 1),
        "unchanged_build_seconds": round(unchanged, 1),
        "open_task_seconds": round(max(opened.values()), 3),
        "open_task_seconds_by_stage": {stage: round(seconds, 3) for stage, seconds in opened.items()},
    }


def main() -> int:
    """Measure and write the result; 1 if a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(dir=asked.folder))
    try:
        figures = measure(root, asked.shards)
    finally:
        shutil.rmtree(root)
    print(json.dumps(figures, indent=1))
    claim = f"{asked.shards:,} shards of 100 kB: plan, an unchanged build, a task opened"
    write_result(f"many_shards_{asked.shards}", claim, figures)
    return any(figures[name] > limit for name, limit in LIMITS.items())


if __name__ == "__main__":
    raise SystemExit(main())
