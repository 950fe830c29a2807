"""Claim: `corpusmill trace` answers in under 1 s on a dataset of 1 GB.

Builds one from copies of a corpus, without deduplication, and asks for records all over two exports, a process each:
seconds from start to end, the interpreter's own start included. `python benchmarks/trace.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import write_result

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config


def configuration(root: Path) -> dict[str, object]:
    return {
        "name": "trace",
        "source": {"paths": [str(root / "corpus")]},
        "dedup": {"mode": "none", "writeback": False},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {"webdataset": {}, "megatron": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    # Where Python may not keep compiled files, every process would compile the sources that were edited last.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--copies", type=int, default=8)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="trace-"))
    for copy in range(arguments.copies):
        (root / "corpus" / f"copy{copy}").mkdir(parents=True)
        for path in arguments.corpus.iterdir():
            if path.is_file():
                shutil.copy(path, root / "corpus" / f"copy{copy}")
    config = configuration(root)
    (root / "dataset.yaml").write_text(json.dumps(config))
    build = open_build(build_dataset(check_config(config, where="benchmark")))
    answers = []
    for record in range(0, 7000, 1000):
        for export, shard in (("webdataset", 3), ("megatron", 0)):
            options = ["--format", export, "--file", str(shard), "--record", str(record)]
            command = [sys.executable, "-m", "corpusmill.cli", "trace", str(root / "dataset.yaml"), *options]
            answers.append(timed(command))
    figures = {
        "text_bytes": build.total("index", "text_bytes_out"),
        "shards": len(build.units("index")),
        "answers": len(answers),
        "seconds": {"median": round(statistics.median(item for item, _ in answers), 3)},
        "cpu_seconds": {"median": round(statistics.median(item for _, item in answers), 3)},
    }
    figures["seconds"]["slowest"] = round(max(item for item, _ in answers), 3)
    figures["cpu_seconds"]["slowest"] = round(max(item for _, item in answers), 3)
    shutil.rmtree(root)
    print(write_result("trace", "trace answers in under 1 s on 1 GB of text", figures))


if __name__ == "__main__":
    main()
