"""Claims: a whole build takes at most 1.25 times the CPU of its unavoidable parts (parts.py), 5 s of it in the kernel.

Everything on: deduplication, writeback, four formats, a verified delivery to a folder. The corpus is the sample three
times under other ids, one word in a hundred changed. CPU of all processes of the build (cgroup v1 cpuacct), compiled
modules, the second run of two.

    python benchmarks/whole_build.py CORPUS_FOLDER SCRATCH_FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from dedup_memory import write_corpus
from memory_group import CPU_GROUPS
from parts import parts
from results import write_result

GIGABYTES = 0.4
WORKERS = 2


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


def run(scratch: Path) -> dict[str, Any]:
    """Build once; wall seconds, CPU seconds of all its processes, and those of each stage's steps (wall)."""
    for name in ("work", "outputs"):
        shutil.rmtree(scratch / name, ignore_errors=True)
    group = CPU_GROUPS / f"whole-build-{os.getpid()}"
    group.mkdir()
    command = [sys.executable, "-m", "corpusmill.cli", "build", str(scratch / "whole.yaml"), "--workers", str(WORKERS)]
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
    stages: dict[str, float] = {}
    for path in (scratch / "work").glob("*/*/*/receipt.json"):
        receipt = json.loads(path.read_bytes())
        stages[receipt["stage"]] = round(stages.get(receipt["stage"], 0) + receipt["seconds"], 2)
    system = int(ticks["system"]) / os.sysconf("SC_CLK_TCK")
    return {
        "wall_seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "system_seconds": round(system, 1),
        "stages": stages,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    arguments = parser.parse_args()
    arguments.scratch.mkdir(parents=True)
    corpus = arguments.scratch / "corpus"
    text_bytes = write_corpus(arguments.corpus, corpus, GIGABYTES)
    (arguments.scratch / "whole.yaml").write_text(yaml.safe_dump(configuration(corpus, arguments.scratch)))
    runs = [run(arguments.scratch) for _ in range(2)]
    kept = sorted((arguments.scratch / "outputs" / "whole" / "latest" / "documents").iterdir())
    unavoidable, whole = parts(sorted(corpus.iterdir()), kept, arguments.scratch / "parts"), runs[-1]
    figures = {
        "text_bytes": text_bytes,
        "build": whole,
        "parts": unavoidable,
        "parts_together": round(sum(unavoidable.values()), 1),
        "cpu_to_that_of_its_parts": round(whole["cpu_seconds"] / sum(unavoidable.values()), 2),
    }
    print(json.dumps(figures, indent=1))
    print(write_result("whole_build", (__doc__ or "").split("\n\n", maxsplit=1)[0], figures))
    shutil.rmtree(arguments.scratch)


if __name__ == "__main__":
    main()
