"""Rollups: the totals of a stage's units in one file, so that no task opens every receipt of earlier stages.

Of most earlier steps a task needs only that they have finished, their receipts' digests (for its own fingerprint) and
sums of their counts. The first process that needs those of half a stage or more reads all its receipts and writes the
rollup beside the plan; later ones read that file. Under a scheduler, the first is the task that lists the tasks.
Receipts remain authoritative: outputs are checked against them when they are opened, and when a receipt is new or
changes, the rollups of its stage and of all later stages are removed in all plans.

    plan/<plan>/.rollup-<stage>     the seal: XXH3-128 of the rest, 32 hex digits, a line feed
                                    JSON: digests, by unit in order; totals, by count; details
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from corpusmill.engine.graph import PLAN
from corpusmill.ledger import Receipt
from corpusmill.work_folder.small import names_below, refresh, remove, write

_NAME = ".rollup-"


@dataclass(frozen=True)
class Rollup:
    """`digests`: those of the receipts, by unit, in the order of the units. `totals`: the sum of every count.

    `details`: further sums of the stage (Stage.rolled_up).
    """

    digests: dict[str, str]
    totals: dict[str, int]
    details: dict[str, Any]


def roll_up(receipts: Iterable[Receipt], details: Callable[[Iterator[Receipt]], dict[str, Any]]) -> Rollup:
    """The totals of a stage's receipts, read once and not kept, since ten thousand take 100 MB."""
    digests: dict[str, str] = {}
    totals: Counter[str] = Counter()

    def counted() -> Iterator[Receipt]:
        for receipt in receipts:
            digests[receipt.unit] = receipt.digest
            totals.update(receipt.counts)
            yield receipt

    passing = counted()
    more = details(passing)
    deque(passing, maxlen=0)  # the receipts that `details` did not read
    return Rollup(digests, dict(totals), more)


def read_rollup(plan_folder: Path, stage: str) -> Rollup | None:
    """The rollup of a stage; None if it is missing or damaged."""
    refresh(plan_folder / f"{_NAME}{stage}")
    try:
        seal, _, text = (plan_folder / f"{_NAME}{stage}").read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    return Rollup(**json.loads(text)) if seal.decode(errors="replace") == xxhash.xxh3_128_hexdigest(text) else None


def write_rollup(rollup: Rollup, plan_folder: Path, stage: str) -> None:
    """Write a rollup by atomic rename. Errors are ignored: a rollup only saves time."""
    text = json.dumps(asdict(rollup)).encode()
    with suppress(OSError):
        write(plan_folder / f"{_NAME}{stage}", xxhash.xxh3_128_hexdigest(text).encode() + b"\n" + text)


def remove_rollups(work: Path, stages: Collection[str]) -> None:
    """Remove the rollups of some stages, of all plans."""
    for path in names_below(work / PLAN, _NAME):
        if path.name.removeprefix(_NAME) in stages:
            remove(path)
