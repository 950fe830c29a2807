"""Claim: with JSON read by orjson and msgspec, deduplication has at least 0.9 of the rate that it had with kernels.

`corpusmill dedup` of an earlier commit and of this one, each in processes of its own with its own modules, one after
the other, round by round, on the same corpus. In a process the first run of a mode compiles and is thrown away; the
second counts. Ratios are those of a round: what else the machine does, both have.
`python benchmarks/dedup_before.py CORPUS_FOLDER COMMIT`
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = 5
MODES = (("remove", 500), ("annotate", 500), ("remove", 100))
HERE = Path(__file__).resolve().parent.parent


def measure(corpus: str) -> dict[str, dict[str, float]]:
    """Seconds by mode, of whichever `pipeline` is imported here."""
    return {f"{mode}, L={length}": [seconds(corpus, mode, length) for _ in range(2)][-1] for mode, length in MODES}


def seconds(corpus: str, mode: str, minimum_bytes: int) -> dict[str, float]:
    from pipeline.single.dedup import dedup_config, deduplicate

    root = Path(tempfile.mkdtemp(prefix="dedup-"))
    output = str(root / "clean")
    settings = {"mode": mode, "minimum_bytes": minimum_bytes}
    config = dedup_config([corpus], output, settings, source={"shard_bytes": "8MB"}, work_folder=str(root / "work"))
    began, began_cpu = time.perf_counter(), time.process_time()
    done = deduplicate(config, output, workers=1)
    taken = {"cpu": time.process_time() - began_cpu, "wall": time.perf_counter() - began}
    taken |= {name: sum(one.seconds for one in done.build.receipts(name)) for name in ("index", "writeback")}
    shutil.rmtree(root)
    return taken


def measure_in(tree: Path, corpus: str) -> dict[str, dict[str, float]]:
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(tree / ".cache" / "numba")}
    surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
    code = f"import sys, json; sys.path.append({str(HERE / 'benchmarks')!r}); import pipeline, dedup_before\n"
    code += f"assert pipeline.__file__.startswith({str(tree)!r}); print(json.dumps(dedup_before.measure(sys.argv[1])))"
    ran = subprocess.run(
        [sys.executable, "-c", code, corpus], env=surroundings, cwd=tree, stdout=subprocess.PIPE, text=True, check=True
    )
    measured: dict[str, dict[str, float]] = json.loads(ran.stdout.splitlines()[-1])
    return measured


def compare(before: list[dict[str, float]], now: list[dict[str, float]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for clock in before[0]:
        pairs = [(old[clock], new[clock]) for old, new in zip(before, now, strict=True)]
        ratios = [old / new for old, new in pairs]
        figures[clock] = {
            "seconds_before": round(statistics.median(old for old, _ in pairs), 2),
            "seconds_now": round(statistics.median(new for _, new in pairs), 2),
            "rate_of_before": round(statistics.median(ratios), 3),
            "rate_of_before_by_round": [round(one, 3) for one in ratios],
        }
    return figures


def main() -> None:
    from results import write_result

    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("commit")
    arguments = parser.parse_args()
    rounds: list[list[dict[str, dict[str, float]]]] = []
    with tempfile.TemporaryDirectory(prefix="before-") as folder:
        archive = subprocess.run(["git", "archive", arguments.commit], cwd=HERE, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        trees = [Path(folder).resolve(), HERE]
        for number in range(ROUNDS):
            order = trees if number % 2 == 0 else trees[::-1]
            measured = {tree: measure_in(tree, str(Path(arguments.corpus).resolve())) for tree in order}
            rounds.append([measured[tree] for tree in trees])
            print(json.dumps(rounds[-1]), flush=True)
    figures: dict[str, Any] = {"before": arguments.commit, "rounds": ROUNDS}
    for mode in rounds[0][0]:
        figures[mode] = compare([before[mode] for before, _ in rounds], [now[mode] for _, now in rounds])
    print(json.dumps(figures, indent=1))
    print(write_result("dedup_before", "deduplication at 0.9 of its rate with JSON kernels, or more", figures))


if __name__ == "__main__":
    main()
