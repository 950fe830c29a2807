"""Claim: JSON lines and parquet are read at 0.97 or more of their rate before every kind of file had one reader.

`python benchmarks/reading_before.py CORPUS_FOLDER BEFORE`, of which BEFORE is a work tree of commit 5c989761^. A
process of each tree, by turns, reads a file and writes its text shard seven times, as the stage index does; CPU time,
the best of ROUNDS processes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from results import write_result

ROUNDS = 2
BYTES = 20 << 20
CHILD = """
import sys, tempfile, time
from pathlib import Path
from corpusmill.documents import jsonl, parquet
from corpusmill.documents.text_shard import TextShardWriter

def read(path):
    named = {"source": path, "text_field": "text", "id_field": "id"}
    with open(path, "rb") as stream, tempfile.TemporaryDirectory() as folder, TextShardWriter(Path(folder)) as writer:
        writer.start_source(path)
        reader = parquet.read_rows if path.endswith("parquet") else jsonl.read_documents
        for batch in reader(stream, **named):
            writer.append(batch)
    return writer.documents

seconds = []
for _ in range(7):
    began = time.process_time()
    documents = read(sys.argv[1])
    seconds.append(time.process_time() - began)
print(documents, min(seconds))
"""


def measured(tree: Path, path: Path) -> tuple[int, float]:
    """(documents, CPU seconds) of reading a file once, by the code of a tree: the best of several in a process."""
    surroundings = {**os.environ, "PYTHONPATH": str(tree / "pipeline")}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], env=surroundings, check=True, capture_output=True, text=True
    )
    documents, seconds = done.stdout.split()
    return int(documents), float(seconds)


def main() -> None:
    """Measure, print, and write results/reading_before.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("before", type=Path)
    asked = parser.parse_args()
    lines = b"".join(
        zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes())).read()
        for path in sorted(asked.corpus.glob("*.jsonl.zst"))
    )
    lines = lines[: lines.find(b"\n", min(BYTES, len(lines) - 2)) + 1]
    figures: dict[str, object] = {"bytes": len(lines), "rounds": ROUNDS}
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.jsonl").write_bytes(lines)
        rows = [json.loads(line) for line in lines.splitlines()]
        table = pa.table({key: [row.get(key) for row in rows] for key in ("id", "text")})
        pq.write_table(table, Path(name) / "a.parquet")
        for kind in ("jsonl", "parquet"):
            path = Path(name) / f"a.{kind}"
            pairs = [(measured(asked.before, path), measured(Path.cwd(), path)) for _ in range(ROUNDS)]
            assert len({documents for pair in pairs for documents, _ in pair}) == 1
            before, now = (min(seconds for _, seconds in side) for side in zip(*pairs, strict=True))
            figures[kind] = {
                "before_MB_a_second": round(path.stat().st_size / before / 1e6, 1),
                "now_MB_a_second": round(path.stat().st_size / now / 1e6, 1),
                "rate_of_before": round(before / now, 3),
            }
    print(json.dumps(figures, indent=1))
    write_result("reading_before", "JSON lines and parquet are read at 0.97 or more of their rate before", figures)


if __name__ == "__main__":
    main()
