"""Source files straight to token shards: one folder per file, without a build (`corpusmill tokenize`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from corpusmill.errors import full_device_explained
from corpusmill.tokens.token_shard import write_token_shard
from corpusmill.tokens.tokenizer import Tokenizer

SUMMARY = "tokenized.json"
SHARD_FILES = ("tokens", "ends", "source_ends", "token_shard.json", SUMMARY)


@dataclass(frozen=True)
class TokenizedFile:
    """The totals of one source file; `rejected`: lines that are not in the token shard, by reason."""

    source: str
    documents: int
    text_bytes: int
    tokens: int
    rejected: dict[str, int]


def write_file_shard(
    batches: Iterator[tuple[list[bytes], dict[str, int]]], source: str, tokenizer: Tokenizer, folder: Path
) -> TokenizedFile:
    """Write the token shard of one file, its summary last: a folder without tokenized.json is incomplete.

    `batches`: texts of a batch of documents, and its rejected lines by reason. StorageFullError for a full disk; a
    failed run leaves no file of the shard.
    """
    next_step = "free space on that device, then run the command again"
    with full_device_explained("tokens.disk_full: no space left for a token shard", where=folder, next_step=next_step):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return _write_file_shard(batches, source, tokenizer, folder)
        except BaseException:
            for name in SHARD_FILES:
                (folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # not empty: other files of the user are in it
                folder.rmdir()
            raise


def _write_file_shard(
    batches: Iterator[tuple[list[bytes], dict[str, int]]], source: str, tokenizer: Tokenizer, folder: Path
) -> TokenizedFile:
    (folder / SUMMARY).unlink(missing_ok=True)
    rejected: dict[str, int] = {}
    counts = {"documents": 0, "text_bytes": 0}

    def texts() -> Iterator[list[bytes]]:
        for documents, reasons in batches:
            for reason, count in reasons.items():
                rejected[reason] = rejected.get(reason, 0) + count
            counts["documents"] += len(documents)
            counts["text_bytes"] += sum(map(len, documents))
            yield documents

    tokens = write_token_shard(map(tokenizer.encode, texts()), tokenizer, folder)
    tokenized = TokenizedFile(source, counts["documents"], counts["text_bytes"], tokens, dict(sorted(rejected.items())))
    (folder / SUMMARY).write_text(json.dumps(asdict(tokenized), indent=1, ensure_ascii=False) + "\n")
    return tokenized
