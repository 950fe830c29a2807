"""Tokenize: the text of a shard, without its duplicates, to the one canonical token shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import DatasetConfig, LockConfig, absolute
from pipeline.ledger import Check, Outcome, Receipt, versions_of
from pipeline.stages.index import require_few_rejected
from pipeline.stages.stage import Stage
from pipeline.stages.union import CUT_RANGES

if TYPE_CHECKING:
    from pipeline.report.summary import PowerHistogram
    from pipeline.stages.build import Build
    from pipeline.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer's name and pins, the number of its ids, the ids around documents, and the width of an id."""

    name: str
    sha256: str
    size: int
    eot_id: int
    dtype: str
    pad_id: int
    bos_id: int | None = None
    revision: str = ""


def locked(config: DatasetConfig) -> DatasetConfig:
    """The configuration with the tokenizer's sha256 and revision in its lock; TokenizerError if a lock says another."""
    from pipeline.errors import TokenizerError
    from pipeline.tokens.vocabulary import find_vocabulary

    wanted, lock = config.tokenizer, config.lock
    found = find_vocabulary(
        wanted.name,
        file=_file(config),
        sha256=wanted.sha256,
        revision=wanted.revision or (lock.tokenizer_revision if lock else None) or None,
    )
    now = LockConfig(tokenizer_sha256=found.sha256, tokenizer_revision=found.revision)
    if lock and lock != now:
        raise TokenizerError(
            "the tokenizer is not the one that the configuration is locked to",
            where=found.path,
            expected=f"sha256 {lock.tokenizer_sha256}, revision {lock.tokenizer_revision or 'none'}",
            got=f"sha256 {now.tokenizer_sha256}, revision {now.tokenizer_revision or 'none'}",
            next_step="fetch the right one; if the change is wanted, delete the lock section and lock again",
        )
    return config.model_copy(update={"lock": now})


def configured_tokenizer(config: DatasetConfig, *, engine: str | None = None) -> Tokenizer:
    """The tokenizer that a configuration names, its vocabulary checked against the lock."""
    from pipeline.tokens.tokenizer import load_tokenizer

    wanted, lock = config.tokenizer, config.lock
    return load_tokenizer(
        wanted.name,
        file=_file(config),
        sha256=lock.tokenizer_sha256 if lock else wanted.sha256,
        revision=(lock.tokenizer_revision if lock else wanted.revision) or None,
        engine=engine or wanted.engine,
        pattern=wanted.pattern,
        special_tokens=tuple(sorted(wanted.special_tokens.items())),
        eot=wanted.eot,
        bos=wanted.bos,
        pad=wanted.pad,
        parse_special=wanted.parse_special,
        tokshuf_ids=wanted.special_ids == "tokshuf",
    )


def _file(config: DatasetConfig) -> str | None:
    """Where the vocabulary lies, if the configuration says so: the file, or the name if that is a path."""
    wanted = config.tokenizer
    place = wanted.file or (wanted.name if wanted.name.endswith((".tiktoken", ".json", ".model")) else None)
    return absolute(place) if place else None


def vocabulary(build: Build) -> Vocabulary:
    """What the tokenized shards say of their tokenizer; without loading it."""
    receipts = build.receipts("tokenize")
    return Vocabulary(**receipts[0].details["vocabulary"])


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    removing = build.config.dedup.mode == "remove"
    return [("index", shard), *([("union", shard)] if removing else [])]


def _settings(build: Build, _shard: str) -> dict[str, Any]:
    # The lock stands for the vocabulary: loading refuses any file whose sha256 is not the one that it names.
    wanted = build.config.tokenizer.model_dump(exclude={"file", "sha256", "revision", "batch_bytes"})
    lock = build.config.lock.model_dump() if build.config.lock else {}
    libraries = versions_of(wanted["engine"])
    return {"mode": build.config.dedup.mode, "tokenizer": wanted, "lock": lock, "libraries": libraries}


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
    sizes: list[Any] = [np.empty((0, 2), np.uint64)]  # bytes and tokens of every document

    def kept_text() -> Iterator[tuple[Any, Any]]:
        ends = text.bounds(0, text.documents)[1:]
        for first, last in runs(ends, build.config.tokenizer.batch_bytes):
            kept, boundaries = remove_ranges_from(text.text, text.offsets, ranges, first, last)
            counts["text_bytes_encoded"] += len(kept)
            document_bytes.append(power_histogram(np.diff(boundaries)))
            sizes.append(np.stack([np.diff(boundaries), np.zeros(last - first, np.uint64)], axis=1))
            yield kept, boundaries

    def counted() -> Iterator[tuple[Any, Any]]:
        for tokens, ends in encode_documents(kept_text(), tokenizer):
            lengths = np.diff(ends, prepend=np.uint64(0))
            counts["documents_out"] += len(ends)
            counts["documents_empty"] += int((lengths == 0).sum())
            document_tokens.append(power_histogram(lengths))
            sizes[-1][:, 1] = lengths
            yield tokens, ends

    tokenizer = configured_tokenizer(build.config)
    source_ends = np.array([one.first_document + one.documents for one in text.sources], np.uint64)
    counts["tokens"] = write_token_shard(counted(), tokenizer, folder, source_ends)
    sums = np.concatenate([np.zeros((1, 2), np.uint64), np.cumsum(np.concatenate(sizes), axis=0, dtype=np.uint64)])
    totals = sums[source_ends] - sums[[one.first_document for one in text.sources]]
    by_source_file = [
        {"path": source.path, "text_bytes": text_bytes, "tokens": tokens}
        for source, (text_bytes, tokens) in zip(text.sources, totals.tolist(), strict=True)
    ]
    details = {
        "by_source_file": by_source_file,
        "document_bytes": merge_histograms(document_bytes).model_dump(),
        "document_tokens": merge_histograms(document_tokens).model_dump(),
        "vocabulary": asdict(
            Vocabulary(
                tokenizer.name,
                tokenizer.sha256,
                tokenizer.vocabulary_size,
                tokenizer.eot_id,
                tokenizer.dtype.name,
                tokenizer.eot_id if tokenizer.pad_id is None else tokenizer.pad_id,
                tokenizer.bos_id,
                tokenizer.revision,
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
