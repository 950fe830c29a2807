"""Claim: of 1,000 flipped bytes in what a build left, none is delivered, and each is made good by its producer alone.

One byte of one file, drawn by seed over every kind of file that a build writes: in the work folder (receipts included),
at a destination folder, and in an S3 store. `verify` must find it; the next build, of the same configuration or of one
of which later steps run again, must deliver the right bytes (tests/faults/flips.py). `python benchmarks/flips.py` goes
on behind the last row of its table (.cache/flips.jsonl); remove that to begin anew.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.faults.flips import FinishedBuild, Flip
from tests.faults.mutation import import_everything
from tests.faults.planted_builds import own_s3, warm_up

ENDS = ("right", "refused, then right", "wrong")
TABLE = Path(__file__).resolve().parent.parent / ".cache" / "flips.jsonl"
MEMORY = Path("/dev/shm")  # noqa: S108 - receipts and deliveries are flushed, which costs nothing there


def figures_of(flips: list[Flip]) -> dict[str, Any]:
    told = [flip for flip in flips if flip.end != "no meaning"]
    by_steps = Counter("none" if not item.extra else "its producer" if item.alone else "others" for item in told)
    return {
        "flips": len(flips),
        "by_place": dict(sorted(Counter(flip.place for flip in flips).items())),
        "kinds_of_files": len({(flip.place, flip.kind) for flip in flips}),
        "ends": dict(sorted(Counter(flip.end for flip in flips).items())),
        "found_by_verify_before": sum(item.seen for item in told),
        "well_afterwards": sum(not item.left for item in told),
        "steps_that_ran_beside_the_usual": dict(sorted(by_steps.items())),
        "delivered_wrong": [asdict(flip) for flip in flips if flip.end == "wrong"],
        "called_well": [asdict(item) for item in told if not item.seen],
        "not_made_good": [asdict(item) for item in told if item.left or item.end not in ENDS],
        "by_others_than_its_producer": [asdict(item) for item in told if item.extra and not item.alone],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=1000)
    wanted = parser.parse_args().flips
    logging.disable(logging.CRITICAL)
    TABLE.parent.mkdir(exist_ok=True)
    flips = [Flip(**json.loads(row)) for row in TABLE.read_text().splitlines()] if TABLE.exists() else []
    import_everything()
    with (
        tempfile.TemporaryDirectory(prefix="flips-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder,
        own_s3(Path(folder)) as endpoint,
        TABLE.open("a") as table,
    ):
        warm_up(Path(folder) / "warm")
        finished = FinishedBuild(Path(folder) / "finished", endpoint)
        for seed in range(len(flips), wanted):
            flips.append(finished.flip(seed))
            table.write(json.dumps(asdict(flips[-1])) + "\n")
            table.flush()
    figures = figures_of(flips)
    print(figures)
    print(write_result("flips", f"{len(flips):,} flipped bytes: none delivered, none called well", figures))
    assert not any(figures[key] for key in ("delivered_wrong", "called_well", "not_made_good"))


if __name__ == "__main__":
    main()
