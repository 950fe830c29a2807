"""What flips.py asks of a work folder: its receipts, its steps, what `verify` says; and one byte flipped."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from corpusmill.builds.graph import open_build
from corpusmill.engine.ledger import RECEIPT_NAME, read_receipt
from corpusmill.errors import CorpusmillError
from corpusmill.inspect.verify.verification import verify_build


def flipped(data: bytes, rng: random.Random) -> tuple[bytes, bytes]:
    """(data, the same with one bit of one byte changed)."""
    place, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
    return data, data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]


def same_receipt(item: Path, other: Path) -> bool:
    """Whether two receipts say the same of what a step made; how it came about (seconds, memory) is no part of that."""
    try:
        return _told(item) == _told(other)
    except (CorpusmillError, ValueError):
        return False


def _told(path: Path) -> dict[str, Any]:
    read_receipt(path)
    stated: dict[str, Any] = json.loads(path.read_bytes())
    return {key: value for key, value in stated.items() if key not in {"seconds", "peak_rss_bytes", "traffic"}}


def findings_of(plan: Path) -> str:
    """What `verify` finds wrong with a build, in words; nothing where all is well."""
    findings = verify_build(open_build(plan)).findings
    return "; ".join(f"{finding.what} ({finding.where})" for finding in findings)[:500]


def ran_since(root: Path, began_ns: int) -> list[str]:
    """<stage>/<folder> of every step whose receipt was written since."""
    receipts = (root / "work" / "tiny").glob(f"*/*/{RECEIPT_NAME}")
    folders = (path.parent for path in receipts if path.stat().st_mtime_ns >= began_ns - 10_000_000)
    return sorted(f"{folder.parent.name}/{folder.name}" for folder in folders)
