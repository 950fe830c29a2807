"""Rollups: the totals of a stage's units in one file, so that no task opens every receipt of earlier stages.

A task needs of most steps before its own that they have finished, their receipts' digests (its identity holds them)
and sums of their counts. Whoever needs those of a stage, or of half of it, first, reads every receipt of it and writes
that down beside the plan; whoever comes after reads the one file. Under a scheduler that is whoever lists the tasks.
The receipts stay what counts: outputs are compared with them when they are opened, and when one is new or becomes
another, the rollups of its stage and of all later ones are removed, of all plans.

    plan/<plan>/.rollup-<stage>     the seal: XXH3-128 of the rest, 32 hex digits, a line feed
                                    JSON: digests, by unit in order; totals, by count; details
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
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

    `details`: what else the stage sums up (Stage.rolled_up).
    """

    digests: dict[str, str]
    totals: dict[str, int]
    details: dict[str, Any]


def roll_up(receipts: Sequence[Receipt], details: Callable[[Sequence[Receipt]], dict[str, Any]]) -> Rollup:
    """The totals of a stage's receipts."""
    totals: Counter[str] = Counter()
    for receipt in receipts:
        totals.update(receipt.counts)
    return Rollup({receipt.unit: receipt.digest for receipt in receipts}, dict(totals), details(receipts))


def read_rollup(plan_folder: Path, stage: str) -> Rollup | None:
    """The rollup of a stage; None if there is none, or if it is not as written."""
    refresh(plan_folder / f"{_NAME}{stage}")
    try:
        seal, _, text = (plan_folder / f"{_NAME}{stage}").read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    return Rollup(**json.loads(text)) if seal.decode(errors="replace") == xxhash.xxh3_128_hexdigest(text) else None


def write_rollup(rollup: Rollup, plan_folder: Path, stage: str) -> None:
    """Write a rollup, by atomic rename. Whoever may not write does without: it saves time and nothing else."""
    text = json.dumps(asdict(rollup)).encode()
    with suppress(OSError):
        write(plan_folder / f"{_NAME}{stage}", xxhash.xxh3_128_hexdigest(text).encode() + b"\n" + text)


def remove_rollups(work: Path, stages: Collection[str]) -> None:
    """Remove the rollups of some stages, of all plans."""
    for path in names_below(work / PLAN, _NAME):
        if path.name.removeprefix(_NAME) in stages:
            remove(path)
