"""Source files straight to token shards: one folder per file, without a build (`corpusmill tokenize`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

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

    `batches`: texts of a batch of documents, and its rejected lines by reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
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
