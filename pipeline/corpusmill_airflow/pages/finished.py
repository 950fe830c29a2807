"""Reads the files of a report's step, the changes by reprocessing, and the page of a comparison."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from corpusmill.builds.graph import GRAPH
from corpusmill.engine.ledger import RECEIPT_NAME, Receipt, read_receipt
from corpusmill.engine.ledger.blocks import Blocks
from corpusmill.engine.work_folder.small import refresh
from corpusmill.errors import CorpusmillError
from corpusmill.lazy import lazily
from corpusmill.report.shards import SHARDS, ShardTable, shards_from_json
from corpusmill.storage.mirrored import path_of

with lazily:
    from corpusmill.builds import reprocess


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
