"""Unchanged stages: those whose every step is as it was when a build last ended, found by stat calls.

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

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import xxhash

from corpusmill.engine.ledger import RECEIPT_NAME, place_of, rerun_requested, size_of, valid_receipt
from corpusmill.engine.ledger.receipt import UNREADABLE
from corpusmill.engine.reclaim import LATER
from corpusmill.engine.rollup import NOTE, ROLLUP, read_sealed, sealed
from corpusmill.engine.stage import StepMissingError
from corpusmill.engine.work_folder.small import is_shared, write
from corpusmill.errors import CorruptDataError

if TYPE_CHECKING:
    from corpusmill.engine.build import Build

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
