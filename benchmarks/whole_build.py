"""Claims: a whole build takes at most 1.25 times the CPU of its unavoidable parts (parts.py), 5 s of it in the kernel.

Everything on: deduplication, writeback, four formats, a verified delivery to a folder. The corpus is the sample three
times under other ids, one word in a hundred changed. CPU of all processes of the build (cgroup v1 cpuacct), compiled
modules; medians of rounds of a build with one worker, one with two and the parts, after a round that is not counted.

Before each run, memory is allocated, written and freed: a virtual machine gets memory from its host when it is first
touched, which added 6 to 9 s to a build's 17 s of CPU. Nothing is deleted between rounds: ext4 does not reuse the inode
of a file deleted in the last minute, and skips them one by one.

    python -m benchmarks.whole_build CORPUS_FOLDER SCRATCH_FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from benchmarks.dedup_memory import write_corpus
from benchmarks.memory_group import CPU_GROUPS
from benchmarks.parts import parts
from benchmarks.results import write_result

GIGABYTES = 0.4
WORKERS = (1, 2)
ROUNDS = 3
TOUCHED_BYTES = 8 << 30  # more than a build writes and holds


def touch_memory() -> None:
    os.sync()
    subprocess.run([sys.executable, "-c", f"bytearray(b'1') * {TOUCHED_BYTES}"], check=True)


def configuration(corpus: Path, scratch: Path) -> dict[str, Any]:
    return {
        "name": "whole",
        "source": {"paths": [str(corpus)], "shard_bytes": "32MiB"},
        "dedup": {"mode": "remove", "minimum_bytes": 500, "writeback": True},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": str(scratch / "outputs")}],
        "work_folder": str(scratch / "work"),
    }


def run(corpus: Path, scratch: Path, workers: int) -> dict[str, Any]:
    """Build once in `scratch`, which must not be there; see measured. Also its steps' seconds by stage."""
    figures = measured(corpus, scratch, [sys.executable, "-m", "corpusmill.cli"], workers)
    stages: dict[str, float] = {}
    for path in (scratch / "work").glob("*/*/*/receipt.json"):
        receipt = json.loads(path.read_bytes())
        stages[receipt["stage"]] = round(stages.get(receipt["stage"], 0) + receipt["seconds"], 2)
    return {**figures, "stages": stages}


def measured(corpus: Path, scratch: Path, program: list[str], workers: int) -> dict[str, Any]:
    """Wall, CPU and system seconds of all processes of a build by a `program` like the command."""
    scratch.mkdir()
    (scratch / "whole.yaml").write_text(yaml.safe_dump(configuration(corpus, scratch)))
    touch_memory()
    group = CPU_GROUPS / f"whole-build-{os.getpid()}"
    group.mkdir()
    command = [*program, "build", str(scratch / "whole.yaml"), "--workers", str(workers)]
    began = time.monotonic()
    try:
        subprocess.run(
            command, check=True, stdout=2, preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        )
    finally:
        seconds = time.monotonic() - began
        ticks = dict(line.split() for line in (group / "cpuacct.stat").read_text().splitlines())
        cpu = int((group / "cpuacct.usage").read_text()) / 1e9
        while (group / "cgroup.procs").read_text():  # the server of workers ends after the command
            time.sleep(0.1)
        group.rmdir()
    system = int(ticks["system"]) / os.sysconf("SC_CLK_TCK")
    return {"wall_seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "system_seconds": round(system, 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    arguments = parser.parse_args()
    scratch = arguments.scratch
    scratch.mkdir(parents=True)
    corpus = scratch / "corpus"
    text_bytes = write_corpus(arguments.corpus, corpus, GIGABYTES)
    builds: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
    unavoidable = []
    for number in range(ROUNDS + 1):
        for workers, runs in builds.items():
            runs.append(run(corpus, scratch / f"{number}-{workers}", workers))
        kept = sorted((scratch / f"{number}-{WORKERS[0]}" / "outputs" / "whole" / "latest" / "documents").iterdir())
        touch_memory()
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            sources = sorted(corpus.iterdir())
            unavoidable.append(alone.submit(parts, sources, kept, scratch / f"{number}-parts").result())
    together = median([sum(seconds.values()) for seconds in unavoidable[1:]])
    figures: dict[str, Any] = {
        "text_bytes": text_bytes,
        "parts": {name: median([seconds[name] for seconds in unavoidable[1:]]) for name in unavoidable[0]},
        "parts_together": round(together, 1),
    }
    for workers, runs in builds.items():
        cpu = median([build["cpu_seconds"] for build in runs[1:]])
        medians = {key: median([build[key] for build in runs[1:]]) for key in runs[0] if key != "stages"}
        ratio = round(cpu / together, 2)
        figures[f"workers_{workers}"] = {**medians, "cpu_to_that_of_its_parts": ratio, "rounds": runs[1:]}
    print(json.dumps(figures, indent=1))
    print(write_result("whole_build", (__doc__ or "").split("\n\n", maxsplit=1)[0], figures))
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
