"""Megatron-LM's indexed dataset, version 1: `<prefix>.bin` (tokens) and `<prefix>.idx` (positions of the documents).

    .bin   tokens of all documents back to back, little endian, uint16 or int32, no header; EOD and BOS: framing.py
    .idx   0   9 B        "MMIDIDX" 00 00
           9   u64        1, the version
          17   u8         dtype code: 8 = uint16, 4 = int32
          18   u64        S, the number of sequences; one a document, unless its text is a list
          26   u64        D, the length of the boundaries: documents + 1
          34   i32 x S    tokens of each sequence, special tokens included
      34+ 4S   i64 x S    byte offset of each sequence in .bin
      34+12S   i64 x D    document boundaries as sequence ordinals: 0, ... S
   34+12S+8D   i8  x S    modes, of multimodal datasets only, which are neither read nor written here

Source: NVIDIA/Megatron-LM megatron/core/datasets/indexed_dataset.py, tools/preprocess_data.py (`--append-eod`). MaxText
reads the same files: its `mmap` in file order, its `mmap_npy` in Megatron's order.

Invariants: the index has 34 + 12 S + 8 D bytes; pointers are the exclusive prefix sum of the lengths times the width;
no sequence is empty; the index gets its name last. `open_part` checks all of this but the empty sequences, which other
writers leave (checks.py).

Price: one pass over the tokens. Memory is a batch and a block of the index, for any number of documents (the reference
merges with 136 B a document at its peak): lengths go straight to their place in the index, pointers are made from them
at the end, block by block; boundaries wait in an unnamed file. Disk: 20 B a document beside the tokens, and 8 for the
waiting boundaries. One core writes 0.8 to 1.4 GB of tokens a second into the page cache (documents of 2,000 tokens)
and verifies 5 GB from it, in one pass over the tokens and two over the index.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError
from corpusmill.export.checks import (
    BLOCK_DOCUMENTS,
    blocks,
    require_boundaries,
    require_sequences,
    require_size,
    scan_ids,
    scan_special_tokens,
)
from corpusmill.export.files import BUFFER_BYTES, fault, file_bytes, whole_file
from corpusmill.export.framing import EmptyDocuments, Framing, SequenceBatch, ignore_sums, no_counts, write_framed
from corpusmill.kernels.mapping import mapped
from corpusmill.tokens.token_shard import Batch, TokenArray

if TYPE_CHECKING:
    from corpusmill.kernels.content_kernels import Words


MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")  # magic, version, dtype code, sequences, boundaries: 34 bytes
DTYPES: dict[int, np.dtype[Any]] = {8: np.dtype("<u2"), 4: np.dtype("<i4")}
CODES = {dtype: code for code, dtype in DTYPES.items()}
UINT16, INT32 = DTYPES[8], DTYPES[4]


def token_dtype(vocabulary_size: int, *, as_preprocess_data: bool = False) -> np.dtype[Any]:
    """The width Megatron reads for a vocabulary (tokenizer size with added tokens, not padded).

    From 65,500 to 65,536 Megatron disagrees with itself: tools/preprocess_data.py writes int32, the fast loader
    assumes uint16 whatever the header says. Both of its loaders read uint16 correctly there, so this writes uint16;
    `as_preprocess_data` follows the tool instead.
    """
    limit = 65_500 if as_preprocess_data else 65_537
    return UINT16 if vocabulary_size < limit else INT32


def write_part(
    folder: Path,
    prefix: str,
    batches: Iterable[Batch | SequenceBatch],
    *,
    dtype: np.dtype[Any],
    eod_id: int | None,
    vocabulary_size: int,
    bos_id: int | None = None,
    empty_documents: EmptyDocuments = "skip",
    written: Callable[[Words], None] = ignore_sums,
) -> dict[str, int]:
    """Write `<prefix>.bin` and `<prefix>.idx` into `folder`, which exists; without a token, neither.

    `written` is given the token sums (content_kernels.py) of each batch's documents, as they were written.
    Returns documents, documents_empty, sequences, tokens (of documents), special_tokens and bytes (of both files).
    Raises ConfigError for a width or a special token that the vocabulary does not allow, CorruptDataError for malformed
    batches, ids outside the vocabulary and sequences too long for int32, StorageFullError when the device is full.
    """
    _refuse_width(dtype, vocabulary_size)
    framing = Framing(eod_id, bos_id, empty_documents)
    framing.refuse_unfit(vocabulary_size)
    counts = {**no_counts(), "sequences": 0}
    with whole_file(folder / f"{prefix}.idx") as index, tempfile.TemporaryFile(dir=folder) as boundaries:
        with whole_file(folder / f"{prefix}.bin") as data:
            index.seek(HEADER.size)
            for framed in write_framed(data, batches, framing, counts, dtype, vocabulary_size, written):
                index.write(framed.lengths.astype("<i4").data)
                boundaries.write((np.cumsum(framed.sequences) + counts["sequences"]).astype("<i8").data)
                counts["sequences"] += framed.lengths.size
        if counts["sequences"]:
            boundaries.seek(0)
            index_bytes = finish_index(index, counts["sequences"], boundaries, counts["documents"], dtype)
            counts["bytes"] = (counts["tokens"] + counts["special_tokens"]) * dtype.itemsize + index_bytes
    return counts


def _refuse_width(dtype: np.dtype[Any], vocabulary_size: int) -> None:
    allowed = widths(vocabulary_size)
    if dtype not in allowed:
        raise ConfigError(
            "megatron.token_width: Megatron reads this vocabulary with another token width",
            expected=" or ".join(width.name for width in allowed),
            got=f"{dtype.name} for a vocabulary of {vocabulary_size}",
            next_step="use token_dtype(vocabulary_size)",
        )


def widths(vocabulary_size: int) -> tuple[np.dtype[Any], ...]:
    """The widths a part may have for a vocabulary: two from 65,500 to 65,536, else one."""
    return tuple(dict.fromkeys(token_dtype(vocabulary_size, as_preprocess_data=tool) for tool in (False, True)))


def finish_index(index: BinaryIO, sequences: int, boundaries: BinaryIO, documents: int, dtype: np.dtype[Any]) -> int:
    """Complete an index whose lengths (i32) are already at byte 34: header, pointers, boundaries. Returns its bytes.

    `boundaries`: i64 per document, the sequences up to its end; read from its current position.
    """
    pointers_at = HEADER.size + 4 * sequences
    position_bytes = 0
    for first in range(0, sequences, BLOCK_DOCUMENTS):
        count = min(BLOCK_DOCUMENTS, sequences - first)
        index.seek(HEADER.size + 4 * first)
        sizes = np.frombuffer(index.read(4 * count), "<i4").astype("<i8") * dtype.itemsize
        ends = np.cumsum(sizes) + position_bytes
        index.seek(pointers_at + 8 * first)
        index.write((ends - sizes).data)
        position_bytes = int(ends[-1])
    index.seek(pointers_at + 8 * sequences)
    index.write(np.zeros(1, "<i8").data)
    shutil.copyfileobj(boundaries, index, BUFFER_BYTES)
    total_bytes = index.tell()
    index.seek(0)
    index.write(HEADER.pack(MAGIC, VERSION, CODES[dtype], sequences, documents + 1))
    return total_bytes


@dataclass(frozen=True, slots=True)
class MegatronPart:
    """An opened part; every array is memory-mapped. `boundaries` has one item more than there are documents."""

    index_path: Path
    data_path: Path
    lengths: NDArray[np.int32]
    pointers: NDArray[np.int64]
    boundaries: NDArray[np.int64]
    tokens: TokenArray

    def __len__(self) -> int:
        """The number of sequences."""
        return self.lengths.size

    @property
    def documents(self) -> int:
        """The number of documents."""
        return self.boundaries.size - 1

    def sequence(self, ordinal: int) -> TokenArray:
        """Tokens of a sequence, special ones included, found by pointer, as in Megatron."""
        start = int(self.pointers[ordinal]) // self.tokens.dtype.itemsize
        return self.tokens[start : start + int(self.lengths[ordinal])]

    def document(self, ordinal: int) -> TokenArray:
        """Tokens of a document, special ones included: those of all its sequences."""
        first, last = (int(bound) for bound in self.boundaries[ordinal : ordinal + 2])
        if first == last:
            return self.tokens[:0]
        start = int(self.pointers[first]) // self.tokens.dtype.itemsize
        return self.tokens[start : start + int(self.lengths[first:last].sum(dtype=np.int64))]


def open_part(prefix_path: Path, *, data: bool = True) -> MegatronPart:
    """Map a part by its path without extension, and check its whole index.

    Without `data` only the index is opened, and there are no tokens.

    Raises VerificationError, by file and byte, for what map_part refuses, lengths below 0, pointers that are not the
    prefix sum of the lengths, boundaries that do not rise from 0 to the number of sequences, and a token file of
    another size than the index adds up to. Megatron's own reader accepts all of these but a wrong last boundary.
    """
    part = map_part(prefix_path, data=data)
    if data:
        require_width(part)
    require_index(part, file_bytes(part.data_path) if data else None)
    return part


def require_index(
    part: MegatronPart,
    data_bytes: int | None = None,
    *,
    least_tokens: int = 0,
    least_sequences: int = 0,
    most_sequences: int | None = None,
) -> None:
    """Check lengths, pointers, boundaries and, if given, the size of the token file; see export/checks.py.

    `least_tokens`: of a sequence; `least_sequences`, `most_sequences`: of a document.
    """
    total_bytes = require_sequences(
        part.index_path,
        part.lengths,
        part.pointers,
        width_bytes=part.tokens.dtype.itemsize,
        lengths_at=HEADER.size,
        least=least_tokens,
    )
    boundaries_at = HEADER.size + 12 * len(part)
    require_boundaries(
        part.index_path, part.boundaries, len(part), at=boundaries_at, least=least_sequences, most=most_sequences
    )
    if data_bytes is not None:
        require_size(part.data_path, data_bytes, total_bytes)


def require_width(part: MegatronPart) -> None:
    """VerificationError if the size of the token file fits the other width, and not the one that the index states."""
    dtype, data_bytes = part.tokens.dtype, file_bytes(part.data_path)
    other = INT32 if dtype == UINT16 else UINT16
    total_tokens = sum(int(lengths.sum(dtype=np.int64)) for lengths in blocks(part.lengths))
    if total_tokens * dtype.itemsize != data_bytes == total_tokens * other.itemsize:
        raise fault(
            "megatron.index_of_other_width: the index has the dtype code of another width",
            part.index_path,
            17,
            expected=CODES[other],
            got=CODES[dtype],
        )


def map_part(prefix_path: Path, *, data: bool = True) -> MegatronPart:
    """Map a part, whose index may be damaged.

    Raises VerificationError for what Megatron's own reader refuses (magic, version, code, an index shorter than its
    header states) and for bytes behind the index, which it accepts.
    """
    index_path, data_path = (prefix_path.with_name(prefix_path.name + suffix) for suffix in (".idx", ".bin"))
    index_bytes, data_bytes = file_bytes(index_path), file_bytes(data_path) if data else 0
    if index_bytes < HEADER.size:
        raise fault(
            "megatron.index_truncated: the index is truncated",
            index_path,
            index_bytes,
            expected="34 bytes of header",
            got=index_bytes,
        )
    with index_path.open("rb") as file:
        magic, version, code, sequences, boundaries = HEADER.unpack(file.read(HEADER.size))
    if magic != MAGIC:
        raise fault("megatron.not_an_index: this is not a Megatron index", index_path, 0, expected=MAGIC, got=magic)
    if version != VERSION:
        raise fault(
            "megatron.unknown_version: the index has an unknown version", index_path, 9, expected=VERSION, got=version
        )
    if code not in DTYPES:
        raise fault(
            "megatron.unknown_dtype: the index has a dtype code that no exporter writes",
            index_path,
            17,
            expected="8 or 4",
            got=code,
        )
    expected_bytes = HEADER.size + 12 * sequences + 8 * boundaries
    if index_bytes != expected_bytes:
        what = "is truncated" if index_bytes < expected_bytes else "has bytes after its end"
        raise fault(
            f"megatron.index_size: the index {what}",
            index_path,
            min(index_bytes, expected_bytes),
            expected=expected_bytes,
            got=index_bytes,
        )
    dtype = DTYPES[code]
    return MegatronPart(
        index_path,
        data_path,
        mapped(index_path, "<i4", sequences, HEADER.size),
        mapped(index_path, "<i8", sequences, HEADER.size + 4 * sequences),
        mapped(index_path, "<i8", boundaries, HEADER.size + 12 * sequences),
        mapped(data_path, dtype, data_bytes // dtype.itemsize),
    )


def verify_part(
    prefix_path: Path,
    *,
    vocabulary_size: int,
    eod_id: int | None,
    bos_id: int | None = None,
    empty_documents: EmptyDocuments = "skip",
    several_sequences: bool = False,
) -> dict[str, int]:
    """Check every byte of a part against the format and the files against each other.

    Megatron's reader accepts most faults and trains on wrong tokens; this raises VerificationError, naming file and
    byte, for each: header, index size, width, lengths, pointers, boundaries, token file size, ids outside the
    vocabulary, documents without their special tokens. With `several_sequences` a document may have more than one.
    Returns documents, tokens, special_tokens and bytes as re-read.
    """
    part = map_part(prefix_path)
    framing = Framing(eod_id, bos_id, empty_documents)
    data_bytes = file_bytes(part.data_path)
    if part.tokens.dtype not in (allowed := widths(vocabulary_size)):
        raise fault(
            "megatron.index_of_other_width: the index has the dtype code of another width",
            part.index_path,
            17,
            expected=[CODES[width] for width in allowed],
            got=CODES[part.tokens.dtype],
        )
    require_width(part)
    sequences, itemsize = len(part), part.tokens.dtype.itemsize
    more, fewer = framing.empty_documents == "boundary", several_sequences
    if not (1 if fewer else sequences + 1) <= part.boundaries.size <= (part.boundaries.size if more else sequences + 1):
        raise fault(
            "megatron.boundary_count: the index has the wrong number of boundaries",
            part.index_path,
            26,
            expected=f"{sequences + 1}" + (" or more" if more else "") + (" or fewer" if fewer else ""),
            got=part.boundaries.size,
        )
    least = 1 if several_sequences else framing.special_tokens + (framing.empty_documents != "eod")
    require_index(
        part,
        data_bytes,
        least_tokens=least,
        least_sequences=0 if more else 1,
        most_sequences=sequences if fewer else 1,
    )
    scan_ids(part.data_path, part.tokens, vocabulary_size)
    filled = 0
    for first in range(0, part.documents, BLOCK_DOCUMENTS):
        bounds = part.boundaries[first : first + BLOCK_DOCUMENTS + 1]
        opens, closes = bounds[:-1], bounds[1:]
        numbers = np.flatnonzero(opens < closes)
        ends = part.pointers[closes[numbers] - 1] // itemsize + part.lengths[closes[numbers] - 1]
        starts = part.pointers[opens[numbers]] // itemsize
        scan_special_tokens(part.data_path, part.tokens, starts, ends, framing, first)
        filled += numbers.size
    return {
        "documents": part.documents,
        "tokens": part.tokens.size - framing.special_tokens * filled,
        "special_tokens": framing.special_tokens * filled,
        "bytes": data_bytes + file_bytes(part.index_path),
    }
