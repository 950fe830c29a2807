"""Claim: a long-lived work folder delivers what a build from scratch does, whatever was edited, killed or damaged.

Runs tests/search/edits.py by seeds until so many steps were taken: each seed is five long-lived folders of up to 20
steps, and a build from scratch beside every step, all in this process. With `--dag` the datasets' own DAGs build the
folder, two folders of up to 5 steps a seed. Seeds that stand in the result file are not run again, so the command goes
on where it was stopped (`--anew` forgets them); a difference is written down with its seed, and `--only SEED` shrinks
it to the least edits that show it.
`python benchmarks/edits.py --steps 1000`, `python benchmarks/edits.py --dag --steps 100`
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from results import HERE, write_result

from tests.search.edits import LongLivedFolder
from tests.search.run import search

FOLDERS, STEPS = 5, 20
DAG_FOLDERS, DAG_STEPS = 2, 6


def earlier(name: str) -> dict[str, dict[str, Any]]:
    """The seeds that the result file has."""
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text())["figures"]["seeds"] if path.exists() else {}


def through_dags(seed: int, *, shrink: bool = False) -> Counter[str]:
    """Folders that the datasets' own DAGs build."""
    from tests.dags.conftest import make_database
    from tests.dags.edits import search_through_dags

    make_database()
    with tempfile.TemporaryDirectory(prefix="datasets-") as datasets:
        return search_through_dags(seed, Path(datasets), folders=DAG_FOLDERS, steps=DAG_STEPS, shrink=shrink)


def in_process(seed: int, *, shrink: bool = False) -> Counter[str]:
    return search(LongLivedFolder, seed, folders=FOLDERS, steps=STEPS, shrink=shrink)


def one_seed(seed: int, run: Callable[[int], Any]) -> dict[str, Any]:
    """What a seed came to. Hypothesis runs a folder with a difference again, so its steps count twice."""
    began = time.monotonic()
    difference = None
    try:
        run(seed)
    except Exception as error:
        difference = f"{type(error).__name__}: {error}"[:600]
    return {
        "steps": LongLivedFolder.seen["steps"],
        "difference": difference,
        "seconds": round(time.monotonic() - began, 1),
        "kinds": dict(sorted(LongLivedFolder.seen.items())),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--dag", action="store_true", help="build the long-lived folder by the datasets' own DAGs")
    parser.add_argument("--only", type=int, help="run this seed alone, and shrink what it finds")
    parser.add_argument("--anew", action="store_true", help="forget the seeds of the result file")
    arguments = parser.parse_args()
    logging.getLogger("corpusmill").setLevel(logging.CRITICAL)
    name, run = ("edits_dag", through_dags) if arguments.dag else ("edits", in_process)
    if arguments.only is not None:
        print(run(arguments.only, shrink=True))
        return
    seeds = {} if arguments.anew else earlier(name)
    number = 0
    while sum(seed["steps"] for seed in seeds.values()) < arguments.steps:
        if str(number) not in seeds:
            seeds[str(number)] = one_seed(number, run)
            kinds = sum((Counter(seed["kinds"]) for seed in seeds.values()), Counter[str]())
            figures = {
                "steps": kinds["steps"],
                "differences": sum(seed["difference"] is not None for seed in seeds.values()),
                "kinds": dict(sorted(kinds.items())),
                "seeds": seeds,
            }
            write_result(
                name, f"random steps in long-lived work folders, {figures['differences']} differences", figures
            )
            print(f"seed {number}: {seeds[str(number)]['steps']} steps, {seeds[str(number)]['difference']}", flush=True)
        number += 1
    print(HERE / "results" / f"{name}.json")


if __name__ == "__main__":
    main()
