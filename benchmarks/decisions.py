"""What joining decisions costs: time and memory of sorting many rows of parquet, and of looking shards' documents up.

`python benchmarks/decisions.py --rows 50000000`. The join runs in a memory control group of 1 GB, which counts the page
cache, too. The peer, in a group of the same size, is DuckDB's join of the same parquet files with the documents of a
shard, half of the group's memory its own: it reads all rows for each shard. 10^8 rows need 7 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from memory_group import forget_pages, within
from results import write_result

from corpusmill.documents.conditions import read_condition
from corpusmill.steps.decisions import RECORD, Sorted, key_of, read_decisions, write_sorted
from corpusmill.storage import list_sources

FILE_ROWS = 1_000_000
SHARD_DOCUMENTS = 100_000
SHARDS = 10
PEER_SHARDS = 2
LIMIT_BYTES = 10**9
FIGURES = "figures.json"


def write_rows(folder: Path, rows: int) -> None:
    """Files of an id and a score."""
    generator = np.random.Generator(np.random.PCG64(1))
    for first in range(0, rows, FILE_ROWS):
        count = min(FILE_ROWS, rows - first)
        ids = [f"document/{number:012d}" for number in range(first, first + count)]
        table = pa.table({"id": ids, "score": generator.random(count)})
        pq.write_table(table, folder / f"{first // FILE_ROWS:05d}.parquet")


def join(folder: Path, rows: int) -> dict[str, Any]:
    """Sort all rows, look ten shards of documents up, every second of which has a decision."""
    files = list_sources([str(folder)], (".parquet",))
    out = folder / "sorted"
    out.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    runs = read_decisions(files, None, ["id"], read_condition("score >= 0.5"), folder)
    counts = write_sorted(runs, out, [file.name for file in files])
    sorting = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    joined, met = Sorted(out), 0
    for shard in documents_of(rows):
        met += int((joined.find(map(key_of, shard)) >= 0).sum())
    looking = time.process_time() - began
    return {
        "rows": counts["decisions"],
        "sorting_rows_a_second": round(rows / sorting),
        "sorting_peak_rss_bytes": after * 1024,
        "of_which_before": before * 1024,
        "disk_bytes_a_row": RECORD.itemsize,
        "documents_looked_up_a_second": round(SHARDS * SHARD_DOCUMENTS / looking),
        "documents_met_share": round(met / (SHARDS * SHARD_DOCUMENTS), 3),
    }


def documents_of(rows: int) -> list[list[str]]:
    """The ids of ten shards' documents, every second of which has a decision."""
    numbers = np.random.Generator(np.random.PCG64(2)).integers(0, 2 * rows, (SHARDS, SHARD_DOCUMENTS))
    return [[f"document/{number:012d}" for number in shard] for shard in numbers.tolist()]


def join_by_duckdb(folder: Path, rows: int) -> dict[str, Any]:
    """Join some shards' documents with the rows by DuckDB."""
    settings = {"memory_limit": f"{LIMIT_BYTES // 2}B", "threads": 1, "temp_directory": str(folder / "spilled")}
    began, met = time.process_time(), 0
    with duckdb.connect(config=settings) as database:
        for shard in documents_of(rows)[:PEER_SHARDS]:
            database.register("documents", pa.table({"id": shard}))
            asked = "SELECT count(*) FROM documents JOIN read_parquet(?) AS rows USING (id)"
            met += database.execute(asked, [str(folder / "*.parquet")]).fetchall()[0][0]
    seconds = time.process_time() - began
    return {
        "duckdb_documents_a_second": round(PEER_SHARDS * SHARD_DOCUMENTS / seconds),
        "duckdb_documents_met_share": round(met / (PEER_SHARDS * SHARD_DOCUMENTS), 3),
    }


def main() -> None:
    """Measure, print, and write results/decisions.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5 * 10**7)
    parser.add_argument("--join", type=Path)
    parser.add_argument("--peer", type=Path)
    asked = parser.parse_args()
    if folder := asked.join or asked.peer:
        measured = (join if asked.join else join_by_duckdb)(folder, asked.rows)
        (folder / FIGURES).write_text(json.dumps(measured))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, asked.rows)
        command = [sys.executable, __file__, "--rows", str(asked.rows)]
        forget_pages()
        group = within(LIMIT_BYTES, [*command, "--join", name])
        figures = json.loads((folder / FIGURES).read_text()) | group
        forget_pages()
        within(LIMIT_BYTES, [*command, "--peer", name])
        figures |= json.loads((folder / FIGURES).read_text())
    print(json.dumps(figures, indent=1))
    write_result("decisions", f"{asked.rows:,} decisions are joined within 1 GB, page cache included", figures)


if __name__ == "__main__":
    main()
