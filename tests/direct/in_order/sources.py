"""Files of JSON lines, and sources that read them."""

from __future__ import annotations

import json
from pathlib import Path

import zstandard

from corpusmill.direct.in_order.source import Source


def write_lines(path: Path, rows: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()
    path.write_bytes(zstandard.compress(data) if path.suffix == ".zst" else data)
    return path


def source_of(path: Path, *keys: str, **options) -> Source:
    return Source([str(path)], keys or ("text",), path.parent / "rejected.jsonl", **options)
