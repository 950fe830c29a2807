r"""OLMo-core's files, as dolma writes them: `<stem>.npy`, raw ids in spite of the name, and `<stem>.csv.gz`.

    .npy       tokens of all documents back to back, little endian, uint16 or uint32, no header; EOS: framing.py
    .csv.gz    start,end,id,src,loc \n     a line a document, in order, without gaps; in tokens, end exclusive
               0,4,00003-000000017,00003,18 \n
               the id is its shard of the corpus and its number there, src the shard, loc the number counted from 1
    .offsets   on request: a real .npy of uint64, 0 and the end of each document in tokens; its name keeps it out of
               the readers' globs for tokens

Source: allenai/dolma tokenizer/memmap_writer.py; allenai/OLMo-core data/numpy_dataset.py and data/utils.py. OLMo-core
finds documents by EOS in local files, and by the csv at addresses, of which it reads two fields; dolma's own reshard
wants all five. It takes the smallest width that holds the vocabulary unless `dtype` is set: a byte below 257 ids, which
are two bytes here.

Invariants: `.npy` holds the bytes of Megatron's `.bin` and Nanoset's `.ds` of the same documents; every document has a
token and its EOS. Files are cut between documents: a longer document makes a longer file. One of 2^32 tokens or more is
refused, since OLMo-core's padded and variable-length datasets hold positions in u32. The csv is cut into gzip members
of MEMBER_LINES lines, so its bytes depend on the documents alone.

Price: that of the other files of whole documents, and 0.6 us a document for the csv; memory is a member of it, 4 MB.
A reader holds 8 B a document.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import deflate
import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError
from corpusmill.export.checks import BLOCK_DOCUMENTS, require_size, scan_ids, scan_special_tokens
from corpusmill.export.files import fault, file_bytes, whole_file
from corpusmill.export.framing import Framing, ignore_sums, no_counts, write_framed
from corpusmill.kernels.mapping import mapped
from corpusmill.tokens.token_shard import Batch, TokenArray

if TYPE_CHECKING:
    from typing import Any

    from corpusmill.kernels.content_kernels import Words

TOO_MANY_TOKENS = 1 << 32
LINE = "%d,%d,%05d-%09d,%05d,%d\n"
MEMBER_LINES = 1 << 16
GZIP_LEVEL = 1

Documents = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]
"""(tokens with special ones, shards, ordinals) of consecutive documents."""


def write_tokens(
    path: Path,
    batches: Iterable[Batch],
    framing: Framing,
    *,
    dtype: np.dtype[Any],
    vocabulary_size: int,
    written: Callable[[Words], None] = ignore_sums,
) -> dict[str, int]:
    """Write the token file of a stem; without a document, none. Returns documents, tokens, special_tokens.

    `written` is given the token sums (content_kernels.py) of each batch's documents. ConfigError for a framing that no
    reader finds documents by, CorruptDataError for malformed batches and ids outside the vocabulary, StorageFullError
    when the device is full.
    """
    refuse_framing(framing)
    framing.refuse_unfit(vocabulary_size)
    counts = no_counts()
    with whole_file(path) as data:
        for _ in write_framed(data, batches, framing, counts, dtype, vocabulary_size, written):
            pass
    return counts


def refuse_framing(framing: Framing) -> None:
    """ConfigError unless every document has a token and ends with EOS."""
    if framing.eod_id is None or framing.empty_documents == "boundary":
        raise ConfigError(
            "olmo.no_eos: readers find documents by the EOS at their ends",
            expected="an EOD, and empty_documents: skip or eod",
            got=f"eod {framing.eod_id}, empty_documents: {framing.empty_documents}",
        )


def write_index(path: Path, documents: Iterable[Documents]) -> NDArray[np.uint64]:
    """Write the `.csv.gz` at `path`; returns the ends of the documents, in tokens. Without a document, no file.

    ConfigError for TOO_MANY_TOKENS or more.
    """
    ends, end = [np.zeros(0, np.uint64)], 0
    waiting: list[str] = []
    with whole_file(path) as file:
        for lengths, shards, ordinals in documents:
            bounds = np.cumsum(np.concatenate((np.array([end], np.uint64), lengths)), dtype=np.uint64)
            columns = (bounds[:-1], bounds[1:], shards, ordinals, shards, ordinals + np.uint64(1))
            waiting += map(LINE.__mod__, zip(*(column.tolist() for column in columns), strict=True))
            ends.append(bounds[1:])
            end = int(bounds[-1])
            if end >= TOO_MANY_TOKENS:
                raise ConfigError(
                    "olmo.file_too_large: readers hold the positions of a file in 32 bits",
                    where=path,
                    expected=f"fewer than {TOO_MANY_TOKENS:,} tokens",
                    got=f"{end:,} or more",
                    next_step="set exports.olmo.file_tokens, or the size of the parts whose tokens these share, lower",
                )
            while len(waiting) >= MEMBER_LINES:
                file.write(_member(waiting[:MEMBER_LINES]))
                del waiting[:MEMBER_LINES]
        if waiting:
            file.write(_member(waiting))
    return np.concatenate(ends)


def _member(lines: list[str]) -> bytes | bytearray:
    return deflate.gzip_compress("".join(lines).encode(), GZIP_LEVEL)


def write_offsets(path: Path, ends: NDArray[np.uint64]) -> None:
    """Write the `.offsets` at `path`; without a document, no file."""
    if len(ends):
        with whole_file(path) as file:
            np.lib.format.write_array(file, _offsets(ends), version=(1, 0), allow_pickle=False)


def _offsets(ends: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.concatenate((np.zeros(1, np.uint64), ends)).astype("<u8")


def beside(path: Path, ending: str) -> Path:
    """The `.csv.gz` or `.offsets` of a token file."""
    return path.with_name(path.name.removesuffix(".npy") + ending)


@dataclass(frozen=True, slots=True)
class OlmoFile:
    """An opened file; `ends` counts tokens, `tokens` are memory-mapped."""

    path: Path
    ends: NDArray[np.uint64]
    tokens: TokenArray

    def __len__(self) -> int:
        return self.ends.size

    def document(self, ordinal: int) -> TokenArray:
        """Tokens of document `ordinal`, EOS included, as they are in the file."""
        start = int(self.ends[ordinal - 1]) if ordinal else 0
        return self.tokens[start : int(self.ends[ordinal])]


def open_file(path: Path, dtype: np.dtype[Any]) -> OlmoFile:
    """Map a token file and read its csv, whose every line is checked.

    VerificationError, by file and byte of the text, for a csv that is not gzip or ends within it, for a line that is
    not as written, and for a token file of another size than the last end.
    """
    data_bytes, index = file_bytes(path), beside(path, ".csv.gz")
    file_bytes(index)
    width = np.dtype(dtype).newbyteorder("<")
    ends = np.array(list(_read_ends(index)), np.uint64)
    require_size(path, data_bytes, int(ends[-1]) * width.itemsize if len(ends) else 0)
    return OlmoFile(path, ends, mapped(path, width, data_bytes // width.itemsize))


def _read_ends(index: Path) -> Iterator[int]:
    start = at = document = 0
    try:
        with gzip.open(index, "rb") as packed, io.BufferedReader(packed, 1 << 20) as file:
            for line in file:
                end = _end_of(line, start)
                if end is None:
                    raise fault(
                        f"olmo.line_differs: the line of document {document} is not as written",
                        index,
                        at,
                        expected=f"{start},END,SHARD-NUMBER,SHARD,NUMBER + 1",
                        got=f"{len(line)} other bytes",
                    )
                yield end
                start, at, document = end, at + len(line), document + 1
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise fault(
            "olmo.index_not_readable: the index cannot be decompressed",
            index,
            0,
            expected="gzip of lines",
            got=type(error).__name__,
        ) from error


def _end_of(line: bytes, start: int) -> int | None:
    """The end that the line of a document from `start` on states; None if it is not as `write_index` writes it."""
    fields = line.split(b",")
    try:
        end, shard, number = int(fields[1]), int(fields[3]), int(fields[4]) - 1
    except (ValueError, IndexError):
        return None
    if end <= start or shard < 0 or number < 0:
        return None
    return end if line.decode("ascii", "replace") == LINE % (start, end, shard, number, shard, number + 1) else None


def verify_file(
    path: Path, *, dtype: np.dtype[Any], vocabulary_size: int, framing: Framing, offsets: bool
) -> dict[str, int]:
    """Check every byte of a token file, its csv and, with `offsets`, its offsets against the format and each other.

    VerificationError, naming file and byte, for what open_file refuses, ids outside the vocabulary, documents without
    their special tokens or of fewer tokens than these, and offsets that differ. Returns documents, tokens,
    special_tokens.
    """
    opened = open_file(path, dtype)
    if opened.tokens.size >= TOO_MANY_TOKENS:
        raise fault(
            "olmo.file_too_large: readers hold the positions of a file in 32 bits",
            path,
            TOO_MANY_TOKENS * opened.tokens.itemsize,
            expected=f"fewer than {TOO_MANY_TOKENS:,} tokens",
            got=f"{opened.tokens.size:,}",
        )
    scan_ids(path, opened.tokens, vocabulary_size)
    signed = opened.ends.astype(np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), signed[:-1]))
    least = framing.special_tokens + (framing.empty_documents == "skip")
    if len(signed) and int((signed - starts).min()) < least:
        document = int(np.argmin(signed - starts))
        raise fault(
            f"olmo.document_too_short: document {document} has too few tokens",
            path,
            int(starts[document]) * opened.tokens.itemsize,
            expected=f"at least {least}, special ones included",
            got=int(signed[document] - starts[document]),
        )
    for first in range(0, len(signed), BLOCK_DOCUMENTS):
        block = slice(first, first + BLOCK_DOCUMENTS)
        scan_special_tokens(path, opened.tokens, starts[block], signed[block], framing, first)
    if offsets:
        _verify_offsets(beside(path, ".offsets"), opened.ends)
    special = framing.special_tokens * len(signed)
    return {
        "documents": len(signed),
        "tokens": opened.tokens.size - special,
        "special_tokens": special,
    }


def _verify_offsets(path: Path, ends: NDArray[np.uint64]) -> None:
    size = file_bytes(path)
    expected = io.BytesIO()
    np.lib.format.write_array(expected, _offsets(ends), version=(1, 0), allow_pickle=False)
    stated = np.frombuffer(expected.getvalue(), np.uint8)
    actual = mapped(path, np.uint8, size)
    common = min(len(stated), size)
    unequal = np.flatnonzero(actual[:common] != stated[:common])
    if len(unequal) or size != len(stated):
        raise fault(
            "olmo.offsets_differ: the offsets are not those of the documents",
            path,
            int(unequal[0]) if len(unequal) else common,
            expected=f"{len(stated)} bytes: 0 and the {len(ends)} ends in the csv",
            got=f"{size} bytes",
        )
