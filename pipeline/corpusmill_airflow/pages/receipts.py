"""Reads every receipt once, and for a bounded time per request.

A receipt at one path only changes in its times (the path has the step's fingerprint), and a rewritten one has another
modification time. So receipts are cached, keyed by path and modification time.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock

from corpusmill.engine.ledger import RECEIPT_NAME, read_receipt
from corpusmill.engine.work_folder.small import is_shared, refresh
from corpusmill.errors import CorpusmillError
from corpusmill.report.shards import StepFacts

READING_SECONDS = 0.08
LOOKING_SECONDS = 0.08
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
    reading = 0.0  # seconds; what is known already takes none, or a busy machine would never come to the rest
    steps: dict[str, StepFacts] = {}
    left = 0
    inside = f"{work}/"
    in_bucket = is_shared(work)
    for path in paths:
        if not path.startswith(inside) or path.count("/", len(inside)) != 2 or "/../" in path:
            continue
        if in_bucket and time.monotonic() - began < seconds:
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
            if reading > seconds:
                left += 1
                continue
            before = time.monotonic()
            facts = _read(Path(path), modified)
            reading += time.monotonic() - before
            if facts is None:
                continue
            _keep((path, modified), facts)
        steps[path] = facts
    return steps, left, None


def find_written(work: Path, since: Mapping[str, float], *, seconds: float = LOOKING_SECONDS) -> list[str]:
    """The receipts of stages that were written since a time of each; none of a work folder in a bucket, which would
    have to be listed. Ends after so many seconds, so that not all may be found.
    """
    if is_shared(work):
        return []
    began = time.monotonic()
    found = []
    for stage, earliest in since.items():
        try:
            with os.scandir(work / stage) as folders:
                for folder in folders:
                    if time.monotonic() - began > seconds:
                        return found
                    path = f"{folder.path}/{RECEIPT_NAME}"
                    try:
                        modified = os.stat(path).st_mtime  # noqa: PTH116  (of thousands)
                    except OSError:  # a step that has not finished
                        continue
                    if modified >= earliest:
                        found.append(path)
        except OSError:  # a stage that has not begun
            continue
    return found


def stage_of(path: str) -> str:
    """The stage of a receipt, from its path."""
    return path.rsplit("/", 3)[1]


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
