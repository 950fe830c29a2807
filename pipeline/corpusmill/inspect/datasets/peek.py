"""One record of any export, as ids and as text: what a trainer is about to read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from corpusmill.config import DatasetConfig
from corpusmill.errors import PermanentError, TokenizerError, TransientError, visible
from corpusmill.inspect.datasets.dataset import (
    dataset_above,
    open_documents,
    open_stream,
    read_records,
    require_complete,
)
from corpusmill.tokens.stages.tokenize import configured_tokenizer
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer

IDS_SHOWN = 16


@dataclass(frozen=True)
class Peek:
    """A record (`ids`: 1-D, at most as many as asked for, of `tokens` in all) and its text.

    `missing`: why there is no text, if the dataset's vocabulary is not on this machine.
    """

    path: Path
    record: int
    records: int | None
    tokens: int
    ids: NDArray[Any]
    text: str
    missing: str = ""


def peek_record(path: Path, record: int, tokens: int, config: DatasetConfig | None = None) -> Peek:
    """Read record `record` of an output file and decode it with the tokenizer that its dataset, or `config`, names.

    A record is a document of a `.bin` or `.ds`, a context of a `.tar`; a `.npy`, or a `.bin` without its `.idx`, is one
    stream, of which `record` is the first token shown. Without `config`, ids have no text if the vocabulary cannot be
    loaded by the name that the dataset states. SourceError for another kind of file or one outside a finished dataset,
    PermanentError for a record that is not there, VerificationError for a damaged file or index, TokenizerError for a
    `config` with another tokenizer than the dataset's.
    """
    vocabulary = dataset_above(path).vocabulary
    require_complete([path.with_suffix("") if path.suffix in {".bin", ".idx"} else path])
    records, ids = _read(path, record, vocabulary["dtype"])
    shown = ids[:tokens]
    try:
        tokenizer = _tokenizer(path, vocabulary, config)
    except (TokenizerError, TransientError) as error:
        if config:
            raise
        return Peek(path, record, records, len(ids), shown, "", missing=error.what)
    return Peek(path, record, records, len(ids), shown, tokenizer.decode(shown).decode("utf-8", "backslashreplace"))


def _read(path: Path, record: int, dtype: str) -> tuple[int | None, NDArray[Any]]:
    """How many records there are, if that can be told without reading all; the record's ids."""
    if path.suffix == ".tar":
        for context in islice(read_records(path, dtype), min(record, sys.maxsize), None):
            return None, context
        raise PermanentError("record.unknown: no such record", where=path, got=f"record {record}")
    if (stream := open_stream(path, dtype)) is not None:
        return len(stream), stream[_within(path, record, len(stream)) :]
    count, document = open_documents(path)
    return count, document(_within(path, record, count))


def _within(path: Path, record: int, records: int) -> int:
    if record >= records:
        raise PermanentError(
            "record.unknown: no such record", where=path, expected=f"0 to {records - 1:,}", got=f"record {record:,}"
        )
    return record


def _tokenizer(path: Path, vocabulary: dict[str, Any], config: DatasetConfig | None) -> Tokenizer:
    if config is None:
        revision = vocabulary.get("revision") or None
        return load_tokenizer(vocabulary["name"], sha256=vocabulary["sha256"], revision=revision, engine="reference")
    tokenizer = configured_tokenizer(config, engine="reference")
    if tokenizer.sha256 != vocabulary["sha256"]:
        raise TokenizerError(
            "peek.other_tokenizer: the configuration names another tokenizer than the dataset's",
            where=path,
            expected=f"{vocabulary['name']}, sha256 {vocabulary['sha256']}",
            got=f"{tokenizer.name}, sha256 {tokenizer.sha256}",
            next_step="give the configuration that built this dataset",
        )
    return tokenizer


def render_peek(peek: Peek) -> str:
    """For people: where it is, the first and last ids, and the text."""
    of = "" if peek.records is None else f" of {peek.records:,}"
    ids = peek.ids.tolist()
    listed = " ".join(map(str, ids[:IDS_SHOWN])) + (f" ... {ids[-1]}" if len(ids) > IDS_SHOWN else "")
    shown = "" if len(ids) == peek.tokens else f", the first {len(ids):,} shown"
    head = f"{visible(str(peek.path))}\nrecord {peek.record:,}{of}: {peek.tokens:,} tokens{shown}\nids  {listed}"
    if peek.missing:
        return f"{head}\n\nno text: {peek.missing}; --config CONFIG says where to find the tokenizer"
    return f"{head}\n\n{visible(peek.text)}"
