"""Claim: the complete tokshuf job, from jsonl.zst to tars and manifest, at 25 MB/s of text per core.

One process does every step of a build whose only export is WebDataset, without deduplication and writeback, as tokshuf
has neither; the report is not made. CPU seconds are the process's own, all stages included. Said of the slowest run of
several, and the rate of each: a shared machine's speed moves by a third.
`python benchmarks/tokshuf_job.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

from results import write_result

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig, check_config


def as_tokshuf(corpus: str, root: Path) -> DatasetConfig:
    """A dataset of what tokshuf does: contexts in one seeded order as WebDataset tars, and nothing else."""
    config = {
        "name": "tokshuf",
        "source": {"paths": [corpus], "shard_bytes": "64MiB"},
        "dedup": {"mode": "none", "writeback": False},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1234},
        "exports": {"webdataset": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }
    return check_config(config, where="benchmark")


def job(corpus: str, copies: int, root: Path) -> dict[str, object]:
    """Build once in this process; CPU seconds, text bytes, and seconds of each stage's receipts."""
    for copy in range(copies):
        shutil.copytree(corpus, root / "corpus" / str(copy))
    plan_receipt = plan_dataset(as_tokshuf(str(root / "corpus"), root))
    began, wall = time.process_time(), time.monotonic()
    run_build(plan_receipt, workers=1, until="manifest")
    cpu, wall = time.process_time() - began, time.monotonic() - wall
    build = open_build(plan_receipt)
    text_bytes = build.total("index", "text_bytes_out")
    stages = [stage for stage in GRAPH.names if stage not in {"upload", "report"} and build.units(stage)]
    return {
        "text_bytes": text_bytes,
        "documents": build.total("index", "documents_out"),
        "contexts": build.total("scatter", "records"),
        "cpu_seconds": round(cpu, 2),
        "wall_seconds": round(wall, 2),
        "megabytes_of_text_per_cpu_second": round(text_bytes / 1e6 / cpu, 1),
        "wall_seconds_by_stage": {
            stage: round(sum(receipt.seconds for receipt in build.receipts(stage)), 2) for stage in stages
        },
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def one_run(corpus: str, copies: int) -> dict[str, object]:
    """`job` in a folder of its own, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="tokshuf-") as root:
        return job(corpus, copies, Path(root))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    one_run(arguments.corpus, 1)  # compiles the kernels and fills the page cache
    runs = [one_run(arguments.corpus, arguments.copies) for _ in range(arguments.runs)]
    rate = "megabytes_of_text_per_cpu_second"
    figures = min(runs, key=lambda run: float(str(run[rate]))) | {f"{rate}_by_run": [run[rate] for run in runs]}
    print(json.dumps(figures, indent=1))
    print(write_result("tokshuf_job", "jsonl.zst to tars and manifest at 25 MB/s of text per core", figures))


if __name__ == "__main__":
    main()
