"""Claim: a million changed lines, ten thousand changed files of each kind: read as their oracles read them, or refused.

Targets and oracles are in tests/fuzz. `make fuzz` runs each for a minute (FUZZ_SECONDS) and keeps what it finds below
tests/fuzz/cases, where `make test` reads it; `python benchmarks/fuzz.py --aims` runs each up to its aim and writes the
result, of the named targets alone where some are named. `--seed` draws other inputs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fuzz import files, steps, texts
from tests.fuzz.answers import answers
from tests.fuzz.fuzzer import fuzz
from tests.fuzz.target import Target

RESULT = Path(__file__).parent / "results" / "fuzz.json"


def targets(stack: ExitStack, names: list[str]) -> Iterator[Target]:
    for target in (*texts.TARGETS, *files.TARGETS, *steps.TARGETS):
        if not names or target.name in names:
            yield target
    if not names or "answers" in names:
        yield stack.enter_context(answers())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--aims", action="store_true")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    with ExitStack() as stack:
        for target in targets(stack, given.names):
            seconds, cases = (0.0, target.aim) if given.aims else (given.seconds, 0)
            done = fuzz(target, seconds=seconds, cases=cases, seed=given.seed)
            figures[target.name] = {"cases": done.cases.total(), **dict(sorted(done.cases.items()))}
            print(target.name, figures[target.name], flush=True)
            for path, fault in done.faults.items():
                print(f"  {fault}: tests/fuzz/cases/{path}", flush=True)
            figures[target.name]["faults"] = len(done.faults)
    faults = sum(figure["faults"] for figure in figures.values())
    if given.aims:
        earlier = json.loads(RESULT.read_text())["figures"] if given.names and RESULT.exists() else {}
        claim = "changed inputs are read as their oracles read them, or refused"
        print(write_result("fuzz", claim, {**earlier, **figures}))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
