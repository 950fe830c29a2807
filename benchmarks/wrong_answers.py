"""Claim: of 20,000 answers of stores that look well and are wrong, none is delivered.

A proxy (tests/faults/proxy.py) between the steps of a build and an S3 server, Google's emulator and a hub changes a
byte of an answer, cuts it, exchanges it with another one, or repeats an earlier one: pages of listings, descriptions,
ranges of objects, whole, in parts and streamed. A round (tests/faults/wrong_answers.py) plans, downloads and indexes
nine files and compares every document. `python benchmarks/wrong_answers.py` goes on behind the last round of its table
(.cache/wrong_answers.jsonl); remove that to begin anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.faults.proxy import LIES
from tests.faults.wrong_answers import KINDS, Round, read_through, small_sizes, store_of, stores
from tests.servers import gcs_emulator, rclone_s3

ANSWERS = 20_000
TABLE = Path(__file__).resolve().parent.parent / ".cache" / "wrong_answers.jsonl"


def rounds_of(table: Path) -> list[Round]:
    return [Round(**json.loads(row)) for row in table.read_text().splitlines()] if table.exists() else []


def harmed(rounds: Iterable[Round]) -> int:
    return sum(sum(item.harmed.values()) for item in rounds)


def figures_of(rounds: list[Round]) -> dict[str, Any]:
    ended: dict[str, Counter[str]] = {store: Counter() for store in KINDS}
    for item in rounds:
        ended[item.store][item.end] += 1
    return {
        "answers_harmed": harmed(rounds),
        "by_kind": {kind: sum(item.harmed[kind] for item in rounds) for kind in LIES},
        "by_store": {store: harmed(item for item in rounds if item.store == store) for store in KINDS},
        "rounds": len(rounds),
        "rounds_ended": {store: dict(sorted(ends.items())) for store, ends in ended.items()},
        "files_and_parts_without_checksum": sum(item.without_checksum for item in rounds),
        "rounds_that_delivered_something_wrong": sum(ends["wrong"] for ends in ended.values()),
    }


def main() -> None:
    TABLE.parent.mkdir(exist_ok=True)
    rounds = rounds_of(TABLE)
    with tempfile.TemporaryDirectory(prefix="wrong-answers-") as folder:
        root = Path(folder)
        (root / "buckets" / "corpus").mkdir(parents=True)
        with (
            rclone_s3(root) as s3,
            gcs_emulator(root) as gcs,
            stores(s3.endpoint, gcs.endpoint) as (far, documents),
            small_sizes(),
            TABLE.open("a") as table,
        ):
            for seed in count(len(rounds)):
                if harmed(rounds) >= ANSWERS:
                    break
                rounds.append(read_through(far[store_of(seed)], seed, documents, root / str(seed)))
                table.write(json.dumps(asdict(rounds[-1])) + "\n")
                table.flush()
    figures = figures_of(rounds)
    print(figures)
    print(write_result("wrong_answers", "20,000 wrong answers of stores that look well: none delivered", figures))
    assert figures["rounds_that_delivered_something_wrong"] == 0


if __name__ == "__main__":
    main()
