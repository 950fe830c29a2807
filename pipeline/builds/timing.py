"""How long a build takes, from builds of two samples by `corpusmill build`, in a program of its own.

    sample -> a shard for each worker -> corpusmill build --workers N -> seconds in all, and of single steps; memory

A part of the time is the same for every build (imports, the tokenizer); the rest grows with the text, and is what a
larger sample takes longer than a smaller one. Of that, steps that are alone in their stage (a manifest, an upload) take
as long on any number of cores. Several workers are timed, not one: cores that share a memory, or are two threads of one
core, are slower together. Shards are as large as the sample allows, because a step's memory grows with its shard or
cell. A program of its own, because Airflow forks its tasks, and process pools hang in forks.

Price: the build of the sample.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from corpusmill.config import DatasetConfig
from corpusmill.errors import TransientError

MOST_WORKERS = 4  # more would each have too little of a sample


@dataclass(frozen=True)
class Timed:
    """A build of a sample: its bytes of text, seconds in all, of these the seconds of stages of a single step, and the
    most memory that a step took.
    """

    text_bytes: int
    seconds: float
    single_seconds: float
    peak_rss_bytes: int


def timed_build(config: DatasetConfig, workers: int, weights: Mapping[str, float]) -> Timed:
    """Build a sample, the only path of the configuration's sources, with its sources cut into a shard for each worker.

    A stage of `weights` counts so many times. TransientError if the program fails.
    """
    from corpusmill.stages.graph import open_build

    (sample,) = map(Path, config.source.paths)
    shard_bytes = -(-sum(file.stat().st_size for file in sample.iterdir()) // workers)
    cut = config.source.model_copy(update={"shard_bytes": max(1, min(shard_bytes, config.source.shard_bytes))})
    work = Path(config.work_folder)
    work.mkdir(parents=True, exist_ok=True)
    settings = work / "sample.yaml"
    values = config.model_copy(update={"source": cut}).model_dump(mode="json", exclude_none=True)
    settings.write_text(yaml.safe_dump(values), encoding="utf-8")
    # Steps of the user's own are imported from where this process would; the program ends with this process.
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "CORPUSMILL_TASK": str(os.getpid())}
    command = [sys.executable, "-P", "-m", "corpusmill.cli", "build", str(settings), "--workers", str(workers)]
    quiet = subprocess.DEVNULL
    os.sync()  # what was written before would be written to the disk beside this build
    began = time.perf_counter()
    ended = subprocess.run(command, env=os.environ | variables, stdout=quiet, stderr=quiet, check=False)
    seconds = time.perf_counter() - began
    if ended.returncode:
        raise TransientError(
            "the build of the sample by a program of its own failed, though this process has built it",
            got=f"exit code {ended.returncode}",
            next_step=f"try again; {workers} workers may need more memory than there was",
        )
    (plan,) = work.glob("*/plan/*/receipt.json")
    build = open_build(plan)
    once, weighted, single, peak = 0.0, 0.0, 0.0, 0
    for stage in build.graph.names:
        receipts = build.receipts(stage)
        peak = max([peak, *(receipt.peak_rss_bytes for receipt in receipts)])
        of_stage = sum(receipt.seconds for receipt in receipts)
        once += of_stage
        weighted += weights.get(stage, 1.0) * of_stage
        single += weights.get(stage, 1.0) * of_stage if len(receipts) == 1 else 0.0
    weight = weighted / once if once else 1.0  # seconds of receipts are rounded
    return Timed(build.total("index", "text_bytes_out"), seconds * weight, single, peak)


def scaled_seconds(part: Timed, whole: Timed, scale: float, more_cores: float) -> float:
    """Seconds of a build of `scale` times the text of `whole`, on `more_cores` times the cores. `part` is of a part."""
    share = part.text_bytes / max(1, whole.text_bytes)

    def growing(of_part: float, of_whole: float) -> float:
        return min(of_whole, max(0.0, of_whole - of_part) / (1 - share)) if share <= 1 / 2 else of_whole

    divided = growing(part.seconds - part.single_seconds, whole.seconds - whole.single_seconds)
    single = growing(part.single_seconds, whole.single_seconds)
    return whole.seconds - divided - single + scale * (divided / more_cores + single)
