"""`corpusmill dedup` on the corpora of these tests, and what it wrote."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import zstandard

from corpusmill.builds.dedup_alone import Finished, dedup_config, deduplicate

FILES = ("a1.jsonl", "a2.jsonl.gz", "a3.jsonl", "a10.jsonl.zst", "deep/b.jsonl.zstd")


def run(root: Path, dedup: dict[str, object], **sections: object) -> Finished:
    output = str(root / "clean")
    sections = {"source": {"shard_bytes": "8KiB"}, "work_folder": str(root / "work"), **sections}
    config = dedup_config([str(root / "corpus")], output, {"minimum_bytes": 100, **dedup}, **sections)
    return deduplicate(config, output, workers=1)


def content(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix.startswith(".zst"):
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for name in FILES for line in content(folder / name).splitlines()]
