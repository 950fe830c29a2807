"""Receipts, text shards and token shards, changed: read, or refused in our words; a receipt says the same or nothing.

Damage of shards is for the digests of their steps to find (engine/ledger/blocks.py); here nothing may be read outside
of their files, and whoever is given one from elsewhere gets no traceback.
"""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.documents.jsonl import read_documents
from corpusmill.documents.text_shard import TextShardWriter, open_text_shard
from corpusmill.engine.ledger import Outcome, Step, read_receipt, run_once
from corpusmill.errors import CorruptDataError
from corpusmill.tokens.token_shard import open_token_shard, write_described_shard
from tests.fuzz.files import CONTENT
from tests.fuzz.target import Target, changed, packed, unpacked


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:  # noqa: S108
        yield Path(name)


@cache
def _receipt_seed() -> bytes:
    def body(folder: Path) -> Outcome:
        (folder / "a").write_bytes(b"content")
        return Outcome({"lines": 7}, {"longest": [1, 2.5, "é"]}, {"requests": 3})

    with _folder() as folder:
        step = Step("index", 3, "00000", {"text_field": "text"}, ())
        return run_once(step, folder, body).read_bytes()


def _check_receipt(data: bytes) -> str:
    with _folder() as folder:
        (folder / "receipt.json").write_bytes(_receipt_seed())
        right = read_receipt(folder / "receipt.json")
        (folder / "receipt.json").write_bytes(data)
        try:
            receipt = read_receipt(folder / "receipt.json")
        except CorruptDataError:
            return "refused"
    assert receipt == right
    return "read"


def _files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@cache
def _text_shard_seed() -> dict[str, bytes]:
    with _folder() as folder:
        with TextShardWriter(folder) as shard:
            for source in ("a.jsonl", "b.jsonl"):
                shard.start_source(source)
                for batch in read_documents(io.BytesIO(CONTENT), source=source, text_field="text", id_field="id"):
                    shard.append(batch)
        return _files_of(folder)


@cache
def _token_shard_seed() -> dict[str, bytes]:
    about = {"dtype": "uint16", "tokenizer": "r50k_base", "sha256": "0" * 64, "vocabulary_size": 50257, "revision": ""}
    about |= {"eot_id": 50256, "bos_id": None, "pad_id": 50256}
    batches = [(np.arange(500, dtype=np.uint16), np.array([0, 100, 100, 500], np.uint64))] * 2
    with _folder() as folder:
        write_described_shard(batches, about, folder)
        return _files_of(folder)


def _draw_files(rng: random.Random, files: dict[str, bytes]) -> bytes:
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(sorted(files))
        files = {**files, name: changed(rng, files[name])}
    if rng.random() < 0.05:
        files = {name: content for name, content in files.items() if name != rng.choice(sorted(files))}
    return packed(files)


def _check_shard(data: bytes, read: Callable[[Path], None]) -> str:
    files: Any = unpacked(data)
    with _folder() as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        try:
            read(folder)
        except CorruptDataError:
            return "refused"
    return "read"


def _read_text_shard(folder: Path) -> None:
    shard = open_text_shard(folder)
    for ordinal in range(shard.documents):
        shard.document_bytes(ordinal)
        shard.source_of(ordinal)


def _read_token_shard(folder: Path) -> None:
    shard = open_token_shard(folder)
    for ordinal in range(shard.documents):
        shard.document(ordinal)


TARGETS = (
    Target("receipts", lambda rng: changed(rng, _receipt_seed()), _check_receipt, aim=10_000),
    Target(
        "text_shards",
        lambda rng: _draw_files(rng, _text_shard_seed()),
        lambda data: _check_shard(data, _read_text_shard),
        aim=10_000,
    ),
    Target(
        "token_shards",
        lambda rng: _draw_files(rng, _token_shard_seed()),
        lambda data: _check_shard(data, _read_token_shard),
        aim=10_000,
    ),
)
