"""Claims: accounting costs at most 5 % of a build's CPU time; an unchanged dataset of 200 shards re-runs in 10 s.

The share is measured inside one build in one process: CPU seconds of digesting sources and outputs, receipts, balance
checks, against all CPU seconds. Two costs beside it are stated apart, because a build without
accounts would have them too: flushing files to the device, and reading the destination's copies again.
`python benchmarks/accounts.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import write_result

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config

SPENT: dict[str, float] = {}
BESIDE = ("flushing to the device", "reading the destination again")


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, adding its CPU seconds to SPENT[name], without those of other timed functions that it calls."""

    def run(*arguments: Any, **named: Any) -> Any:
        inner, began = sum(SPENT.values()), time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            seconds = time.process_time() - began
            SPENT[name] = SPENT.get(name, 0.0) + seconds - (sum(SPENT.values()) - inner)

    return run


def configuration(root: Path, corpus: list[str], shard_bytes: str) -> dict[str, Any]:
    return {
        "name": "accounts",
        "source": {"paths": corpus, "shard_bytes": shard_bytes},
        "dedup": {"mode": "remove", "minimum_bytes": 500},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {"webdataset": {}, "numpy": {"tokens_per_shard": 5_000_000}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }


def share_of_accounting(corpus: str) -> dict[str, object]:
    from corpusmill.engine import build
    from corpusmill.engine.ledger import once, receipt
    from corpusmill.sources.stages import download
    from corpusmill.storage import local

    root = Path(tempfile.mkdtemp(prefix="accounts-"))
    config = check_config(configuration(root, [corpus], "8MB"), where="benchmark")
    build_dataset(config, workers=1)  # compiles the kernels and fills the page cache
    shutil.rmtree(root)
    receipt.file_digest = timed("digests", receipt.file_digest)
    download.pieces_checksum = timed("digests", download.pieces_checksum)
    once.write_receipt = timed("receipts", once.write_receipt)
    build.require_balanced = timed("balance", build.require_balanced)
    os.fsync = timed("flushing to the device", os.fsync)
    local.file_digest = timed("reading the destination again", local.file_digest)
    began = time.process_time()
    build_dataset(config, workers=1)
    total = time.process_time() - began
    shutil.rmtree(root)
    beside = {name: round(SPENT.pop(name) / total, 4) for name in BESIDE}
    spent = {name: round(seconds, 3) for name, seconds in SPENT.items()}
    share = round(sum(SPENT.values()) / total, 4)
    return {"cpu_seconds": round(total, 2), "accounting_cpu_seconds": spent, "share": share, "shares_beside": beside}


def rerun_of_200_shards() -> dict[str, object]:
    root = Path(tempfile.mkdtemp(prefix="rerun-"))
    (root / "corpus").mkdir()
    for number in range(200):
        text = f"document {number} " * 200
        (root / "corpus" / f"{number}.jsonl").write_text(json.dumps({"text": text}) + "\n")
    config = configuration(root, [str(root / "corpus")], "1")
    path = root / "dataset.yaml"
    path.write_text(json.dumps(config))
    command = [sys.executable, "-m", "corpusmill.cli", "build", str(path)]
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(round(time.monotonic() - began, 2))
    shutil.rmtree(root)
    return {"shards": 200, "first_build_seconds": seconds[0], "unchanged_seconds": seconds[1:]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    figures = {"rerun": rerun_of_200_shards(), "accounting": share_of_accounting(parser.parse_args().corpus)}
    print(json.dumps(figures, indent=1))
    print(write_result("accounts", "accounting at most 5 % of CPU time; 200 unchanged shards under 10 s", figures))


if __name__ == "__main__":
    main()
