"""How much of a build's CPU accounts of content, decoding every document and digests on opening take (aim: 4 %).

The whole build of whole_build.py, everything on, by the command with one worker and with two. CPU seconds of each
mechanism are measured where it is called, in every process, without those of another one inside it, against all CPU
seconds of the command. Medians of rounds, after one that is not counted.

    python -m benchmarks.content_accounts CORPUS_FOLDER SCRATCH_FOLDER
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dedup_memory import write_corpus
from benchmarks.results import write_result
from benchmarks.whole_build import GIGABYTES, WORKERS, measured

ROUNDS = 5
FOLDER = "ACCOUNTS_FOLDER"  # in a build's processes: where each of them writes what it has spent
# (module, name) of every function through which a stage reaches a mechanism
MECHANISMS = {
    "content sums": [
        ("corpusmill.kernels.content_kernels", "texts_sum"),
        ("corpusmill.kernels.content_kernels", "records_sum"),
        ("corpusmill.kernels.content_kernels", "token_sums"),
        ("corpusmill.kernels.content_kernels", "text_hashes"),
        ("corpusmill.documents.jsonl", "text_hashes"),
        ("corpusmill.documents.located", "text_hashes"),
        ("corpusmill.dedup.writeback", "text_hashes"),
        ("corpusmill.dedup.writeback", "placed_sum"),
        ("corpusmill.dedup.writeback", "_texts_again"),
        ("corpusmill.shuffle.cells", "_content"),
        ("corpusmill.tokens.records", "Records.content"),
        ("corpusmill.tokens.records", "Records.repeated_content"),
        ("corpusmill.export.framing", "Framed.token_sums"),
        ("corpusmill.export.webdataset", "_sums"),
        ("corpusmill.export.formats.base", "WrittenContent.add"),
        ("corpusmill.export.formats.base", "WrittenContent.add_to_cell"),
    ],
    "decoding": [
        ("corpusmill.tokens.decoding", "Decoder.compare"),
        ("corpusmill.tokens.decoding", "token_table"),
        ("corpusmill.tokens.references", "TiktokenReference.spelled"),
    ],
    "digests on opening": [("corpusmill.engine.ledger.blocks", "Blocks.open")],
}
SPENT: Counter[str] = Counter()


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, adding its CPU seconds to SPENT[name], without those of other timed functions that it calls."""

    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        inner, began = SPENT.total(), time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            seconds = time.thread_time() - began
            SPENT[name] += seconds - (SPENT.total() - inner)  # type: ignore[assignment]

    return run


def instrument() -> None:
    """Measure the mechanisms in this process, which notes after each step what it has spent by then. What numba loads
    with a process's first kernel, whichever that is, is not theirs.
    """
    importlib.import_module("corpusmill.builds.loaded")
    for mechanism, functions in MECHANISMS.items():
        for module, name in functions:
            holder: Any = importlib.import_module(module)
            *path, attribute = name.split(".")
            for part in path:
                holder = getattr(holder, part)
            setattr(holder, attribute, timed(mechanism, getattr(holder, attribute)))

    from corpusmill.engine.running import RunnableBuild

    run_step = RunnableBuild.run

    @functools.wraps(run_step)
    def run(*arguments: Any, **named: Any) -> Any:
        try:
            return run_step(*arguments, **named)
        finally:
            Path(os.environ[FOLDER], f"{os.getpid()}.json").write_text(json.dumps(SPENT))

    RunnableBuild.run = run  # type: ignore[method-assign]


def build_once(corpus: Path, scratch: Path, workers: int) -> dict[str, Any]:
    """The CPU seconds of the command, and each mechanism's share of them."""
    spent: Counter[str] = Counter()
    scratch.mkdir()
    os.environ[FOLDER] = str(scratch)
    command = [sys.executable, "-m", "benchmarks.content_accounts"]
    cpu = measured(corpus, scratch / "build", command, workers)["cpu_seconds"]
    for path in scratch.glob("*.json"):
        spent.update(json.loads(path.read_text()))
    shares = {name: round(seconds / cpu, 4) for name, seconds in sorted(spent.items())}
    return {"cpu_seconds": cpu, "shares": shares, "share": round(spent.total() / cpu, 4)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    arguments = parser.parse_args()
    arguments.scratch.mkdir(parents=True)
    corpus = arguments.scratch / "corpus"
    write_corpus(arguments.corpus, corpus, GIGABYTES)
    rounds: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
    for number in range(ROUNDS + 1):
        for workers, builds in rounds.items():
            builds.append(build_once(corpus, arguments.scratch / f"{number}-{workers}", workers))
    figures = {
        f"workers_{workers}": {"median_share": median([build["share"] for build in builds[1:]]), "rounds": builds[1:]}
        for workers, builds in rounds.items()
    }
    print(json.dumps(figures, indent=1))
    print(write_result("content_accounts", "share of CPU of content sums, decoding, digests on opening", figures))
    shutil.rmtree(arguments.scratch)


if __name__ == "__mp_main__":  # in a worker of the command below
    instrument()
elif __name__ == "__main__" and FOLDER in os.environ:
    from corpusmill.cli import main as command

    instrument()
    command()
elif __name__ == "__main__":
    main()
