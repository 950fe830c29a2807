"""Reads every receipt once, and for a bounded time per request.

A receipt at one path only changes in its times (the path has the step's fingerprint), and a rewritten one has another
modification time. So receipts are cached, keyed by path and modification time.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from corpusmill.errors import CorpusmillError
from corpusmill.ledger import read_receipt
from corpusmill.report.shards import StepFacts
from corpusmill.work_folder.small import refresh

READING_SECONDS = 0.08
KEPT_RECEIPTS = 20_000  # 200 shards come to about 2,500 receipts, of about 1 kB each as kept here

_kept: OrderedDict[tuple[str, int], StepFacts] = OrderedDict()
_lock = Lock()


def read_steps(
    paths: Iterable[str], work: Path, *, seconds: float = READING_SECONDS
) -> tuple[dict[str, StepFacts], int, CorpusmillError | None]:
    """(facts of the receipts at `paths`, how many were left unread for lack of time, the error that ended reading or
    None).

    Only receipts of `work` are read: `work/<stage>/<unit>-<fingerprint>/receipt.json`. Missing and unreadable
    receipts are left out: their steps will run again, and log why.
    """
    began = time.monotonic()
    steps: dict[str, StepFacts] = {}
    left = 0
    inside = f"{work}/"
    for path in paths:
        if not path.startswith(inside) or path.count("/", len(inside)) != 2 or "/../" in path:
            continue
        if time.monotonic() - began < seconds:
            try:
                refresh(Path(path))
            except CorpusmillError as error:  # the bucket refuses or does not answer, for the next ones too
                return steps, left, error
        try:
            modified = os.stat(path).st_mtime_ns  # noqa: PTH116  (of 2,500 receipts: a Path each would cost more)
        except OSError:
            continue
        facts = _kept.get((path, modified))
        if facts is None:
            if time.monotonic() - began > seconds:
                left += 1
                continue
            facts = _read(Path(path), modified)
            if facts is None:
                continue
            _keep((path, modified), facts)
        steps[path] = facts
    return steps, left, None


def _read(path: Path, modified: int) -> StepFacts | None:
    try:
        receipt = read_receipt(path)
    except (OSError, CorpusmillError):
        return None
    details = receipt.details
    return StepFacts(
        receipt.counts,
        receipt.digest,
        receipt.seconds,
        modified / 1e9,
        version=str(details.get("version", "")),
        settings=str(details.get("settings", "")),
        moved_latest=bool(details.get("moved_latest", True)),
    )


def _keep(key: tuple[str, int], facts: StepFacts) -> None:
    with _lock:
        _kept[key] = facts
        while len(_kept) > KEPT_RECEIPTS:
            _kept.popitem(last=False)
