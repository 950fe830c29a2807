"""What a step costs: of a build's CPU one that only looks (aim: at most 15 %), and by itself each of the models.

Builds run in one process, everything on (deduplication with writeback, four formats), in turn with and without;
CPU seconds are compared, which other work beside it disturbs least. `python benchmarks/steps.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from results import write_result

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import StepConfig, check_config
from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.jsonl import read_documents
from corpusmill.steps.answering import Asked
from corpusmill.steps.answers import Batch
from corpusmill.steps.loading import load

ROUNDS = 3
LOOKS = "def looks(document):\n    return len(document.text) >= 0\n"
EDITS = "def edits(document):\n    return document.text.replace('  ', ' ')\n"
MODELS = ("gopher:Quality", "repetition:Repetition", "c4:Lines")


def cpu_of_build(corpus: Path, root: Path, steps: list[dict[str, Any]]) -> tuple[float, int, float]:
    """(CPU seconds of a build, bytes of its text, the share of all its stages' time that is that of its steps)."""
    config = check_config(
        {
            "name": "steps",
            "source": {"paths": [str(corpus)], "shard_bytes": "32MiB"},
            "dedup": {"mode": "remove", "minimum_bytes": 100},
            "tokenizer": {"name": "cl100k_base"},
            "shuffle": {"seed": 7},
            "exports": {
                "webdataset": {"context_tokens": 2049, "contexts_per_shard": 1000},
                "numpy": {"tokens_per_shard": 50_000_000},
                "megatron": {},
                "nanoset": {},
            },
            "destinations": [{"path": str(root / "outputs")}],
            "work_folder": str(root / "work"),
            **({"steps": steps} if steps else {}),
        },
        where="benchmark",
    )
    began = time.process_time()
    receipt = build_dataset(config, workers=1)
    spent, build = time.process_time() - began, open_build(receipt)
    of_stage = {stage: sum(receipt.seconds for receipt in build.receipts(stage)) for stage in build.graph.names}
    asked = of_stage["filter"] + of_stage["refine"]
    return spent, build.total("index", "text_bytes_out"), asked / sum(of_stage.values())


def batches_of(path: Path) -> list[Batch]:
    """The batches of one file."""
    with path.open("rb") as raw, open_decompressed(raw, path.name) as lines:
        read = list(read_documents(lines, source=path.name, text_field="text", id_field="id"))
    return [
        Batch(item.text, item.bounds[:-1] + 1, item.bounds[1:], lambda _: ("", "", 1), item.bounds[:-1])
        for item in read
    ]


def speed(use: str, batches: list[Batch]) -> float:
    """MB of text a second of CPU, the best of ROUNDS."""
    step = StepConfig(use=use)
    asked = Asked(step, load(step))
    asked.answers(batches[0])
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for batch in batches:
            asked.answers(batch)
        seconds.append(time.process_time() - began)
    return round(sum(int((batch.ends - batch.starts).sum()) for batch in batches) / 1e6 / min(seconds), 1)


def main() -> None:
    """Measure, print, and write results/steps.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--note", default="", help="what else ran on the machine")
    corpus = parser.parse_args().corpus
    figures: dict[str, Any] = {"beside": parser.parse_args().note}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ["CORPUSMILL_ROOT"] = str(root)
        (root / "bench_steps.py").write_text(LOOKS + EDITS)
        looks, edits = {"use": "bench_steps:looks"}, {"use": "bench_steps:edits"}
        late = {"before": "writeback"}  # which also lists windows, to count the text that is lost
        kinds = {"without": [], "looks": [looks], "edits": [edits], "looks_late": [looks | late]}
        changed = [kind for kind in kinds if kind != "without"]
        seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
        shares: dict[str, list[float]] = {kind: [] for kind in kinds}
        cpu_of_build(corpus, root / "warm", kinds["edits"])
        for number in range(ROUNDS):
            for kind, steps in kinds.items():
                cpu, text_bytes, share = cpu_of_build(corpus, root / f"{kind}{number}", steps)
                seconds[kind].append(cpu)
                shares[kind].append(share)
        middle = {kind: statistics.median(of) for kind, of in seconds.items()}
        figures |= {
            "text_bytes": text_bytes,
            "cpu_seconds": {kind: [round(item, 2) for item in of] for kind, of in seconds.items()},
            "share_of_the_stages_time": {kind: round(statistics.median(shares[kind]), 4) for kind in changed},
            "cost_share": {kind: round(middle[kind] / middle["without"] - 1, 4) for kind in changed},
        }
        batches = batches_of(sorted(corpus.iterdir())[0])
        uses = [*(f"corpusmill.steps.{model}" for model in MODELS), "bench_steps:looks", "bench_steps:edits"]
        figures["megabytes_a_second"] = {use: speed(use, batches) for use in uses}
    print(json.dumps(figures, indent=1))
    write_result("steps", "a step that only looks costs at most 15 % of a build's CPU", figures)


if __name__ == "__main__":
    main()
