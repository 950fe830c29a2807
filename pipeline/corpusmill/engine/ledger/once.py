"""Run a step, or reuse what an earlier run of the same step left; in a bucket, one conditional request commits it."""

from __future__ import annotations

import logging
import os
import resource
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any

import xxhash
from msgspec.structs import replace

from corpusmill.engine.ledger.blocks import Blocks, DamagedStepError, note_read, read_digests
from corpusmill.engine.ledger.cache import make_room
from corpusmill.engine.ledger.finished import (
    RERUN,
    move_up,
    refresh_step,
    remove_others,
    request_rerun,
    rerun_requested,
)
from corpusmill.engine.ledger.lock import LOCK_NAME, locked, open_files, remove_unfinished
from corpusmill.engine.ledger.receipt import (
    BLOCKS_NAME,
    RECEIPT_NAME,
    InputReceipt,
    OutputFile,
    Receipt,
    installed_versions,
    output_file,
    output_file_and_blocks,
    read_receipt,
    write_receipt,
)
from corpusmill.engine.work_folder.outputs import new_attempt, remove, send, sent
from corpusmill.engine.work_folder.small import is_shared, put, refresh
from corpusmill.errors import (
    BalanceError,
    CorpusmillError,
    CorruptDataError,
    PermanentError,
    StorageFullError,
    TransientError,
    full_device_explained,
)
from corpusmill.fingerprint import FOLDER_DIGITS, Algorithm, fingerprint

TRIES = 16

log = logging.getLogger(__name__)


class NotDeterministicError(PermanentError):
    """Two attempts at one step wrote different bytes."""


def commit(receipt: Receipt, folder: Path, *, reuse: bool) -> None:
    """Publish a step's receipt, unless another attempt has published an equal one: then that one counts.

    The outputs have been sent before. The receipt in the bucket, if any, must still be the one from before the step; of
    a step that runs every time (not `reuse`), any receipt is replaced. NotDeterministicError if another attempt made
    different bytes, TransientError if others keep writing it.
    """
    path = folder / RECEIPT_NAME
    for _ in range(TRIES):
        if put(path, receipt.text()):
            _require_whole(receipt, folder)
            return
        try:
            theirs = read_receipt(path)
        except (FileNotFoundError, CorruptDataError):
            continue
        if not reuse or theirs.again or theirs.reclaimed or theirs.fingerprint != receipt.fingerprint:
            continue
        if theirs.digest != receipt.digest:
            raise NotDeterministicError(
                f"step.not_reproducible: two attempts at {receipt.stage} {receipt.unit} wrote different bytes",
                where=path,
                expected=f"digest {theirs.digest}, of attempt {theirs.attempt}",
                got=f"digest {receipt.digest}, of attempt {receipt.attempt}",
                next_step="report this with both receipts; a custom step may depend on time, order or the machine",
            )
        log.info("%s %s: another worker was first, with the same bytes", receipt.stage, receipt.unit)
        remove(folder, receipt.attempt)
        return
    raise TransientError(f"receipt.contended: others write the receipt of {receipt.stage} {receipt.unit}", where=path)


def _require_whole(receipt: Receipt, folder: Path) -> None:
    """Send outputs again that garbage collection removed while a slow attempt had no receipt."""
    sent_sizes = sent(folder, receipt.attempt)
    lost = [output.name for output in receipt.outputs if sent_sizes.get(output.name) != output.size_bytes]
    if lost:
        log.warning("%s %s: %d outputs are sent again", receipt.stage, receipt.unit, len(lost))
        send(folder, folder, receipt.attempt, lost)


@dataclass(frozen=True)
class Step:
    """One unit of one stage, and everything that can change its bytes."""

    stage: str
    version: int
    unit: str
    settings: dict[str, Any]
    inputs: tuple[InputReceipt, ...]

    @classmethod
    def of(cls, receipt: Receipt) -> Step:
        """The step of a receipt."""
        return cls(receipt.stage, receipt.stage_version, receipt.unit, receipt.settings, receipt.inputs)

    def fingerprint(self) -> str:
        """64 hex digits: equal for two steps that must write the same bytes."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(
            {
                "stage": self.stage,
                "version": self.version,
                "unit": self.unit,
                "settings": self.settings,
                "inputs": [receipt.digest for receipt in self.inputs],
            }
        )

    def folder(self, work: Path) -> Path:
        """Where the step's outputs live below the dataset's work folder."""
        return Path(self.place(work))

    def place(self, work: Path) -> str:
        """The same as text, since building a Path takes as long as a stat call."""
        return place_of(work, self.stage, self.unit, self.fingerprint())


def place_of(work: Path, stage: str, unit: str, fingerprint: str) -> str:
    """Step.place of a step with this fingerprint."""
    return f"{work}/{stage}/{unit}-{fingerprint[:FOLDER_DIGITS]}"


@dataclass(frozen=True)
class Outcome:
    """What a step's body returns: totals for the balance, details for people, and traffic with stores."""

    counts: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    traffic: dict[str, int] = field(default_factory=dict)


def run_once(
    step: Step,
    work: Path,
    body: Callable[[Path], Outcome],
    *,
    delivers: bool = False,
    reuse: bool = True,
    verify: bool = False,
    versions: Mapping[str, str] | None = None,
) -> Path:
    """Return the path of the step's receipt, running `body` only if there is no valid one.

    `body` receives an empty folder and writes the step's outputs there. With `delivers` the outputs are delivered, so
    the receipt states their sha256. With `reuse` false it always runs; with `verify` a receipt is reused only if every
    output still has the digest that it states. `versions`: added to those of the code and the libraries in a new
    receipt. A step whose outputs were reclaimed (finished.py) runs. A step that runs although it has a receipt
    writes beside its old outputs, which others read until the new files, then the new receipt, replace them. An attempt
    that ends before that leaves the rerun requested. A full device becomes StorageFullError, a limit of open files
    PermanentError; every other error passes through, and leaves no new receipt behind.
    """
    folder = step.folder(work)
    with _explained(step, folder), open_files(f"{step.stage} {step.unit}"), _locked(folder):
        receipt_path = folder / RECEIPT_NAME
        refresh(receipt_path, again=True)
        refresh_step(folder)
        receipt, wrong = _judged(step, work, verify=verify) if reuse and not rerun_requested(folder) else (None, "")
        if wrong:
            log.warning("%s %s runs again: %s in %s", step.stage, step.unit, wrong, folder)
        if receipt and not receipt.reclaimed:
            log.info("%s %s: reused, %s", step.stage, step.unit, folder.name)
            return receipt_path
        request_rerun(folder)
        written = folder / RERUN if rerun_requested(folder) else folder
        remove_unfinished(written)
        started = time.monotonic()
        _forget_peak_memory()
        outcome = body(written)
        outputs, blocks = _settled_outputs(written, "sha256" if delivers else "xxh3_128")
        receipt = Receipt(
            stage=step.stage,
            stage_version=step.version,
            unit=step.unit,
            fingerprint=step.fingerprint(),
            settings=step.settings,
            inputs=step.inputs,
            counts=_whole(outcome.counts, step),
            details=outcome.details,
            outputs=outputs,
            versions={**installed_versions(), **(versions or {})},
            traffic=outcome.traffic,
            seconds=round(time.monotonic() - started, 3),
            peak_rss_bytes=_peak_memory_bytes(),
            blocks=xxhash.xxh3_128_hexdigest(blocks),
            attempt=new_attempt() if is_shared(folder) else "",
        )
        names = {BLOCKS_NAME, *(output.name for output in outputs)}
        if receipt.attempt:
            send(written, folder, receipt.attempt, sorted(names))
        if written != folder:
            move_up(written, folder)
        if receipt.attempt:
            make_room(folder, sum(output.size_bytes for output in outputs), here=True)
            commit(receipt, folder, reuse=reuse)
        else:
            write_receipt(receipt, folder)
        if written != folder:
            remove_others(folder, {RECEIPT_NAME, LOCK_NAME, *names})
        return receipt_path


def valid_receipt(step: Step, work: Path, *, verify: bool = False) -> Receipt | None:
    """The step's receipt if it is valid: same fingerprint, and every output that was not reclaimed has the stated
    size.

    With `verify` every output is also read, and must have the stated digest.
    """
    return _judged(step, work, verify=verify)[0]


def _judged(step: Step, work: Path, *, verify: bool) -> tuple[Receipt | None, str]:
    """(the receipt if it is valid, else None; what is wrong with it or its outputs).

    A step whose folder another process is removing counts as missing, not as wrong: the receipt is removed first.
    """
    place = step.place(work)
    path = f"{place}/{RECEIPT_NAME}"
    refresh_step(place)
    try:
        receipt = read_receipt(path)
    except FileNotFoundError:
        return None, ""
    except CorpusmillError as error:
        return None, str(error)
    wrong = _what_is_wrong(receipt, step, place, verify=verify)
    return (None, wrong if os.path.exists(path) else "") if wrong else (receipt, "")  # noqa: PTH110


def _what_is_wrong(receipt: Receipt, step: Step, place: str, *, verify: bool) -> str | None:
    if receipt.fingerprint != step.fingerprint():
        return "its receipt was edited"
    if receipt.attempt:
        # In a bucket: a missing output is noticed when it is opened.
        if not verify:
            return None
        try:
            Blocks(Path(place), receipt).require(
                output.name for output in receipt.outputs if output.name not in receipt.reclaimed
            )
        except DamagedStepError as error:
            return str(error)
    return _what_is_wrong_here(receipt, place, verify=verify)


def _what_is_wrong_here(receipt: Receipt, place: str, *, verify: bool) -> str | None:
    # A build of many shards checks a million outputs: building a Path for each takes ten times as long.
    for output in receipt.outputs:
        if output.name in receipt.reclaimed:
            continue
        if (size := size_of(f"{place}/{output.name}")) != output.size_bytes:
            return f"{output.name} is {f'{size:,} bytes, not {output.size_bytes:,}' if size >= 0 else 'missing'}"
        if verify and output_file(Path(place, output.name), output.name, output.algorithm) != output:
            return f"{output.name} does not have the digest {output.digest}"
    if verify and xxhash.xxh3_128_hexdigest(read_digests(Path(place))) != receipt.blocks:
        return f"{BLOCKS_NAME} does not have the digest {receipt.blocks}"
    return None


def _whole(counts: Mapping[str, int], step: Step) -> dict[str, int]:
    """The counts as plain integers; BalanceError for one that is not a whole number."""
    whole = {}
    for name, count in counts.items():
        try:
            whole[name] = index(count)
        except TypeError as error:
            raise BalanceError(
                "step.count_not_whole: a step counted something that is not a whole number",
                where=f"{step.stage} {step.unit}, count {name!r}",
                expected="an int",
                got=type(count).__name__,
                next_step="count in whole numbers; what is measured belongs in the outcome's details",
            ) from error
    return whole


def size_of(path: str) -> int:
    """The size of a file in bytes; -1 if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def _settled_outputs(folder: Path, algorithm: Algorithm) -> tuple[tuple[OutputFile, ...], bytes]:
    """(outputs below `folder` in order of name, content of `.blocks`, which is written).

    Nothing is flushed to the device, which writes within half a minute by itself: whoever opens an output that a power
    cut took finds other bytes than the receipt states, and the step runs again. Deliveries are flushed (storage/).
    """
    outputs: list[OutputFile] = []
    digests: list[bytes] = []
    known: dict[tuple[int, int], tuple[OutputFile, bytes]] = {}  # a file may have several names (hard links)
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if not path.is_dir() and path.name != LOCK_NAME:
            name = path.relative_to(folder).as_posix()
            status = path.stat()
            if (identity := (status.st_dev, status.st_ino)) not in known:
                known[identity] = output_file_and_blocks(path, name, algorithm)
            note_read(path, status)
            output, blocks = known[identity]
            outputs.append(replace(output, name=name))
            digests.append(blocks)
    (folder / BLOCKS_NAME).write_bytes(b"".join(digests))
    return tuple(outputs), b"".join(digests)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK_NAME, wait=True):
        yield


@contextmanager
def _explained(step: Step, folder: Path) -> Iterator[None]:
    what = f"step.disk_full: no space left while {step.stage} {step.unit} wrote its outputs"
    next_step = "free space or move work_folder to a larger disk, then run again: finished steps are reused"
    with full_device_explained(what, where=folder, next_step=next_step):
        try:
            yield
        except (PermanentError, StorageFullError) as error:
            # Add where to find the step's evidence (a quarantine file, a partial output).
            evidence = folder / RERUN if rerun_requested(folder) else folder
            error.details = (*error.details, ("step", f"{step.stage} {step.unit}, {evidence}"))
            raise


def _forget_peak_memory() -> None:
    """Reset the kernel's high-water mark, so that it covers this step only (Linux only)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        log.debug("the peak memory mark cannot be reset here; receipts state the process's peak so far")


def _peak_memory_bytes() -> int:
    return peak_memory_bytes("self") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak_memory_bytes(process: int | str) -> int:
    """The peak memory of a running process since its step began; 0 where it is unknown (other systems than Linux)."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
