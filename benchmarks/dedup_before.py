"""Claim: deduplication has at least 0.9 of the rate of an earlier commit, which read JSON with kernels of its own.

The command `corpusmill dedup` of that commit and of this one, in turn, on the same corpus, with a worker for every core
and all imports; and the same in a process that goes on, with one worker and everything imported. The first run of a
mode compiles and is thrown away. Ratios are those of two runs in a row: what else the machine does, both have. A run's
files are emptied, and deleted after the last run: to create a file, ext4 passes over all those that were deleted in the
last minutes, for which the next run would pay (0.8 ms for each of its files, 0.03 ms otherwise).
`python benchmarks/dedup_before.py CORPUS_FOLDER COMMIT`
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 7
MODES = (("remove", 500), ("annotate", 500), ("remove", 100))
HERE = Path(__file__).resolve().parent.parent


def serve() -> None:
    """Answer every line `[corpus, folder, mode, minimum_bytes]` with the seconds of a run of this side's Corpusmill."""
    for line in sys.stdin:
        print(json.dumps(seconds(*json.loads(line))), flush=True)


def seconds(corpus: str, runs: str, mode: str, minimum_bytes: int) -> dict[str, Any]:
    dedup = importlib.import_module("corpusmill.builds.dedup_alone")

    root = Path(tempfile.mkdtemp(prefix="run-", dir=runs))
    output = str(root / "clean")
    settings = {"mode": mode, "minimum_bytes": minimum_bytes}
    config = dedup.dedup_config(
        [corpus], output, settings, source={"shard_bytes": "8MB"}, work_folder=str(root / "work")
    )
    began, began_cpu = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        done = dedup.deduplicate(config, output, workers=1)
    taken: dict[str, Any] = {"cpu": time.process_time() - began_cpu, "wall": time.perf_counter() - began}
    taken |= {name: sum(receipt.seconds for receipt in done.build.receipts(name)) for name in ("index", "writeback")}
    return {**taken, "written": digest_and_empty(root)}


def command_seconds(tree: Path, corpus: str, runs: str, mode: str, minimum_bytes: int) -> dict[str, Any]:
    """Seconds of the command, of all its processes."""
    from memory_group import within

    root = Path(tempfile.mkdtemp(prefix="run-", dir=runs))
    options = {"output": root / "clean", "work-folder": root / "work", "shard-bytes": "8MB"}
    options |= {"mode": mode, "minimum-bytes": minimum_bytes}
    command = [sys.executable, "-m", "corpusmill.cli", "dedup", corpus]
    command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    group = within(0, command, Path(os.devnull), {"env": surroundings_of(tree), "cwd": tree})
    return {"cpu": group["cpu_seconds"], "wall": group["seconds"], "written": digest_and_empty(root)}


def digest_and_empty(root: Path) -> str:
    """The digest of what a run wrote. Its files become empty."""
    written = hashlib.sha256()
    for path in sorted((root / "clean").rglob("*.zst")):
        written.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    for path in filter(Path.is_file, root.rglob("*")):
        os.truncate(path, 0)
    return written.hexdigest()


def start(tree: Path) -> subprocess.Popen[str]:
    code = f"import sys, corpusmill; sys.path.append({str(HERE / 'benchmarks')!r}); import dedup_before\n"
    code += f"assert corpusmill.__file__.startswith({str(tree)!r}); dedup_before.serve()"
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", code], env=surroundings_of(tree), cwd=tree, stdin=pipe, stdout=pipe, text=True
    )


def surroundings_of(tree: Path) -> dict[str, str]:
    package = tree / "pipeline" if (tree / "pipeline" / "corpusmill").exists() else tree
    surroundings = {**os.environ, "PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(tree / ".cache" / "numba")}
    surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
    return surroundings


def ask(side: subprocess.Popen[str], *run: object) -> dict[str, Any]:
    assert side.stdin
    assert side.stdout
    print(json.dumps(run), file=side.stdin, flush=True)
    answer: dict[str, Any] = json.loads(side.stdout.readline())
    return answer


def compare(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> dict[str, Any]:
    assert len({item.pop("written") for item in (*before, *now)}) == 1, "not the same bytes"
    figures: dict[str, Any] = {}
    for clock in before[0]:
        pairs = [(old[clock], new[clock]) for old, new in zip(before, now, strict=True)]
        ratios = [old / new for old, new in pairs]
        figures[clock] = {
            "seconds_before": round(statistics.median(old for old, _ in pairs), 2),
            "seconds_now": round(statistics.median(new for _, new in pairs), 2),
            "rate_of_before": round(statistics.median(ratios), 3),
            "rate_of_before_by_round": [round(ratio, 3) for ratio in ratios],
        }
    return figures


def main() -> None:
    from results import write_result

    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("commit")
    arguments = parser.parse_args()
    corpus = str(Path(arguments.corpus).resolve())
    corpus_bytes = sum(path.stat().st_size for path in Path(corpus).iterdir())
    figures: dict[str, Any] = {"before": arguments.commit, "corpus_bytes": corpus_bytes, "rounds": ROUNDS}
    with tempfile.TemporaryDirectory(prefix="before-") as folder:
        archive = subprocess.run(["git", "archive", arguments.commit], cwd=HERE, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        trees = {"before": Path(folder).resolve(), "now": HERE}
        with start(trees["before"]) as before, start(trees["now"]) as now:
            sides = {"before": before, "now": now}
            ways: dict[str, Callable[..., dict[str, Any]]] = {
                "the command": lambda name, *run: command_seconds(trees[name], *run),
                "one worker": lambda name, *run: ask(sides[name], *run),
            }
            for (way, run), (mode, length) in itertools.product(ways.items(), MODES):
                taken: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
                for number in range(ROUNDS + 1):
                    for name in sorted(sides, reverse=number % 2 == 0):
                        taken[name].append(run(name, corpus, folder, mode, length))
                figures[f"{way}, {mode}, L={length}"] = compare(taken["before"][1:], taken["now"][1:])
                print(json.dumps(figures), flush=True)
            for side in sides.values():
                side.communicate()  # the end of its input ends it
    print(json.dumps(figures, indent=1))
    print(write_result("dedup_before", "deduplication beside its own rate at an earlier commit", figures))


if __name__ == "__main__":
    main()
