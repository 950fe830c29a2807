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

Unchanged stages: those whose every step is as it was when a build last ended, found by stat calls.

Checking one finished step means computing its fingerprint, reading its receipt and looking at its outputs; for a
hundred thousand steps, of which usually none has changed, `plan` took 39 s. So a build that ends notes for each stage
what the fingerprints were computed from, the fingerprints, and what the file system says of receipts and outputs.
`is_unchanged` compares: a stage with any difference is looked at step by step, as without a note.

    plan/<plan>/.rollup-<stage>.standing     the seal, a line feed, and JSON (NotedStage)

What must be equal: the stage's version, its units, their settings and the names of their inputs (`made_from`); the
digests of all receipts of the stages that it reads; of each receipt inode, size and time of change (st_ctime, which no
call sets); of each output its size. No step may be marked to run again, and if files were reclaimed, their readers
are unchanged, too. A note is trusted as a rollup is, and goes with it: when a receipt is new or changes. There are none
in a bucket, whose receipts have no inodes.

Price: 50 to 60 microseconds of CPU a step, and 155 bytes in the note; to note a stage reads all its receipts once more.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from corpusmill.engine.ledger import RECEIPT_NAME, Receipt, place_of, rerun_requested, size_of, valid_receipt
from corpusmill.engine.ledger.receipt import UNREADABLE
from corpusmill.engine.reclaim import LATER
from corpusmill.engine.stage import PLAN, StepMissingError
from corpusmill.engine.work_folder.small import is_shared, names_below, refresh, remove, write
from corpusmill.errors import CorruptDataError

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


ROLLUP, NOTE = ".rollup-", ".standing"  # the latter behind a rollup's name, see below
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


UNKNOWN = (StepMissingError, TypeError)  # the latter: settings that are not plain JSON
Seen = tuple[int, int, int]
"""Inode, size in bytes and time of change in nanoseconds."""


class NotedStep(msgspec.Struct, frozen=True, array_like=True):
    """One step: its fingerprint, its receipt, and the sizes in bytes of its outputs but those that were reclaimed."""

    fingerprint: str
    receipt: Seen
    outputs: dict[str, int]


class NotedStage(msgspec.Struct, frozen=True):
    """A stage as it was, with its steps by unit."""

    made_from: str
    steps: dict[str, NotedStep]
    reclaimed: bool = msgspec.field(name="gave_back")


def is_unchanged(build: Build, stage: str) -> bool:
    """Whether every step of a stage has finished, as when it was noted; build.noted_stages has the note if so."""
    known = build.noted_stages.get(stage)
    if known is not None and _path(build, stage).exists():  # it is removed when a receipt of an earlier stage changes
        return True
    build.noted_stages.pop(stage, None)
    if not build.keeps_rollup(stage) or is_shared(build.work):
        return False
    noted = _read(build, stage)
    if noted is None or not _agrees(build, stage, noted):
        return False
    build.noted_stages[stage] = noted
    return True


def note_unchanged(build: Build) -> None:
    """Note every stage whose steps have all finished and that has not been noted so."""
    if is_shared(build.work):
        return
    for stage in build.graph.names:
        if build.keeps_rollup(stage) and not is_unchanged(build, stage):
            with suppress(*UNKNOWN, CorruptDataError, OSError):  # it only saves time
                _write(build, stage)


def _write(build: Build, stage: str) -> None:
    steps: dict[str, NotedStep] = {}
    reclaimed = False
    for unit in build.units(stage):
        step = build.step(stage, unit)
        place = step.place(build.home(stage))
        seen = _seen(f"{place}/{RECEIPT_NAME}")
        receipt = valid_receipt(step, build.home(stage))
        if receipt is None or rerun_requested(place) or seen != _seen(f"{place}/{RECEIPT_NAME}"):
            return
        sizes = {output.name: output.size_bytes for output in receipt.outputs if output.name not in receipt.reclaimed}
        steps[unit] = NotedStep(step.fingerprint(), seen, sizes)
        reclaimed |= bool(receipt.reclaimed)
    made_from = _made_from(build, stage)
    build.rollup(stage)  # of which later stages are made
    noted = NotedStage(made_from, steps, reclaimed)
    write(_path(build, stage), sealed(msgspec.json.encode(noted)))


def _path(build: Build, stage: str) -> Path:
    return build.plan_folder / f"{ROLLUP}{stage}{NOTE}"


def _read(build: Build, stage: str) -> NotedStage | None:
    try:
        text = read_sealed(_path(build, stage))
    except FileNotFoundError:
        return None
    with suppress(*UNREADABLE):  # of another version
        return msgspec.json.decode(text, type=NotedStage) if text is not None else None
    return None


def _agrees(build: Build, stage: str, noted: NotedStage) -> bool:
    node = build.graph[stage]
    try:
        if noted.made_from != _made_from(build, stage):
            return False
    except UNKNOWN:
        return False
    if noted.reclaimed and not all(is_unchanged(build, later) for later in build.graph.between(stage, node.read_until)):
        return False
    home = build.home(stage)
    if (home / stage / LATER).exists():  # its files are to be deleted as soon as a step runs
        return False
    try:
        return all(
            _is_as_noted(place_of(home, stage, unit, step.fingerprint), step) for unit, step in noted.steps.items()
        )
    except OSError:
        return False


def _is_as_noted(place: str, noted: NotedStep) -> bool:
    if _seen(f"{place}/{RECEIPT_NAME}") != noted.receipt or rerun_requested(place):
        return False
    return all(size_of(f"{place}/{name}") == size for name, size in noted.outputs.items())


def _seen(path: str) -> Seen:
    status = os.stat(path)  # noqa: PTH116
    return status.st_ino, status.st_size, status.st_ctime_ns


def _made_from(build: Build, stage: str) -> str:
    """A digest of all that determines the fingerprints of a stage's steps."""
    node = build.graph[stage]
    digest = xxhash.xxh3_128(f"{stage} {node.version}".encode())
    read: set[str] = set()
    encode = msgspec.json.Encoder().encode
    for unit in build.units(stage):
        inputs = node.inputs(build, unit)
        read.update(dict(inputs))
        digest.update(encode((unit, node.settings(build, unit), inputs)))
    for name in sorted(read):
        digest.update(build.rollup(name).digests.raw)
    return digest.hexdigest()
