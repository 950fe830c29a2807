"""The table of docs/sizing.md: what the program works out from a dataset's size, and arithmetic with measured rates.

Partitions, cells, memory and disk are asked of the functions that builds ask. Rates are those of benchmarks/results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corpusmill.builds.room import needed_memory
from corpusmill.config import check_config
from corpusmill.dedup.stages.partitions import partitions_for
from corpusmill.shuffle.cells import cells_needed

ROOT = Path(__file__).resolve().parents[2]
TB, GIB = 10**12, 1 << 30
ANCHORS_PER_BYTE = 2.36e6 / 404e6  # of documentation text at minimum_bytes 500: 2.36 million in 404 MB
TOKENS_PER_BYTE = 1 / 4.0  # rounded up from cl100k_base's 1 / 4.5, of English web text
ID_BYTES = 4
DOCUMENT_BYTES = 4_000
CORES = 64
SHARD_GIB = {1: 1, 10: 2, 100: 4}
DEDUP_GIB = {1: 4, 10: 16, 100: 32}
SHUFFLE_GIB = {1: 4, 10: 16, 100: 64}


def result(name: str) -> dict[str, Any]:
    """The figures of a benchmark."""
    figures: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["figures"]
    return figures


def rate() -> float:
    """MB of text per second and core of a whole build: repeats removed, random order, two formats, delivered."""
    whole = result("airflow_tasks")
    return float(whole["text_megabytes"] / whole["command_seconds"] / 2)


def rows(terabytes: int) -> dict[str, str]:
    """A column of the table."""
    text = terabytes * TB
    dedup, shuffle = DEDUP_GIB[terabytes], SHUFFLE_GIB[terabytes]
    disk = result("disk")
    hours = text / 1e6 / rate() / 3600
    needed = needed_memory(configuration(dedup, shuffle))
    return {
        "`source.shard_bytes`": f"{SHARD_GIB[terabytes]}GiB",
        "shards": f"{-(-text // (SHARD_GIB[terabytes] * GIB)):,}",
        "`dedup.memory`": f"{dedup}GiB",
        "partitions": f"{partitions_for(int(text * ANCHORS_PER_BYTE), 0, dedup * GIB):,}",
        "`shuffle.memory`": f"{shuffle}GiB",
        "cells": f"{cells_needed(int(text * TOKENS_PER_BYTE) * ID_BYTES, text // DOCUMENT_BYTES, shuffle * GIB):,}",
        "memory of the largest task": f"{max(-(-size // GIB) for _, (_, size) in needed.items() if size):,} GiB",
        "disk, `reclaim: keep`": f"{disk['keep']['peak_per_text_byte'] * terabytes:,.0f} TB",
        "disk, `reclaim: eager`": f"{disk['eager']['peak_per_text_byte'] * terabytes:,.0f} TB",
        "core hours": f"{hours:,.0f}",
        f"hours on {CORES} cores": f"{hours / CORES:,.1f}",
    }


def configuration(dedup: int, shuffle: int) -> Any:
    """Of one size."""
    import yaml

    from corpusmill.config.starter import starter

    values = yaml.safe_load(starter())
    values["dedup"]["memory"], values["shuffle"]["memory"] = f"{dedup}GiB", f"{shuffle}GiB"
    return check_config(values, where="docs/sizing.md")


def table() -> str:
    """As Markdown."""
    columns = {terabytes: rows(terabytes) for terabytes in SHARD_GIB}
    lines = ["| of text | " + " | ".join(f"{column} TB" for column in columns) + " |", "|---|" + "---|" * len(columns)]
    lines += [f"| {name} | " + " | ".join(column[name] for column in columns.values()) + " |" for name in columns[1]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table())
