"""Nanoset files, as datatrove's DocumentTokenizer writes them: `<stem>.ds`, `<stem>.ds.index`, `<stem>.ds.metadata`.

    .ds            tokens of all documents back to back, little endian, uint16 or uint32, no header; EOS: framing.py
    .ds.index      u64 a document: the exclusive end of each in tokens, cumulative; no count, no leading 0
    .ds.metadata   <tokenizer>|<2 or 4> \\n <tokens, EOS included> \\n <the same in words>     no final newline
    .ds.loss       optional; u8 a token: 1 = train on it, 0 = do not

Source: huggingface/datatrove pipeline/tokens/tokenizer.py and tokenization.py; nanotron reads the result.

Invariants: `.ds` holds the same bytes as Megatron's `.bin` of the same documents and width (uint32 and int32
agree below 2^31); no document is empty, since a repeated end breaks datatrove's position ids.

Price: one pass over the tokens; memory is a batch; 8 B of disk a document beside the tokens. Speed is that of
megatron.py: 0.6 to 1.4 GB of tokens a second written, 5 GB verified, one core, page cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import humanize
import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError
from corpusmill.export.checks import (
    BLOCK_DOCUMENTS,
    BLOCK_TOKENS,
    require_ends,
    require_size,
    scan_ids,
    scan_special_tokens,
)
from corpusmill.export.files import fault, file_bytes, hard_link, whole_file
from corpusmill.export.framing import EmptyDocuments, Framing, SequenceBatch, ignore_sums, no_counts, write_framed
from corpusmill.export.megatron import MegatronPart
from corpusmill.kernels.mapping import mapped
from corpusmill.tokens.token_shard import Batch, TokenArray

if TYPE_CHECKING:
    from corpusmill.kernels.content_kernels import Words


def token_bytes(vocabulary_size: int) -> int:
    """Bytes of a token: 4 if the vocabulary has more than 65,536 ids, else 2."""
    return 4 if vocabulary_size > 65_536 else 2


def file_name(rank: int, sub: int | None) -> str:
    """The stem datatrove gives a file of shuffled documents, 00000_00000_doc_shuffled, or, without `sub`, of documents
    in the order of their source, 00000_unshuffled."""
    return f"{rank:05d}_unshuffled" if sub is None else f"{rank:05d}_{sub:05d}_doc_shuffled"


def write_file(
    folder: Path,
    stem: str,
    batches: Iterable[Batch | SequenceBatch],
    *,
    eos_id: int | None,
    tokenizer_name: str,
    vocabulary_size: int,
    bos_id: int | None = None,
    empty_documents: EmptyDocuments = "skip",
    written: Callable[[Words], None] = ignore_sums,
) -> dict[str, int]:
    """Write the three files of `stem` into `folder`, which exists; without a document, none of them.

    The width follows from the vocabulary. `tokenizer_name` is what transformers' AutoTokenizer can load.
    `written` is given the token sums (content_kernels.py) of each batch's documents, as they were written.
    Returns documents, documents_empty, tokens (of documents), special_tokens and bytes (of the three files).
    Raises ConfigError for a name the metadata cannot hold or a special token outside the vocabulary, CorruptDataError
    for malformed batches and ids outside the vocabulary, StorageFullError when the device is full.
    """
    _refuse_name(tokenizer_name)
    framing = Framing(eos_id, bos_id, empty_documents)
    framing.refuse_unfit(vocabulary_size)
    refuse_boundary(empty_documents)
    width = token_bytes(vocabulary_size)
    counts = no_counts()
    path = folder / f"{stem}.ds"
    with (
        whole_file(metadata_path(path)) as metadata,
        whole_file(index_path(path)) as index,
        whole_file(path) as data,
    ):
        dtype = np.dtype(f"<u{width}")
        for framed in write_framed(data, batches, framing, counts, dtype, vocabulary_size, written):
            written_tokens = counts["tokens"] + counts["special_tokens"]
            index.write((np.cumsum(framed.document_lengths) + written_tokens).astype("<u8").data)
        if counts["documents"]:
            total_tokens = counts["tokens"] + counts["special_tokens"]
            text = metadata_text(tokenizer_name, width, total_tokens)
            metadata.write(text)
            counts["bytes"] = total_tokens * width + 8 * counts["documents"] + len(text)
    return counts


def _refuse_name(tokenizer_name: str) -> None:
    if not tokenizer_name or "|" in tokenizer_name or "\n" in tokenizer_name:
        raise ConfigError(
            "nanoset.tokenizer_name: nanotron splits the metadata's first line at '|', so the tokenizer's name must"
            " hold none",
            expected="a name without '|' and line breaks",
            got=repr(tokenizer_name),
            next_step="give the name or folder AutoTokenizer loads the tokenizer from",
        )


def refuse_boundary(empty_documents: EmptyDocuments) -> None:
    """ConfigError: an end that repeats breaks the position ids of datatrove's reader."""
    if empty_documents == "boundary":
        raise ConfigError(
            "nanoset.empty_document: a Nanoset cannot hold a document without tokens",
            expected="empty_documents: skip or eod",
            got="empty_documents: boundary",
            next_step="drop such documents, or write each as EOS",
        )


def write_loss(path: Path, masks: Iterable[NDArray[np.bool_]]) -> int:
    """Write `<path>.loss` beside a `.ds` file: one byte a token, 1 where it is trained on. Returns its bytes."""
    written = 0
    with whole_file(loss_path(path)) as file:
        for mask in masks:
            written += file.write(mask.astype(np.uint8).data)
    return written


def every_token(tokens: int) -> Iterator[NDArray[np.bool_]]:
    """Masks that train on every token, as datatrove writes for documents without no_loss_ranges."""
    for first in range(0, tokens, BLOCK_TOKENS):
        yield np.ones(min(BLOCK_TOKENS, tokens - first), np.bool_)


def link_file(
    folder: Path, stem: str, part: MegatronPart, *, tokenizer_name: str, special_tokens: int = 1
) -> dict[str, int]:
    """Make the three files of `stem` from a Megatron part of the same documents: its tokens get a hard link.

    The part has one sequence a document, of them `special_tokens` special, as megatron.write_part leaves it. Returns
    what write_file returns. A file system without hard links gets a copy.
    """
    if not len(part):
        return no_counts()
    path = folder / f"{stem}.ds"
    hard_link(path, part.data_path)
    with whole_file(metadata_path(path)) as metadata, whole_file(index_path(path)) as index:
        position = 0
        for first in range(0, len(part), BLOCK_DOCUMENTS):
            ends = np.cumsum(part.lengths[first : first + BLOCK_DOCUMENTS], dtype="<u8") + np.uint64(position)
            index.write(ends.data)
            position = int(ends[-1])
        text = metadata_text(tokenizer_name, part.tokens.dtype.itemsize, position)
        metadata.write(text)
    written_bytes = position * part.tokens.dtype.itemsize + 8 * len(part) + len(text)
    return {
        "documents": len(part),
        "documents_empty": 0,
        "tokens": position - special_tokens * len(part),
        "special_tokens": special_tokens * len(part),
        "bytes": written_bytes,
    }


def index_path(path: Path) -> Path:
    return path.with_name(path.name + ".index")


def metadata_path(path: Path) -> Path:
    return path.with_name(path.name + ".metadata")


def loss_path(path: Path) -> Path:
    return path.with_name(path.name + ".loss")


def windows_of(tokens: int, sequence_tokens: int) -> tuple[int, int]:
    """(samples, dropped tokens) of a `.ds` file for datatrove's and nanotron's readers.

    A window takes sequence_tokens + 1 tokens and shares none with the next; the tail of every file is dropped.
    """
    return divmod(tokens, sequence_tokens + 1)


def metadata_text(tokenizer_name: str, width_bytes: int, total_tokens: int) -> bytes:
    """The three lines of `.ds.metadata`, e.g. b"gpt2|2\\n12\\n12.0 T"."""
    return f"{tokenizer_name}|{width_bytes}\n{total_tokens}\n{humanize.metric(total_tokens, unit='T')}".encode()


@dataclass(frozen=True, slots=True)
class NanosetFile:
    """An opened file; both arrays are memory-mapped, `ends` counts tokens."""

    path: Path
    tokenizer_name: str
    total_tokens: int
    ends: NDArray[np.uint64]
    tokens: TokenArray

    def __len__(self) -> int:
        return self.ends.size

    def document(self, ordinal: int) -> TokenArray:
        """Tokens of document `ordinal`, EOS included, as they are in the file."""
        start = int(self.ends[ordinal - 1]) if ordinal else 0
        return self.tokens[start : int(self.ends[ordinal])]


def open_file(path: Path, *, data: bool = True) -> NanosetFile:
    """Map the `.ds` file at `path` with its index, by the width its metadata states, and check the whole index.

    Without `data` only metadata and index are opened, and there are no tokens.

    Raises VerificationError, by file and byte, for what map_file refuses, ends that do not rise, and metadata or a
    token file with another number of tokens than the last end.
    """
    file = map_file(path, data=data)
    require_index(file, file_bytes(path) if data else None)
    return file


def require_index(file: NanosetFile, data_bytes: int | None = None, *, least_tokens: int = 1) -> int:
    """Check ends, metadata and, if given, the size of the token file; returns the tokens. See export/checks.py.

    `least_tokens`: of a document; one without tokens breaks the position ids of datatrove's reader.
    """
    width_bytes = file.tokens.dtype.itemsize
    total_tokens = require_ends(index_path(file.path), file.ends, least=least_tokens)
    if file.total_tokens != total_tokens:
        raise fault(
            "nanoset.token_counts_differ: the metadata and the index count different tokens",
            metadata_path(file.path),
            len(f"{file.tokenizer_name}|{width_bytes}\n".encode()),
            expected=total_tokens,
            got=file.total_tokens,
        )
    if data_bytes is not None:
        require_size(file.path, data_bytes, total_tokens * width_bytes)
    return total_tokens


def map_file(path: Path, *, data: bool = True) -> NanosetFile:
    """Map a `.ds` file, whose index may be damaged.

    Raises VerificationError for a missing file, metadata that is not the three lines datatrove writes, and an index
    that ends within an item.
    """
    data_bytes, index_bytes = file_bytes(path) if data else 0, file_bytes(index_path(path))
    name, width, total_tokens = _read_metadata(metadata_path(path))
    if index_bytes % 8:
        raise fault(
            "nanoset.index_truncated: the index ends within an item",
            index_path(path),
            index_bytes // 8 * 8,
            expected="8 bytes a document",
            got=index_bytes,
        )
    ends = mapped(index_path(path), "<u8", index_bytes // 8)
    return NanosetFile(path, name, total_tokens, ends, mapped(path, f"<u{width}", data_bytes // width))


def _read_metadata(path: Path) -> tuple[str, int, int]:
    """Tokenizer name, bytes of a token, total tokens; the file must equal their `metadata_text`."""
    file_bytes(path)
    text = path.read_bytes()
    first, _, rest = text.partition(b"\n")
    name, _, width = first.partition(b"|")
    total = rest.partition(b"\n")[0]
    if not name or width not in (b"2", b"4") or not total.isdigit():
        raise fault(
            "nanoset.metadata_malformed: the metadata does not state tokenizer, width and tokens",
            path,
            0,
            expected="<tokenizer>|<2 or 4>, tokens, tokens in words",
            got=text,
        )
    expected = metadata_text(name.decode("utf-8", "replace"), int(width), int(total))
    if text != expected:
        raise fault(
            "nanoset.metadata_differs: the metadata is not as datatrove writes it",
            path,
            len(first) + 1,
            expected=expected,
            got=text,
        )
    return name.decode(), int(width), int(total)


def verify_file(
    path: Path,
    *,
    vocabulary_size: int,
    eos_id: int | None,
    tokenizer_name: str,
    bos_id: int | None = None,
    empty_documents: EmptyDocuments = "skip",
    loss: bool | None = None,
) -> dict[str, int]:
    """Check the files of a `.ds` against the format and against each other.

    Raises VerificationError, naming file and byte, for: metadata of another tokenizer, width or count; ends that do not
    rise by a document's least tokens; a token file longer or shorter than the last end; ids outside the vocabulary;
    documents without their special tokens; a loss file of another length, or of other bytes than 0 and 1 (`loss` true:
    it is required; None: checked if it exists). datatrove's own check reads 2-byte files only and no loss file. Returns
    documents, tokens, special_tokens and bytes as re-read.
    """
    framing = Framing(eos_id, bos_id, empty_documents)
    opened = map_file(path)
    documents, width, data_bytes = len(opened), opened.tokens.dtype.itemsize, file_bytes(path)
    if (opened.tokenizer_name, width) != (tokenizer_name, token_bytes(vocabulary_size)):
        raise fault(
            "nanoset.other_tokenizer: the metadata names another tokenizer or width",
            metadata_path(path),
            0,
            expected=f"{tokenizer_name}|{token_bytes(vocabulary_size)}",
            got=f"{opened.tokenizer_name}|{width}",
        )
    least = framing.special_tokens + (framing.empty_documents == "skip")
    position = require_index(opened, data_bytes, least_tokens=least)
    scan_ids(path, opened.tokens, vocabulary_size)
    for first in range(0, documents, BLOCK_DOCUMENTS):
        ends = opened.ends[first : first + BLOCK_DOCUMENTS].astype(np.int64)
        starts = np.concatenate(([int(opened.ends[first - 1]) if first else 0], ends[:-1]))
        scan_special_tokens(path, opened.tokens, starts, ends, framing, first)
    total_bytes = data_bytes + file_bytes(index_path(path)) + file_bytes(metadata_path(path))
    if loss or (loss is None and loss_path(path).is_file()):
        total_bytes += _verify_loss(opened)
    return {
        "documents": documents,
        "tokens": position - framing.special_tokens * documents,
        "special_tokens": framing.special_tokens * documents,
        "bytes": total_bytes,
    }


def _verify_loss(opened: NanosetFile) -> int:
    """Check the loss file's length and values; returns its bytes."""
    path = loss_path(opened.path)
    actual = file_bytes(path)
    if actual != opened.tokens.size:
        raise fault(
            "nanoset.loss_file_size: the loss file does not have one byte per token",
            path,
            min(actual, opened.tokens.size),
            expected=f"{opened.tokens.size} bytes",
            got=actual,
        )
    values = mapped(path, "u1", actual)
    for first in range(0, actual, BLOCK_TOKENS):
        block = values[first : first + BLOCK_TOKENS]
        if int(block.max()) > 1:
            place = int(np.argmax(block > 1))
            raise fault(
                "nanoset.loss_file_values: the loss file has bytes other than 0 and 1",
                path,
                first + place,
                expected="0 or 1",
                got=int(block[place]),
            )
    return actual
