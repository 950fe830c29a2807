"""Thousands of shards: what planning, opening a task and an unchanged build cost beside the work itself.

Every file is a shard of its own: texts of random words, one in ten of them a copy from another shard. The build has
everything on (removal of duplicates, random order, four formats). A task is opened in a process of its own, with what
forked workers have in memory: plan, units of the task, identity of its first step; the longest of some tasks of every
stage counts.
Of every command the seconds and the CPU seconds count, the latter of the command's own process; of a task CPU seconds.

    .venv/bin/python -m benchmarks.many_shards --shards 10000 --planned 10000
    .venv/bin/python -m benchmarks.many_shards --built /data/many     what an earlier build left there, with its corpus

`--planned`: of so many shards that are not built, what a plan and a task of the first stage cost.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
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
LIMITS = {"plan_cpu_seconds": 10.0, "open_task_seconds": 0.05, "unchanged_build_cpu_seconds": 60.0}  # of 10,000 shards
TASKS_OPENED = 3  # of each stage

OPEN = """
import gc, sys, time
import corpusmill.builds.loaded, corpusmill.builds.local, corpusmill.builds.preflight
import corpusmill.export.nanoset, corpusmill.export.numpy_shards
from pathlib import Path
from corpusmill.builds.processes import collect_seldom
from corpusmill.builds.plan import require_same_code
from corpusmill.builds.graph import open_build
import corpusmill.export.stages.layout
stage, task = sys.argv[2:]
collect_seldom()  # as every command does
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


def timed(*arguments: str) -> tuple[float, float]:
    """(seconds, CPU seconds) of a command."""
    began, cpu_before = time.perf_counter(), cpu_of_children()
    done = subprocess.run(["corpusmill", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"corpusmill {' '.join(arguments)}: {done.stderr[-2000:]}")
    return round(time.perf_counter() - began, 1), round(cpu_of_children() - cpu_before, 1)


def cpu_of_children() -> float:
    """CPU seconds of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def receipt_of_plan(root: Path) -> Path:
    """The receipt of the newest plan below a folder."""
    receipts = sorted((root / "work" / "many" / "plan").glob("*/receipt.json"))
    return max(receipts, key=lambda path: path.stat().st_mtime)


def open_tasks(plan_receipt: Path, stages: tuple[str, ...] = ()) -> dict[str, float]:
    """By stage that has tasks, the longest that one of the first takes to open."""
    from corpusmill.builds.graph import open_build

    build = open_build(plan_receipt)
    longest = {}
    for stage in stages or build.graph.names:
        tasks = build.tasks(stage)
        command = [sys.executable, "-c", OPEN, str(plan_receipt), stage]
        seconds = [
            float(subprocess.run([*command, task], capture_output=True, text=True, check=True).stdout)
            for task in tasks[:TASKS_OPENED]
        ]
        if seconds:
            longest[stage] = round(max(seconds), 3)
    return longest


def measure(root: Path) -> dict[str, Any]:
    """What a dataset that is built costs to plan, to build again and to open."""
    configuration = str(root / "many.yaml")
    timed("plan", configuration)  # which rolls up what the build had no need to
    plan, unchanged = timed("plan", configuration), timed("build", configuration)
    opened = open_tasks(receipt_of_plan(root))
    return {
        "plan_seconds": plan[0],
        "plan_cpu_seconds": plan[1],
        "unchanged_build_seconds": unchanged[0],
        "unchanged_build_cpu_seconds": unchanged[1],
        "open_task_seconds": max(opened.values()),
        "open_task_seconds_by_stage": opened,
    }


def measure_planned(root: Path, shards: int) -> dict[str, Any]:
    """What a dataset that is planned and not built costs to plan, and its first tasks to open."""
    write_corpus(root / "corpus", shards)
    seconds, cpu_seconds = timed("plan", str(write_configuration(root)))
    opened = open_tasks(receipt_of_plan(root), ("download",))
    return {"shards": shards, "plan_seconds": seconds, "plan_cpu_seconds": cpu_seconds, "open_task_seconds": opened}


def main() -> int:
    """Measure and write the result; 1 if a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--planned", type=int, default=0)
    parser.add_argument("--built", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
        root: Path = asked.built or Path(scratch, "built")
        if not asked.built:
            write_corpus(root / "corpus", asked.shards)
            configuration = str(write_configuration(root))
            figures["plan_of_a_new_dataset_seconds"], _ = timed("plan", configuration)
            figures["build_seconds"], _ = timed("build", configuration)
        shards = sum(1 for _ in (root / "corpus").iterdir())
        figures = {"shards": shards, **figures, **measure(root)}
        if asked.planned:
            figures["planned_alone"] = measure_planned(Path(scratch, "planned"), asked.planned)
    print(json.dumps(figures, indent=1))
    write_result("many_shards", f"{shards:,} shards of 100 kB: plan, an unchanged build, a task opened", figures)
    return any(figures[name] > limit for name, limit in LIMITS.items())


if __name__ == "__main__":
    raise SystemExit(main())
