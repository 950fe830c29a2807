"""Claim: jsonl.zst in, deduplicated jsonl.zst out, at 40 MB/s of text per core or more.

`corpusmill dedup` in one process: download (sha256), index, anchor, match, union, writeback, delivery. CPU seconds, the
kernels compiled before. Beside it, what zstandard alone takes: the sources decompressed twice (index and writeback read
them) and compressed once. `python benchmarks/dedup_end_to_end.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import zstandard
from results import write_result

from corpusmill.builds.dedup_alone import dedup_config, deduplicate
from corpusmill.builds.graph import GRAPH

ROUNDS = 6


def run(corpus: str, minimum_bytes: int, mode: str) -> dict[str, object]:
    rounds, alone = [], []
    for _ in range(ROUNDS):
        alone.append(zstandard_alone(corpus))
        root = Path(tempfile.mkdtemp(prefix="dedup-"))
        output = str(root / "clean")
        settings = {"mode": mode, "minimum_bytes": minimum_bytes}
        config = dedup_config([corpus], output, settings, source={"shard_bytes": "8MB"}, work_folder=str(root / "work"))
        began = time.process_time()
        done = deduplicate(config, output, workers=1)
        seconds = time.process_time() - began
        stages = {
            stage: round(sum(receipt.seconds for receipt in done.build.receipts(stage)), 2)
            for stage in (*GRAPH.before("writeback"), "writeback")
            if done.build.units(stage)
        }
        rounds.append((seconds, done.build.total("index", "text_bytes_out"), stages))
        shutil.rmtree(root)
    seconds, text_bytes, stages = min(rounds)
    return {
        "text_bytes": text_bytes,
        "cpu_seconds": round(seconds, 2),
        "cpu_seconds_of_zstandard_alone": round(min(alone), 2),
        "wall_seconds_of_stages": stages,
        "megabytes_of_text_per_cpu_second": round(text_bytes / 1e6 / seconds, 1),
        "times_zstandard_alone": round(seconds / min(alone), 2),
    }


def zstandard_alone(corpus: str) -> float:
    """CPU seconds to decompress every file twice and compress it once, at the level of the writeback."""
    began = time.process_time()
    for path in sorted(Path(corpus).glob("*.zst")):
        data = path.read_bytes()
        for _ in range(2):
            lines = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
        zstandard.ZstdCompressor().compress(lines)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    corpus = parser.parse_args().corpus
    figures = {
        f"{mode}, L={length}": run(corpus, length, mode)
        for mode, length in (("remove", 500), ("annotate", 500), ("remove", 100))
    }
    print(json.dumps(figures, indent=1))
    print(write_result("dedup_end_to_end", "jsonl.zst to jsonl.zst at 40 MB/s of text per core", figures))


if __name__ == "__main__":
    main()
