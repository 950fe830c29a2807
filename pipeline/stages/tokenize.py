"""Tokenize: the text of a shard, without its duplicates, to the one canonical token shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import TokenizerConfig, absolute
from pipeline.ledger import Check, Outcome, Receipt, versions_of
from pipeline.stages.index import require_few_rejected
from pipeline.stages.stage import Stage
from pipeline.stages.union import CUT_RANGES

if TYPE_CHECKING:
    from pipeline.report.summary import PowerHistogram
    from pipeline.stages.build import Build
    from pipeline.tokens.tokenizer import Tokenizer

BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer's name and pin, the number of its ids, the id that separates documents, and the width of an id."""

    name: str
    sha256: str
    size: int
    eot_id: int
    dtype: str


def configured_tokenizer(wanted: TokenizerConfig) -> Tokenizer:
    """The tokenizer that a configuration names, its vocabulary checked."""
    from pipeline.tokens.tokenizer import load_tokenizer

    file = absolute(wanted.file) if wanted.file else None
    return load_tokenizer(wanted.name, file=file, sha256=wanted.sha256, engine=wanted.engine)


def vocabulary(build: Build) -> Vocabulary:
    """What the tokenized shards say of their tokenizer; without loading it."""
    receipts = build.receipts("tokenize")
    return Vocabulary(**receipts[0].details["vocabulary"])


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    removing = build.config.dedup.mode == "remove"
    return [("index", shard), *([("union", shard)] if removing else [])]


def _settings(build: Build, _shard: str) -> dict[str, Any]:
    # The name stands for the vocabulary: loading refuses any file whose sha256 is not the one that belongs to it.
    wanted = build.config.tokenizer
    libraries = versions_of(wanted.engine)
    return {"mode": build.config.dedup.mode, "tokenizer": wanted.name, "engine": wanted.engine, "libraries": libraries}


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from pipeline.dedup.ranges import read_ranges, remove_ranges_from
    from pipeline.documents.text_shard import open_text_shard
    from pipeline.report.histograms import merge_histograms, power_histogram
    from pipeline.tokens.encode import encode_documents
    from pipeline.tokens.runs import runs
    from pipeline.tokens.token_shard import write_token_shard

    text = open_text_shard(build.folder("index", shard))
    removing = build.config.dedup.mode == "remove"
    ranges = read_ranges(build.folder("union", shard) / CUT_RANGES) if removing else np.empty((0, 2), np.uint64)
    counts: Counter[str] = Counter(documents_out=0, documents_empty=0, text_bytes_encoded=0, bytes_read=len(text.text))
    document_bytes: list[PowerHistogram] = []
    document_tokens: list[PowerHistogram] = []

    def kept_text() -> Iterator[tuple[Any, Any]]:
        ends = text.bounds(0, text.documents)[1:]
        for first, last in runs(ends, BATCH_BYTES):
            kept, boundaries = remove_ranges_from(text.text, text.offsets, ranges, first, last)
            counts["text_bytes_encoded"] += len(kept)
            document_bytes.append(power_histogram(np.diff(boundaries)))
            yield kept, boundaries

    def counted() -> Iterator[tuple[Any, Any]]:
        for tokens, ends in encode_documents(kept_text(), tokenizer):
            lengths = np.diff(ends, prepend=np.uint64(0))
            counts["documents_out"] += len(ends)
            counts["documents_empty"] += int((lengths == 0).sum())
            document_tokens.append(power_histogram(lengths))
            yield tokens, ends

    tokenizer = configured_tokenizer(build.config.tokenizer)
    counts["tokens"] = write_token_shard(counted(), tokenizer, folder)
    details = {
        "document_bytes": merge_histograms(document_bytes).model_dump(),
        "document_tokens": merge_histograms(document_tokens).model_dump(),
        "vocabulary": asdict(
            Vocabulary(
                tokenizer.name, tokenizer.sha256, tokenizer.vocabulary_size, tokenizer.eot_id, tokenizer.dtype.name
            )
        ),
    }
    return Outcome(counts=dict(counts), details=details)


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    counts, index = receipt.counts, build.receipt("index", shard).counts
    removing = build.config.dedup.mode == "remove"
    removed = build.receipt("union", shard).counts["removed_bytes"] if removing else 0
    return [
        Check("documents", (("indexed", index["documents_out"]),), (("tokenized", counts["documents_out"]),)),
        Check(
            "text bytes",
            (("indexed", index["text_bytes_out"]),),
            (("encoded", counts["text_bytes_encoded"]), ("removed", removed)),
        ),
    ]


STAGE = Stage(
    "tokenize",
    units=lambda build: build.units("index"),
    inputs=_inputs,
    settings=_settings,
    run=_run,
    checks=_checks,
    gate=require_few_rejected,
)
