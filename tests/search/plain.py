"""What the plain-Python oracle of the chain says of a configuration, and a delivered dataset read back."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard

from corpusmill.config import DatasetConfig
from tests.oracles import chain
from tests.oracles.sources import File, shards_of
from tests.search.folders import SMALL
from tests.search.sources import Source
from tests.search.vocabularies import ranks_of, special_tokens

NOT_SAID = {"dataset.json", "SHA256SUMS", "shuffle_quality.json", "webdataset/exp_data.json", "../latest.json"}


def file_of(name: str, source: Source, size_bytes: int) -> File:
    """A source as the oracle takes it; where it can be cut was decided when it was written."""
    if name.endswith(".parquet"):
        text = "".join(line + "\n" for line in source.rows())
        return File(name, size_bytes, text.encode(), whole=True)
    if name.endswith(".jsonl"):
        return File(name, size_bytes, source.text())
    if name.endswith(".gz") and not source.blocks:
        return File(name, size_bytes, source.text(), whole=True)
    frames = tuple((len(content), len(text)) for content, text in source.frames(name))
    return File(name, size_bytes, source.text(), frames)


def expected(
    config: DatasetConfig, sources: dict[str, Source], folder: Path, listed: list[str], seen: Counter[str]
) -> dict[str, Any] | None:
    """See tests/oracles/chain.py."""
    settings = config.model_dump(mode="json")
    files = [file_of(name, source, (folder / name).stat().st_size) for name, source in sources.items()]
    limits = {name.rpartition(".")[2]: limit for name, limit in SMALL.items()}
    shards = shards_of(files, settings["source"]["shard_bytes"], limits["SMALLEST_PART_BYTES"])
    special = special_tokens()
    wanted = config.tokenizer
    vocabulary = chain.Vocabulary(
        ranks_of("plain"),
        special,
        special[wanted.eot or "<|endoftext|>"],
        special[wanted.bos or "<|bos|>"],
        special[wanted.pad or "<|pad|>"],  # the vocabulary has one, so it is not EOT
    )
    return chain.dataset(settings, shards, vocabulary, listed, seen)


def read_back(files: dict[str, bytes]) -> dict[str, Any]:
    """What the oracle says of each delivered file: bytes, or members, or records."""
    return {name: _content(name, content) for name, content in files.items() if name not in NOT_SAID}


def _content(name: str, content: bytes) -> Any:
    if name.endswith(".tar"):
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            members = [(item.name, tar.extractfile(item)) for item in tar]
            return [(member, json.loads(gzip.decompress(file.read()))) for member, file in members if file]
    if name == "steps/dropped.jsonl":
        return [(row["file"], row["line"]) for row in map(json.loads, content.splitlines())]
    if not name.startswith("documents/"):
        return content
    if name.endswith(".parquet"):
        return [list(row.items()) for row in pq.read_table(io.BytesIO(content)).to_pylist()]
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    elif name.endswith((".zst", ".zstd")):
        content = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()
    return [json.loads(line, object_pairs_hook=_pairs, parse_float=str) for line in content.splitlines()]


def _pairs(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return list(pairs)


def misstated(files: dict[str, bytes]) -> list[str]:
    """What dataset.json and SHA256SUMS say that the files are not, and files of which they say nothing."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != "../latest.json"}
    sums = dict(reversed(line.split("  ", 1)) for line in files["SHA256SUMS"].decode().splitlines())
    described = json.loads(files["dataset.json"])
    listed = {item["name"]: item["sha256"] for item in described["files"]}
    sizes = {item["name"]: item["size_bytes"] for item in described["files"]}
    own = {"dataset.json", "SHA256SUMS", "webdataset/exp_data.json"}
    wrong = [name for name in listed if listed[name] != digests.get(name) or sizes[name] != len(files[name])]
    wrong += [name for name in digests.keys() - own if name not in listed]
    return wrong + [name for name in digests.keys() - {"SHA256SUMS"} if sums.get(name) != digests[name]]
