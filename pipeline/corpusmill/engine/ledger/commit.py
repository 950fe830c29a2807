"""Commits a step whose work folder is in a bucket: one conditional request decides between attempts."""

from __future__ import annotations

import logging
from pathlib import Path

from corpusmill.engine.ledger.receipt import RECEIPT_NAME, Receipt, read_receipt
from corpusmill.engine.work_folder.outputs import remove, send, sent
from corpusmill.engine.work_folder.small import put
from corpusmill.errors import CorruptDataError, PermanentError, TransientError

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
