"""Reads receipts, each once and for a bounded time per request; the files of a report's step; the page of a comparison.

A receipt at one path only changes in its times (the path has the step's fingerprint), and a rewritten one has another
modification time. So receipts are cached, keyed by path and modification time.
"""

import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

from corpusmill.builds.graph import GRAPH
from corpusmill.engine.ledger import RECEIPT_NAME, Receipt, read_receipt
from corpusmill.engine.ledger.blocks import Blocks
from corpusmill.engine.work_folder.small import is_shared, refresh
from corpusmill.errors import CorpusmillError
from corpusmill.lazy import lazily
from corpusmill.report.shards import SHARDS, ShardTable, StepFacts, shards_from_json
from corpusmill.storage.mirrored import path_of

with lazily:
    from corpusmill.builds import reprocess

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


STAGE, PAGE = "report", "report.html"
DIFFERENCE = re.compile(r"(?:^|/)differences/[0-9a-f]{12}-[0-9a-f]{12}\.html\Z")  # below a dataset's work folder


def report_receipt(path: Path) -> Receipt | None:
    """The receipt of a report's step, or None if it is another file, or is gone."""
    if path.name != RECEIPT_NAME or path.parent.parent.name != STAGE:
        return None
    try:
        refresh(path, again=True)
        receipt = read_receipt(path)
        if receipt.attempt:
            Blocks(path.parent, receipt).require([PAGE, SHARDS])
    except (OSError, CorpusmillError):
        return None
    return receipt if receipt.stage == STAGE else None


def report_page(path: Path) -> str | None:
    """The HTML beside a report's receipt, or None if this is not such a receipt or the file is gone."""
    receipt = report_receipt(path)
    if receipt is None or PAGE not in {output.name for output in receipt.outputs}:
        return None
    try:
        return (path.parent / PAGE).read_text(encoding="utf-8")
    except OSError:
        return None


def difference_page(address: str) -> str | None:
    """The page that a comparison of two versions wrote, or None if the address is not that of such a page, or it is
    gone.
    """
    if not DIFFERENCE.search(address):
        return None
    path = path_of(address)
    try:
        return path.read_text(encoding="utf-8") if refresh(path) else None
    except (OSError, CorpusmillError):
        return None


def shard_table(path: Path) -> ShardTable | None:
    """The table of shards beside a report's receipt; None if an older version wrote none, or it is gone."""
    try:
        return _table(path.parent / SHARDS, (path.parent / SHARDS).stat().st_mtime_ns)
    except (OSError, CorpusmillError):
        return None


@lru_cache(maxsize=32)
def _table(path: Path, _modified: int) -> ShardTable:
    return shards_from_json(path.read_bytes())


@dataclass(frozen=True)
class StageChange:
    """Of one stage: the number of unchanged outputs, and the others: (unit, digest before, digest after)."""

    stage: str
    unchanged: int
    changed: tuple[tuple[str, str | None, str | None], ...]


def changes(plan_receipt: Path, table: ShardTable) -> list[StageChange] | None:
    """What the newest reprocessing under this plan changed; None if there was none."""
    try:
        _, before = reprocess.remembered(plan_receipt)
    except (OSError, ValueError):
        return None
    after = {(stage, unit): digest for stage, units in table.digests.items() for unit, digest in units.items()}
    compared = reprocess.compare(before, after)
    return [
        StageChange(
            stage,
            unchanged=len(table.digests[stage])
            - sum(unit.stage == stage and unit.after is not None for unit in compared),
            changed=tuple((unit.unit, unit.before, unit.after) for unit in compared if unit.stage == stage),
        )
        for stage in GRAPH.names
        if table.digests.get(stage)
    ]


def reprocessed_at(plan_receipt: Path) -> float:
    """When the newest reprocessing under this plan began; 0 if there was none."""
    path = plan_receipt.parent / reprocess.BEFORE
    return path.stat().st_mtime if path.exists() else 0.0
