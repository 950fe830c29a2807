"""Claims: ranges at 250 MB/s of text per core at L = 500 and 100 at L = 100; at 500, 40 times infini-gram's make-part;
at most 0.6 and 1.3 bytes of scratch disk per byte of text.

One process, CPU seconds, text in the page cache. Ours: all steps from text shards to ranges (dedup_steps.py). The peer:
`rust_indexing make-part` of the infini-gram wheel over the same `tokenized`, which makes the suffix array only; beside
it pydivsufsort.
`python benchmarks/dedup_speed.py CORPUS_FOLDER [--peer FOLDER_OF_THE_INFINI_GRAM_PACKAGE]`
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from dedup_steps import covered, find_ranges
from results import write_result

from corpusmill.dedup.infini_gram import pointer_bytes, write_suffix_array
from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.jsonl import read_documents
from corpusmill.documents.text_shard import TextShard, TextShardWriter, open_text_shard

PARTITIONS = 4
PEER_BYTES = 24_000_000
LENGTHS = (500, 100, 5000)  # nothing is promised of the last
ROUNDS = 5  # of ours and 2 of the peer; the best of each counts, because other work disturbs them


def text_shards(corpus: Path, folder: Path) -> list[TextShard]:
    """One text shard per source file."""
    shards = []
    for number, path in enumerate(sorted(corpus.glob("*.jsonl.zst"))):
        with (
            TextShardWriter(folder / f"text{number}") as writer,
            path.open("rb") as raw,
            open_decompressed(raw, path.name) as lines,
        ):
            writer.start_source(path.name)
            for batch in read_documents(lines, source=path.name, text_field="text", id_field="id"):
                writer.append(batch)
        shards.append(open_text_shard(folder / f"text{number}"))
    return shards


def ours(shards: list[TextShard], minimum_bytes: int, folder: Path) -> dict[str, object]:
    text_bytes = sum(len(shard.text) for shard in shards)
    rounds = []
    for number in range(ROUNDS + 1):  # the first round compiles
        done = find_ranges([shard.folder for shard in shards], minimum_bytes, folder / f"round{number}", PARTITIONS)
        shutil.rmtree(folder / f"round{number}")
        rounds.append(done)
    best = min(rounds[1:], key=lambda item: item.seconds)
    return {
        "text_bytes": text_bytes,
        "removed_share": round(covered(best.ranges) / text_bytes, 4),
        "cpu_seconds": best.cpu_seconds,
        "megabytes_per_cpu_second": round(text_bytes / 1e6 / best.seconds, 1),
        "counts": best.counts,
        "scratch_bytes_per_text_byte": round(best.scratch_bytes / text_bytes, 3),
    }


def suffix_array(text: np.ndarray, folder: Path) -> dict[str, object]:
    """pydivsufsort's table of the same text, as `corpusmill infini-gram` writes it."""
    folder.mkdir()
    began = time.process_time()
    write_suffix_array(text, folder)
    return {"table_megabytes_per_cpu_second": round(len(text) / 1e6 / (time.process_time() - began), 2)}


def make_part(package: Path, text: np.ndarray, folder: Path, table: bytes) -> dict[str, Any]:
    """CPU seconds of the wheel's indexer over one text, and whether its table is ours."""
    (folder / "parts").mkdir(parents=True)
    (folder / "data").write_bytes(text.tobytes())
    command = [str(package / "rust_indexing"), "make-part", "--data-file", str(folder / "data")]
    command += ["--parts-dir", str(folder / "parts"), "--start-byte", "0", "--end-byte", str(len(text))]
    command += ["--ratio", str(pointer_bytes(len(text))), "--token-width", "1"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (part,) = (folder / "parts").iterdir()
    return {
        "program": "rust_indexing make-part of the infini-gram 2.6.0 wheel: the suffix array only, no ranges",
        "text_bytes": len(text),
        "cpu_seconds": round(seconds, 2),
        "megabytes_per_cpu_second": round(len(text) / 1e6 / seconds, 2),
        "table_equals_ours": part.read_bytes() == table,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--peer", type=Path, help="the installed package infini_gram, for its rust_indexing")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dedup-"))
    shards = text_shards(arguments.corpus, folder)
    figures: dict[str, Any] = {f"L={length}": ours(shards, length, folder / str(length)) for length in LENGTHS}
    documents = int(np.searchsorted(shards[0].offsets, PEER_BYTES))
    text = np.ascontiguousarray(shards[0].text[: int(shards[0].offsets[documents])])
    figures["suffix array"] = suffix_array(text, folder / "sorted")
    if arguments.peer:
        table = (folder / "sorted" / "table").read_bytes()
        runs = [make_part(arguments.peer, text, folder / f"peer{number}", table) for number in range(2)]
        peer = max(runs, key=lambda run: run["megabytes_per_cpu_second"])
        figures["peer"] = peer
        figures["times the peer"] = {
            name: round(figures[name]["megabytes_per_cpu_second"] / peer["megabytes_per_cpu_second"], 1)
            for name in ("L=500", "L=100")
        }
    shutil.rmtree(folder)
    print(json.dumps(figures, indent=1))
    claim = "ranges at 250 MB/s (L = 500) and 100 (L = 100) per core, 40 times the peer at 500; scratch <= 0.6, 1.3"
    print(write_result("dedup_speed", claim, figures))


if __name__ == "__main__":
    main()
