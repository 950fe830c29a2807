"""What `dedup.against` costs beside deduplicating both corpora together: CPU time until ranges are known, and scratch.

The corpus, decompressed, in two halves: the first is the reference, the second the dataset. Three builds up to
`union`, on one core: both halves as one dataset; the second against the first; a second dataset against it, which
reuses the index.
`python benchmarks/against.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from results import write_result

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import run_steps
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.documents.compression import open_decompressed

UNTIL = "union"
TEXTS = {"download", "index", "reference"}  # what both have, however they are deduplicated


def config_of(name: str, source: list[Path], root: Path, against: Path | None, minimum_bytes: int) -> DatasetConfig:
    """A dataset of some files; all of them lie in one work folder."""
    dedup: dict[str, Any] = {"mode": "remove", "minimum_bytes": minimum_bytes}
    return check_config(
        {
            "name": name,
            "source": {"paths": [str(path) for path in source], "shard_bytes": "16MiB"},
            "dedup": {**dedup, "against": [{"path": str(against), "shard_bytes": "16MiB"}]} if against else dedup,
            "tokenizer": {"name": "cl100k_base"},
            "shuffle": {"seed": 7},
            "exports": {"megatron": {}},
            "destinations": [{"path": str(root / "outputs")}],
            "work_folder": str(root / "work"),
        },
        where="benchmark",
    )


def split(corpus: Path, halves: tuple[Path, Path]) -> None:
    """The files of the corpus, decompressed, in turn into the one folder and the other, under names in this order."""
    for folder in halves:
        folder.mkdir(parents=True)
    for number, path in enumerate(sorted(corpus.glob("*.jsonl*"))):
        target = halves[number % 2] / f"{number % 2}-{path.name.partition('.zst')[0]}"
        with path.open("rb") as raw, target.open("wb") as plain:
            shutil.copyfileobj(open_decompressed(raw, path.name), plain)


def measured(config: DatasetConfig) -> dict[str, Any]:
    """CPU seconds of a build up to `union`, its text, ranges and what its steps hold on disk."""
    began = time.process_time()
    plan = plan_dataset(config)
    run_steps(plan, workers=1, until=UNTIL)
    seconds = round(time.process_time() - began, 2)
    build = open_build(plan)
    stages = [stage for wave in GRAPH.waves(UNTIL) for stage in wave if stage not in TEXTS]
    held = {
        stage: sum(output.size_bytes for receipt in build.receipts(stage) for output in receipt.outputs)
        for stage in stages
    }
    return {
        "cpu_seconds": seconds,
        "text_bytes": build.total("index", "text_bytes_out") + build.total("reference", "text_bytes_out"),
        "removed_bytes": build.total("union", "removed_bytes"),
        "reference_bytes": build.total("union", "reference_bytes"),
        "scratch_bytes": sum(held.values()),
        "by_stage": {stage: size for stage, size in held.items() if size},
    }


def main() -> None:
    """Measure and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--scratch", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        root = Path(scratch)
        halves = root / "reference", root / "own"
        split(arguments.corpus, halves)
        for minimum_bytes in (500, 100):
            for turn in ("warm", "measured"):
                at = root / f"{turn}-{minimum_bytes}"
                builds = {
                    "together": measured(config_of("together", [*halves], at, None, minimum_bytes)),
                    "against": measured(config_of("against", [halves[1]], at, halves[0], minimum_bytes)),
                    "against again": measured(config_of("again", [halves[1]], at, halves[0], minimum_bytes)),
                }
                shutil.rmtree(at)
            together, against = builds["together"], builds["against"]
            results[f"L = {minimum_bytes}"] = {
                **builds,
                "cpu_ratio": round(against["cpu_seconds"] / together["cpu_seconds"], 3),
                "scratch_ratio": round(against["scratch_bytes"] / together["scratch_bytes"], 3),
            }
    claim = "against a reference costs what deduplicating both together does; a second dataset reuses its index"
    print(write_result("against", claim, results).read_text())


if __name__ == "__main__":
    main()
