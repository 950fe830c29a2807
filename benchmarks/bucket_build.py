"""Claim: a build whose work folder is in a bucket takes at most 1.5 times the CPU of a local one, on the worker's side.

The same configuration, everything on, one process, in turns: a local work folder, one in a bucket, and one in a bucket
whose every stage is run by a machine with an empty cache. CPU is that of the process, user and kernel; requests and
bytes are counted by the store's client, and set against what `estimate` says after a sample of an eighth. Compiled
modules, every build behind one that warmed up.

    AWS_ENDPOINT_URL=http://127.0.0.1:8333 python benchmarks/bucket_build.py CORPUS_FOLDER SCRATCH_FOLDER s3://bucket/prefix
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import write_result

ROUNDS = 2


def configuration(corpus: Path, scratch: Path, work_folder: str) -> dict[str, Any]:
    return {
        "name": "whole",
        "source": {"paths": [str(corpus)], "shard_bytes": "32MiB"},
        "estimate": {"sample_bytes": "16MiB"},
        "dedup": {"mode": "remove", "minimum_bytes": 500, "writeback": True},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": str(scratch / "outputs")}],
        "work_folder": work_folder,
    }


def build(corpus: Path, scratch: Path, work_folder: str, apart: bool, told: Any) -> None:
    """Build in this process: wall and CPU seconds, what the store's clients count, the version of the dataset."""
    from corpusmill.builds.graph import GRAPH, open_build
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.config import check_config
    from corpusmill.engine.runs import begin_run
    from corpusmill.engine.work_folder.moved import moved
    from corpusmill.storage.mirrored import CACHE, address_of

    config = check_config(configuration(corpus, scratch, work_folder), where="benchmark")
    os.environ[CACHE] = str(scratch / "cache" / "plan")
    began, cpu = time.monotonic(), time.process_time()
    plan = address_of(begin_run(plan_dataset(config, to_build=True)))
    for stage in GRAPH.names:
        if apart:
            os.environ[CACHE] = str(scratch / "cache" / stage)
        opened = open_build(plan)
        for unit in opened.units(stage):
            opened.run(stage, unit)
    seconds, used = time.monotonic() - began, time.process_time() - cpu
    told.put(
        {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(used, 2),
            "requests": moved().requests,
            "retries": moved().retries,
            "bytes_read": moved().bytes_received,
            "bytes_sent": moved().bytes_sent,
            "text_bytes": opened.total("index", "text_bytes_out"),
            "version": opened.receipt("manifest", "dataset").digest,
        }
    )


def estimated(corpus: Path, scratch: Path, work_folder: str, told: Any) -> None:
    """Requests and bytes that `estimate` states, by kind."""
    from corpusmill.builds.estimate import estimate_dataset
    from corpusmill.config import check_config
    from corpusmill.storage.mirrored import CACHE

    os.environ[CACHE] = str(scratch / "cache")
    estimate = estimate_dataset(check_config(configuration(corpus, scratch, work_folder), where="benchmark"))
    told.put(dict(zip(("bucket", "machines"), estimate.moved, strict=True)))


def measure(corpus: Path, scratch: Path, place: str, kind: str, number: int) -> dict[str, Any]:
    for name in ("work", "outputs", "cache"):
        shutil.rmtree(scratch / name, ignore_errors=True)
    work_folder = str(scratch / "work") if kind == "folder" else f"{place}/{os.getpid()}-{kind}-{number}"
    return in_a_process(build, corpus, scratch, work_folder, kind == "machines")


def in_a_process(target: Callable[..., None], *arguments: Any) -> dict[str, Any]:
    """What a function puts into the queue that is its last argument."""
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    process = context.Process(target=target, args=(*arguments, told))
    process.start()
    outcome: dict[str, Any] = told.get()
    process.join()
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("place")
    asked = parser.parse_args()
    kinds = ("folder", "bucket", "machines")
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    measure(asked.corpus, asked.scratch, asked.place, "folder", 0)  # compiles
    for number in range(ROUNDS):
        for kind in kinds:
            runs[kind].append(measure(asked.corpus, asked.scratch, asked.place, kind, number))
    said = in_a_process(estimated, asked.corpus, asked.scratch, f"{asked.place}/{os.getpid()}-estimate")
    assert len({item["version"] for of_kind in runs.values() for item in of_kind}) == 1
    least = {kind: min(of_kind, key=lambda item: item["cpu_seconds"]) for kind, of_kind in runs.items()}
    of_folder = least["folder"]["cpu_seconds"]
    moved = {kind: (least[kind]["requests"], least[kind]["bytes_read"] + least[kind]["bytes_sent"]) for kind in said}
    result = {
        "runs": runs,
        "estimated_requests_of_actual": {kind: round(said[kind][0] / moved[kind][0], 2) for kind in said},
        "estimated_bytes_of_actual": {kind: round(said[kind][1] / moved[kind][1], 2) for kind in said},
        "cpu_of_a_folders": {kind: round(item["cpu_seconds"] / of_folder, 2) for kind, item in least.items()},
        "requests_per_gb_of_text": {
            kind: round(item["requests"] / item["text_bytes"] * 1e9) for kind, item in least.items()
        },
        "bytes_moved_per_byte_of_text": {
            kind: round((item["bytes_read"] + item["bytes_sent"]) / item["text_bytes"], 2)
            for kind, item in least.items()
        },
    }
    write_result("bucket_build", (__doc__ or "").partition("\n")[0].removeprefix("Claim: "), result)


if __name__ == "__main__":
    main()
