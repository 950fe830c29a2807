"""Rollups: the totals of a stage's units in one file, so that no task opens every receipt of earlier stages.

Of most earlier steps a task needs only that they have finished, their receipts' digests (for its own fingerprint) and
sums of their counts. The first process that needs those of half a stage or more reads all its receipts and writes the
rollup beside the plan; later ones read that file. Under a scheduler, the first is the task that lists the tasks.
Receipts remain authoritative: outputs are checked against them when they are opened, and when a receipt is new or
changes, the rollups of its stage and of all later stages are removed in all plans.

    plan/<plan>/.rollup-<stage>     the seal: XXH3-128 of the rest, 32 hex digits, a line feed
                                    JSON: XXH3-128 of the units' names; totals, by count; details; a line feed
                                    the receipts' digests, 32 bytes each, in the order of the units

So a task that needs one digest of ten thousand decodes one.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import xxhash

from corpusmill.engine.graph import PLAN
from corpusmill.engine.ledger import Receipt
from corpusmill.engine.work_folder.small import names_below, refresh, remove, write

ROLLUP, NOTE = ".rollup-", ".standing"  # the latter behind a rollup's name, see unchanged.py
DIGEST_BYTES = 32


class Digests(Mapping[str, str]):
    """{unit: 64 hex digits}, kept as `raw` bytes: DIGEST_BYTES for each unit, in their order."""

    def __init__(self, units: list[str], raw: bytes) -> None:
        self._units = units
        self.raw = raw

    @cached_property
    def _place(self) -> dict[str, int]:
        return {unit: DIGEST_BYTES * number for number, unit in enumerate(self._units)}

    def __getitem__(self, unit: str) -> str:
        place = self._place[unit]
        return self.raw[place : place + DIGEST_BYTES].hex()

    def __iter__(self) -> Iterator[str]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self._units)

    def of(self, units: list[str]) -> bytes:
        """The digests of some units, given in their order, as bytes behind each other."""
        if len(units) == len(self._units):
            return self.raw
        return b"".join(self.raw[self._place[unit] : self._place[unit] + DIGEST_BYTES] for unit in units)


def digest_of_many(digests: bytes) -> str:
    """The digest of an input that names many steps (stage.py): of their receipts' digests, 32 bytes each, in order."""
    return hashlib.sha256(digests).hexdigest()


@dataclass(frozen=True)
class Rollup:
    """`digests`: those of the receipts, by unit, in the order of the units. `totals`: the sum of every count.

    `details`: further sums of the stage (Stage.rolled_up).
    """

    digests: Digests
    totals: dict[str, int]
    details: dict[str, Any]


def roll_up(receipts: Iterable[Receipt], details: Callable[[Iterator[Receipt]], dict[str, Any]]) -> Rollup:
    """The totals of a stage's receipts, read once and not kept, since ten thousand take 100 MB."""
    units: list[str] = []
    raw = bytearray()
    totals: Counter[str] = Counter()

    def counted() -> Iterator[Receipt]:
        for receipt in receipts:
            units.append(receipt.unit)
            raw.extend(bytes.fromhex(receipt.digest))
            totals.update(receipt.counts)
            yield receipt

    passing = counted()
    more = details(passing)
    deque(passing, maxlen=0)  # the receipts that `details` did not read
    return Rollup(Digests(units, bytes(raw)), dict(totals), more)


def read_rollup(plan_folder: Path, stage: str, units: list[str]) -> Rollup | None:
    """The rollup of a stage with these units; None if there is none. One that is damaged or of other units is removed,
    since it would be read for each of ten thousand steps.
    """
    path = plan_folder / f"{ROLLUP}{stage}"
    refresh(path)
    try:
        header, _, raw = (read_sealed(path) or b"{}").partition(b"\n")
    except FileNotFoundError:
        return None
    values = json.loads(header)
    if values.get("units") != _names(units) or len(raw) != DIGEST_BYTES * len(units):
        with suppress(OSError):
            remove(path)
        return None
    return Rollup(Digests(units, raw), values["totals"], values["details"])


def write_rollup(rollup: Rollup, plan_folder: Path, stage: str) -> None:
    """Write a rollup by atomic rename. Errors are ignored: a rollup only saves time."""
    header = {"units": _names(rollup.digests), "totals": rollup.totals, "details": rollup.details}
    text = json.dumps(header).encode() + b"\n" + rollup.digests.raw
    with suppress(OSError):
        write(plan_folder / f"{ROLLUP}{stage}", sealed(text))


def _names(units: Iterable[str]) -> str:
    return xxhash.xxh3_128_hexdigest("\n".join(units).encode())


def sealed(text: bytes) -> bytes:
    """The content of a file that holds `text`."""
    return xxhash.xxh3_128_hexdigest(text).encode() + b"\n" + text


def read_sealed(path: Path) -> bytes | None:
    """What a file was sealed with; None if it is damaged."""
    seal, _, text = path.read_bytes().partition(b"\n")
    return text if seal.decode(errors="replace") == xxhash.xxh3_128_hexdigest(text) else None


def remove_rollups(work: Path, stages: Collection[str]) -> None:
    """Remove the rollups and the notes of some stages, of all plans."""
    for path in names_below(work / PLAN, ROLLUP):
        if path.name.removeprefix(ROLLUP).removesuffix(NOTE) in stages:
            remove(path)
