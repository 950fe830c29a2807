"""JSON lines straight to Megatron or Nanoset files, in the order of the source: no dedup, no shuffle, no build.

Does the job of Megatron-LM's tools/preprocess_data.py and of datatrove's DocumentTokenizer without shuffle, and writes
the same bytes from the same text and tokenizer.

    megatron   {prefix}_{key}_document.bin and .idx for every key; {prefix}_{key}_sentence where lists are sentences
    nanoset    {name_}00000_unshuffled.ds and its neighbours; 00001 ... when a file may only hold so many tokens

A text may be a list: each string in it is a sequence of one document. Lines that are no documents go to
{prefix}.rejected.jsonl or rejected.jsonl; more than the share that is allowed fails the command, and then no export
has its name.

Price: one pass over the source for every key; one core; memory is a block of lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError, RejectedDocumentsError, SourceError, TokenizerError
from corpusmill.export import megatron, nanoset
from corpusmill.export.files import whole_file
from corpusmill.export.framing import EmptyDocuments, Framing, SequenceBatch, frame
from corpusmill.tokens.tokenizer import Tokenizer

REJECTED = "rejected.jsonl"


@dataclass(frozen=True)
class Written:
    """One output: its path without ending, and its writer's counts."""

    path: Path
    counts: dict[str, int]


@dataclass
class Source:
    """The files that are read (here, in a bucket, on a hub), what is wanted of their lines, and what was not taken."""

    inputs: list[str]
    keys: tuple[str, ...]
    quarantine: Path
    max_rejected_share: float = 0.001
    ranges_key: str | None = None
    endpoint_url: str | None = None
    rejected: Counter[str] = field(default_factory=Counter)
    lines: int = 0

    def read(self, key: str) -> Iterator[Any]:
        """The sequences of a key, file by file in natural order of name; RejectedDocumentsError at the end."""
        from corpusmill.documents.quarantine import append_rejections
        from corpusmill.documents.sequences import read_sequences
        from corpusmill.sources.copies import each_file

        self.rejected, self.lines = Counter(), 0
        with whole_file(self.quarantine) as quarantine:
            for name, lines in each_file(self.inputs, self.endpoint_url):
                with lines as stream:
                    for batch in read_sequences(
                        stream, source=name, key=key, keys=self.keys, ranges_key=self.ranges_key
                    ):
                        self.rejected.update(one.reason.value for one in batch.rejected.rejections)
                        self.lines += len(batch.sequences) + append_rejections(quarantine, batch.rejected)
                        yield batch
        lost = sum(self.rejected.values())
        if lost > self.max_rejected_share * self.lines:
            raise RejectedDocumentsError(
                f"{lost:,} of {self.lines:,} lines are not documents",
                where=self.quarantine,
                expected=f"at most {self.max_rejected_share:.4%}",
                got=", ".join(f"{count:,} {reason}" for reason, count in sorted(self.rejected.items())),
                next_step="mend the source, or allow more with --max-rejected-share if losing these lines is right",
            )


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
    """A complete pair for every key of the source. ConfigError where a pair is there: its index cache would be stale.

    SourceError when a key holds no token: no reader can open a pair without one.
    """
    framing = framing_for(tokenizer, eod=eod, bos=bos, empty_documents=empty_documents)
    level = "sentence" if sentences else "document"
    names = {key: f"{prefix.name}_{key}_{level}" for key in source.keys}
    for name in names.values():
        _refuse_there(prefix.with_name(f"{name}.bin"))
        _refuse_there(prefix.with_name(f"{name}.idx"))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for key, name in names.items():
        counts = megatron.write_part(
            prefix.parent,
            name,
            (batch for batch, _ in _encoded(source, key, tokenizer)),
            dtype=megatron.token_dtype(tokenizer.vocabulary_size, as_preprocess_data=as_preprocess_data),
            eod_id=framing.eod_id,
            bos_id=framing.bos_id,
            empty_documents=empty_documents,
            vocabulary_size=tokenizer.vocabulary_size,
        )
        _require_tokens(source, key, counts)
        written.append(Written(prefix.with_name(name), counts))
    return written


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
    """One file, or several of at most `maximum_tokens`: a file closes before the document that would exceed it.

    A longer document has a file of its own. With the source's `ranges_key` each gets a loss file, too.
    """
    framing = framing_for(tokenizer, eod=eos, bos=bos, empty_documents=empty_documents)
    nanoset.refuse_boundary(empty_documents)
    if there := sorted(folder.glob("*.ds")) if folder.is_dir() else []:
        _refuse_there(there[0])
    folder.mkdir(parents=True, exist_ok=True)
    (key,) = source.keys
    pieces = Pieces(_encoded(source, key, tokenizer), framing, maximum_tokens)
    written: list[Written] = []
    while pieces.more():
        stem = f"{name + '_' if name else ''}{nanoset.file_name(len(written), None)}"
        counts = _write_file(
            folder,
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
    _require_tokens(source, key, written[0].counts if written else {"tokens": 0})
    return written


def _write_file(folder: Path, stem: str, pieces: Pieces, *, with_loss: bool, **arguments: Any) -> dict[str, int]:
    """The next file of the pieces; its loss file grows beside it."""
    if not with_loss:
        return nanoset.write_file(folder, stem, pieces.file(None), **arguments)
    with whole_file(nanoset.loss_path(folder / f"{stem}.ds")) as loss:

        def add_mask(mask: NDArray[np.bool_]) -> None:
            loss.write(mask.astype(np.uint8).data)

        return nanoset.write_file(folder, stem, pieces.file(add_mask), **arguments)


Encoded = tuple[SequenceBatch, NDArray[np.bool_] | None]
"""A batch, and of each of its tokens whether it is trained on (None: all are)."""


@dataclass
class Pieces:
    """The batches of a source handed out file by file."""

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
    """Tokens that each document will have in a file, 0 for one that is left out."""
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


def _encoded(source: Source, key: str, tokenizer: Tokenizer) -> Iterator[Encoded]:
    for batch in source.read(key):
        tokens, ends = tokenizer.encode(batch.texts)
        mask = None
        if any(batch.no_loss):
            mask = np.ones(tokens.size, np.bool_)
            first = np.concatenate(([0], np.cumsum(batch.sequences))).astype(np.int64)
            for document, ranges in enumerate(batch.no_loss):
                if ranges:
                    text = batch.texts[first[document]]
                    start = int(ends[first[document] - 1]) if first[document] else 0
                    mask[start : int(ends[first[document]])] = trained_tokens(text, ranges, tokenizer)
        yield (tokens, ends, np.cumsum(batch.sequences, dtype=np.uint64)), mask


def trained_tokens(text: bytes, no_loss: Sequence[tuple[int, int]], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Of each token of a text, whether it lies outside all character ranges [first, last).

    As datatrove has it: from the token that holds the first character up to, without it, the token that holds the
    character behind the last. A range that reaches the text's end goes to its last token (datatrove cuts the document
    there, EOS and all).
    """
    ends = tokenizer.reference.token_ends(text)
    trained = np.ones(ends.size, np.bool_)
    # Byte position of each character, and the text's end.
    starts = [0, *accumulate(len(character.encode()) for character in text.decode())]
    for first, last in no_loss:
        low, high = (
            int(np.searchsorted(ends, starts[place], side="right")) if place < len(starts) - 1 else ends.size
            for place in (first, last)
        )
        trained[low:high] = False
    return trained


def framing_for(tokenizer: Tokenizer, *, eod: bool, bos: bool, empty_documents: EmptyDocuments) -> Framing:
    """Framing by the tokenizer's own special tokens; TokenizerError for BOS where it has none."""
    if bos and tokenizer.bos_id is None:
        raise TokenizerError(f"the tokenizer {tokenizer.name} has no BOS token", next_step="name it with --bos-token")
    framing = Framing(tokenizer.eot_id if eod else None, tokenizer.bos_id if bos else None, empty_documents)
    framing.refuse_unfit(tokenizer.vocabulary_size)
    return framing


def _refuse_there(path: Path) -> None:
    if path.exists():
        raise ConfigError(
            "the output is there already; a trainer's index cache would not notice new content under an old name",
            where=path,
            expected="a new name",
            got=f"{path.stat().st_size:,} bytes",
        )


def _require_tokens(source: Source, key: str, counts: dict[str, int]) -> None:
    if not counts["tokens"]:
        raise SourceError(
            "no document has any text",
            where=f"key {key}",
            expected="at least one token",
            got=f"{source.lines:,} lines",
            next_step="check the inputs and the key",
        )
