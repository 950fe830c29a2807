"""How much of a build's CPU accounts of content, decoding every document and digests on opening take (aim: 4 %).

One build in one process, everything on: deduplication with writeback, four formats. CPU seconds of each mechanism are
measured where it is called, without those of another one inside it, against all CPU seconds of the build.
`python benchmarks/content_accounts.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import write_result

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.tokens.tokenizer import _loaded

ROUNDS = 3
# (module, name) of every function through which a stage reaches a mechanism
MECHANISMS = {
    "content sums": [
        ("corpusmill.content_kernels", "texts_sum"),
        ("corpusmill.content_kernels", "records_sum"),
        ("corpusmill.content_kernels", "token_sums"),
        ("corpusmill.content_kernels", "text_hashes"),
        ("corpusmill.documents.jsonl", "text_hashes"),
        ("corpusmill.documents.located", "text_hashes"),
        ("corpusmill.dedup.writeback", "text_hashes"),
        ("corpusmill.dedup.writeback", "placed_sum"),
        ("corpusmill.dedup.writeback", "_texts_again"),
        ("corpusmill.shuffle.gather", "_content"),
        ("corpusmill.tokens.records", "Records.content"),
        ("corpusmill.tokens.records", "Records.repeated_content"),
        ("corpusmill.export.framing", "Framed.token_sums"),
        ("corpusmill.export.webdataset", "_sums"),
        ("corpusmill.export.content", "WrittenContent.add"),
        ("corpusmill.export.content", "WrittenContent.add_to_cell"),
    ],
    "decoding": [
        ("corpusmill.tokens.decoding", "Decoder.compare"),
        ("corpusmill.tokens.decoding", "token_table"),
        ("corpusmill.tokens.references", "TiktokenReference.spelled"),
    ],
    "digests on opening": [("corpusmill.ledger.blocks", "Blocks.open")],
}
SPENT: dict[str, float] = {}


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


def instrument() -> None:
    for mechanism, functions in MECHANISMS.items():
        for module, name in functions:
            holder: Any = importlib.import_module(module)
            *path, attribute = name.split(".")
            for part in path:
                holder = getattr(holder, part)
            setattr(holder, attribute, timed(mechanism, getattr(holder, attribute)))


def configuration(root: Path, corpus: str) -> dict[str, Any]:
    return {
        "name": "accounts",
        "source": {"paths": [corpus], "shard_bytes": "8MB"},
        "dedup": {"mode": "remove", "minimum_bytes": 500, "writeback": True},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {"webdataset": {}, "numpy": {"tokens_per_shard": 5_000_000}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }


def build_once(corpus: str) -> float:
    """CPU seconds of a whole build, which loads its tokenizer itself."""
    _loaded.cache_clear()
    root = Path(tempfile.mkdtemp(prefix="accounts-"))
    began = time.process_time()
    build_dataset(check_config(configuration(root, corpus), where="benchmark"), workers=1)
    seconds = time.process_time() - began
    shutil.rmtree(root)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    corpus = parser.parse_args().corpus
    build_once(corpus)  # compiles the kernels and fills the page cache
    instrument()
    rounds = []
    for _ in range(ROUNDS):
        SPENT.clear()
        total = build_once(corpus)
        spent = {name: round(seconds / total, 4) for name, seconds in sorted(SPENT.items())}
        rounds.append({"cpu_seconds": round(total, 2), "shares": spent, "share": round(sum(spent.values()), 4)})
    figures = {"rounds": rounds, "median_share": round(statistics.median(item["share"] for item in rounds), 4)}
    print(json.dumps(figures, indent=1))
    print(write_result("content_accounts", "share of CPU of content sums, decoding, digests on opening", figures))


if __name__ == "__main__":
    main()
