"""Source files straight to token shards: one folder per file, without a build (`corpusmill tokenize`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.tokens.encode import encode_documents
from pipeline.tokens.token_shard import write_token_shard
from pipeline.tokens.tokenizer import Tokenizer

SUMMARY = "tokenized.json"


@dataclass(frozen=True)
class TokenizedFile:
    """What one source file came to; `rejected` lines are not in the token shard, their reasons are counted."""

    source: str
    documents: int
    text_bytes: int
    tokens: int
    rejected: dict[str, int]


def write_file_shard(
    batches: Iterator[tuple[list[bytes], dict[str, int]]], source: str, tokenizer: Tokenizer, folder: Path
) -> TokenizedFile:
    """Write the token shard of one file, its summary last: a folder without tokenized.json is not whole.

    `batches`: texts of a batch of documents, and its rejected lines by reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).unlink(missing_ok=True)
    rejected: dict[str, int] = {}
    counts = {"documents": 0, "text_bytes": 0}

    def texts() -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint64]]]:
        for documents, reasons in batches:
            for reason, count in reasons.items():
                rejected[reason] = rejected.get(reason, 0) + count
            counts["documents"] += len(documents)
            boundaries = np.array([0, *accumulate(map(len, documents))], np.uint64)
            counts["text_bytes"] += int(boundaries[-1])
            yield np.frombuffer(b"".join(documents), np.uint8), boundaries

    def encoded() -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        yield from encode_documents(texts(), tokenizer)

    tokens = write_token_shard(encoded(), tokenizer, folder)
    done = TokenizedFile(source, counts["documents"], counts["text_bytes"], tokens, dict(sorted(rejected.items())))
    (folder / SUMMARY).write_text(json.dumps(asdict(done), indent=1, ensure_ascii=False) + "\n")
    return done
