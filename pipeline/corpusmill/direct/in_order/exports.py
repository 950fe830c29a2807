"""JSON lines to a trainer's files in the order of the source: Megatron's as tools/preprocess_data.py of Megatron-LM
writes them, Nanoset's as datatrove's DocumentTokenizer writes them unshuffled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.direct.in_order.source import (
    Encoded,
    Source,
    Written,
    encoded,
    framing_for,
    refuse_existing,
    require_tokens,
)
from corpusmill.errors import ConfigError
from corpusmill.export import megatron, nanoset
from corpusmill.export.files import made_folder, whole_file, whole_files
from corpusmill.export.framing import EmptyDocuments, Framing, SequenceBatch, frame
from corpusmill.sources.copies import STANDARD
from corpusmill.tokens.tokenizer import Tokenizer


def write_megatron(
    source: Source,
    prefix: Path,
    tokenizer: Tokenizer,
    *,
    eod: bool = True,
    bos: bool = False,
    empty_documents: EmptyDocuments = "boundary",
    sentences: bool = False,
    as_preprocess_data: bool = False,
) -> list[Written]:
    """Write a pair for every key of the source. ConfigError if a pair exists: its index cache would be stale.

    ConfigError, too, for several keys of standard input, which can be read once. SourceError if a key holds no token:
    no reader can open an empty pair. Other errors as Source raises them.
    """
    if len(source.keys) > 1 and STANDARD in source.inputs:
        raise ConfigError(
            "in_order.several_keys_of_standard_input: standard input can be read once, and each key reads it anew",
            where=STANDARD,
            expected="one key",
            got=", ".join(source.keys),
            next_step="save the input as a file, and name that",
        )
    source.set_aside.require_own(source.inputs, "--output")
    framing = framing_for(tokenizer, eod=eod, bos=bos, empty_documents=empty_documents)
    level = "sentence" if sentences else "document"
    names = {key: f"{prefix.name}_{key}_{level}" for key in source.keys}
    for name in names.values():
        refuse_existing(prefix.with_name(f"{name}.bin"))
        refuse_existing(prefix.with_name(f"{name}.idx"))
    written = []
    with made_folder(prefix.parent):
        for key, name in names.items():
            counts = megatron.write_part(
                prefix.parent,
                name,
                (batch for batch, _ in encoded(source, key, tokenizer)),
                dtype=megatron.token_dtype(tokenizer.vocabulary_size, as_preprocess_data=as_preprocess_data),
                eod_id=framing.eod_id,
                bos_id=framing.bos_id,
                empty_documents=empty_documents,
                vocabulary_size=tokenizer.vocabulary_size,
            )
            require_tokens(source, key, counts)
            written.append(Written(prefix.with_name(name), counts))
    return written


FILE_NAME = re.compile(r".*\.ds(\.(index|metadata|loss))?")


def write_nanoset(
    source: Source,
    folder: Path,
    tokenizer: Tokenizer,
    *,
    name: str = "",
    eos: bool = True,
    bos: bool = False,
    empty_documents: EmptyDocuments = "eod",
    maximum_tokens: int | None = None,
) -> list[Written]:
    """Write one file, or several of at most `maximum_tokens`: a file ends before the document that would exceed it.

    A longer document gets a file of its own. With the source's `ranges_key` each file gets a loss file, too. The files
    get their names together, once all are written and the source is read to its end. ConfigError if the folder holds
    files of a dataset; other errors as Source raises them.
    """
    source.set_aside.require_own(source.inputs, "--output")
    framing = framing_for(tokenizer, eod=eos, bos=bos, empty_documents=empty_documents)
    nanoset.refuse_boundary(empty_documents)
    if existing := sorted(path for path in folder.glob("*.ds*") if FILE_NAME.fullmatch(path.name)):
        refuse_existing(existing[0])
    (key,) = source.keys
    pieces = Pieces(encoded(source, key, tokenizer), framing, maximum_tokens)
    written: list[Written] = []
    with made_folder(folder), whole_files(folder) as inner:
        while pieces.more():
            stem = f"{name + '_' if name else ''}{nanoset.file_name(len(written), None)}"
            counts = _write_file(
                inner,
                stem,
                pieces,
                with_loss=source.ranges_key is not None,
                eos_id=framing.eod_id,
                bos_id=framing.bos_id,
                empty_documents=empty_documents,
                tokenizer_name=tokenizer.name,
                vocabulary_size=tokenizer.vocabulary_size,
            )
            if counts["documents"]:
                written.append(Written(folder / stem, counts))
        require_tokens(source, key, written[0].counts if written else {"tokens": 0})
    return written


def _write_file(folder: Path, stem: str, pieces: Pieces, *, with_loss: bool, **arguments: Any) -> dict[str, int]:
    """The next file of the pieces; its loss file grows beside it."""
    if not with_loss:
        return nanoset.write_file(folder, stem, pieces.file(None), **arguments)
    with whole_file(nanoset.loss_path(folder / f"{stem}.ds")) as loss:

        def add_mask(mask: NDArray[np.bool_]) -> None:
            loss.write(mask.astype(np.uint8).data)

        return nanoset.write_file(folder, stem, pieces.file(add_mask), **arguments)


@dataclass
class Pieces:
    """The batches of a source, divided into files."""

    encoded: Iterator[Encoded]
    framing: Framing
    maximum_tokens: int | None
    waiting: Encoded | None = None

    def more(self) -> bool:
        """Whether anything is left for another file."""
        if self.waiting is None:
            self.waiting = next(self.encoded, None)
        return self.waiting is not None

    def file(self, add_mask: Callable[[NDArray[np.bool_]], object] | None) -> Iterator[SequenceBatch]:
        """The batches of the next file; its framed masks go to `add_mask`."""
        used = 0
        while self.more():
            assert self.waiting is not None  # noqa: S101 (more() says so)
            batch, mask = self.waiting
            documents = batch[2].size
            if self.maximum_tokens is not None:
                ends = np.cumsum(_framed_lengths(batch, self.framing)) + used
                documents = int(np.searchsorted(ends, self.maximum_tokens, side="right"))
                documents = min(batch[2].size, max(documents, int(used == 0)))
                used = int(ends[documents - 1]) if documents else used
            first, self.waiting = _cut(batch, mask, documents)
            if first[0][2].size:
                if add_mask is not None:
                    add_mask(_framed_mask(first, self.framing))
                yield first[0]
            if self.waiting is not None:
                return


def _framed_lengths(batch: SequenceBatch, framing: Framing) -> NDArray[np.int64]:
    """int64 (documents,): tokens that each document will have in a file, 0 for a dropped one."""
    ends = np.concatenate((np.zeros(1, np.uint64), batch[1]))
    bounds = np.concatenate((np.zeros(1, np.uint64), batch[2])).astype(np.int64)
    reached = ends[bounds].astype(np.int64)
    lengths = reached[1:] - reached[:-1]
    kept = (lengths > 0) | (framing.empty_documents == "eod")
    return lengths + framing.special_tokens * kept


def _cut(batch: SequenceBatch, mask: NDArray[np.bool_] | None, documents: int) -> tuple[Encoded, Encoded | None]:
    """The first `documents` documents, and the rest if there is one."""
    tokens, ends, document_ends = batch
    if documents == document_ends.size:
        return (batch, mask), None
    sequences = int(document_ends[documents - 1]) if documents else 0
    at = int(ends[sequences - 1]) if sequences else 0
    first = tokens[:at], ends[:sequences], document_ends[:documents]
    rest = tokens[at:], ends[sequences:] - np.uint64(at), document_ends[documents:] - np.uint64(sequences)
    masks = (None, None) if mask is None else (mask[:at], mask[at:])
    return (first, masks[0]), (rest, masks[1])


def _framed_mask(encoded: Encoded, framing: Framing) -> NDArray[np.bool_]:
    """The mask with its special tokens, which are trained on: framed as tokens are, with ids 0 and 1."""
    (tokens, ends, document_ends), mask = encoded
    trained = np.ones(tokens.size, np.uint16) if mask is None else mask.astype(np.uint16)
    specials = Framing(
        None if framing.eod_id is None else 1, None if framing.bos_id is None else 1, framing.empty_documents
    )
    framed = frame((trained, ends, document_ends), specials, dtype=np.dtype("<u2"), vocabulary_size=2)
    return framed.tokens.astype(np.bool_)
