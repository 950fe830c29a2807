"""Claim: `corpusmill trace --megatron-cache` takes under 2 s for a step of 1,024 samples, the cache having 10^8.

Builds a dataset from copies of a corpus, makes an index cache of so many samples over its parts (epoch after epoch, in
blocks, never as a whole in memory), and asks for steps all over the run, a process each: seconds from start to end, the
interpreter's own start included. `python benchmarks/trace_step.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import hashlib
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

import numpy as np
from results import write_result

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.export.megatron import open_part

SEQUENCE_TOKENS = 128
SHOWN_BATCH = 16


def configuration(root: Path) -> dict[str, object]:
    return {
        "name": "trace",
        "source": {"paths": [str(root / "corpus")]},
        "dedup": {"mode": "none", "writeback": False},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {"megatron": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }


def write_cache(folder: Path, prefix: Path, samples: int) -> None:
    """A cache as GPTDataset lays it out, of every document once an epoch, in order of the epochs; the samples' order
    is a fixed stride through them. Megatron would shuffle both: the pages that a trace reads are as far apart.
    """
    lengths = np.asarray(open_part(prefix).lengths)
    ends = np.cumsum(lengths, dtype=np.int64)
    epochs = -(-(samples * SEQUENCE_TOKENS + 1) // int(ends[-1]))
    samples = (epochs * int(ends[-1]) - 1) // SEQUENCE_TOKENS
    description = {
        "class": "GPTDataset",
        "dataset_path": str(prefix),
        "num_samples": samples,
        "index_split": "train",
        "random_seed": 1,
        "sequence_length": SEQUENCE_TOKENS,
        "split": "1,0,0",
        "split_matrix": [[0, 1.0], None, None],
        "tokenizer": {},
    }
    text = json.dumps(description, indent=4)
    stem = f"{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}-GPTDataset-train-"
    (folder / f"{stem}description.txt").write_text(text)
    shapes = {"document_index": (np.int32, (epochs * len(lengths),)), "shuffle_index": (np.uint32, (samples,))}
    shapes["sample_index"] = (np.int32, (samples + 1, 2))
    arrays = {
        name: np.lib.format.open_memmap(folder / f"{stem}{name}.npy", "w+", dtype, shape)
        for name, (dtype, shape) in shapes.items()
    }
    for epoch in range(epochs):
        arrays["document_index"][epoch * len(lengths) : (epoch + 1) * len(lengths)] = np.arange(len(lengths))
    stride = next(number for number in range(samples * 5 // 8, samples) if np.gcd(number, samples) == 1)
    for first in range(0, samples + 1, 1 << 20):
        numbers = np.arange(first, min(first + (1 << 20), samples + 1))
        epoch, token = np.divmod(numbers * SEQUENCE_TOKENS, int(ends[-1]))
        document = np.searchsorted(ends, token, side="right")
        begins = ends[document] - lengths[document]
        arrays["sample_index"][numbers] = np.stack([epoch * len(lengths) + document, token - begins], axis=1)
        shuffled = numbers[numbers < samples]
        arrays["shuffle_index"][shuffled] = shuffled * stride % samples
    for array in arrays.values():
        array.flush()


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    # Where Python may not keep compiled files, every process would compile the sources that were edited last.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--samples", type=int, default=100_000_000)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="trace-step-"))
    try:
        for copy in range(arguments.copies):
            shutil.copytree(arguments.corpus, root / "corpus" / f"copy{copy}")
        config = configuration(root)
        (root / "dataset.yaml").write_text(json.dumps(config))
        build_dataset(check_config(config, where="benchmark"))
        (prefix,) = (path.with_suffix("") for path in (root / "outputs/trace/latest").resolve().glob("megatron/*.idx"))
        (root / "cache").mkdir()
        write_cache(root / "cache", prefix, arguments.samples)
        figures: dict[str, object] = {
            "samples": arguments.samples,
            "documents": open_part(prefix).documents,
            "cache_bytes": sum(path.stat().st_size for path in (root / "cache").iterdir()),
        }
        for batch in (1, SHOWN_BATCH, 1024):
            command = [sys.executable, "-m", "corpusmill.cli", "trace", str(root / "dataset.yaml")]
            command += ["--megatron-cache", str(root / "cache"), "--batch", str(batch)]
            steps = [1 + place * (arguments.samples // batch) // 7 for place in range(7)]
            answers = [timed([*command, "--step", str(step)]) for step in steps]
            figures[f"batch_of_{batch}"] = {
                "answers": len(answers),
                "median_seconds": round(statistics.median(item for item, _ in answers), 3),
                "slowest_seconds": round(max(item for item, _ in answers), 3),
                "median_cpu_seconds": round(statistics.median(item for _, item in answers), 3),
            }
    finally:
        shutil.rmtree(root)
    print(
        write_result(
            "trace_step",
            "trace of a step of 1,024 samples takes under 2 s of one core with a cache of 10^8 samples",
            figures,
        )
    )


if __name__ == "__main__":
    main()
