"""Megatron-LM's indexed dataset, version 1: `<prefix>.bin` (tokens) and `<prefix>.idx` (where the documents are).

    .bin   tokens of all documents back to back, EOD after each, little endian, uint16 or int32, no header
    .idx   0   9 B        "MMIDIDX" 00 00
           9   u64        1, the version
          17   u8         dtype code: 8 = uint16, 4 = int32
          18   u64        S, the number of sequences; here one a document
          26   u64        D = S + 1, the length of the boundaries
          34   i32 x S    tokens of each sequence, EOD included
      34+ 4S   i64 x S    byte offset of each sequence in .bin
      34+12S   i64 x D    document boundaries as sequence ordinals: 0, 1, ... S

Source: NVIDIA/Megatron-LM megatron/core/datasets/indexed_dataset.py, tools/preprocess_data.py (`--append-eod`).

Invariants: the index has 42 + 20 S bytes; pointers are the exclusive prefix sum of the lengths times the width; no
sequence is empty (documents without tokens are skipped, as BigScience did, and counted); the index gets its name last.

Price: one pass over the tokens. Memory is a batch and a block of the index, whatever the number of documents (the
reference merges with 136 B a document at its peak): lengths go straight to their place in the index, pointers and
boundaries are made from them at the end, block by block. Disk: 20 B a document beside the tokens. One core writes 0.8
to 1.4 GB of tokens a second into the page cache (documents of 2,000 tokens) and verifies 5 GB from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import ConfigError
from pipeline.export.batches import Batch, no_counts, refuse_special_beyond, with_special
from pipeline.export.files import TokenArray, fault, file_bytes, mapped, whole_file
from pipeline.export.scan import BLOCK_DOCUMENTS

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")  # magic, version, dtype code, sequences, boundaries: 34 bytes
DTYPES: dict[int, np.dtype[Any]] = {8: np.dtype("<u2"), 4: np.dtype("<i4")}
CODES = {dtype: code for code, dtype in DTYPES.items()}
UINT16, INT32 = DTYPES[8], DTYPES[4]


def token_dtype(vocabulary_size: int, *, as_preprocess_data: bool = False) -> np.dtype[Any]:
    """The width Megatron reads for a vocabulary (tokenizer size with added tokens, not padded).

    From 65,500 to 65,536 Megatron disagrees with itself: tools/preprocess_data.py writes int32, the fast loader
    assumes uint16 whatever the header says. Both of its loaders read uint16 correctly there, so uint16 it is;
    `as_preprocess_data` follows the tool instead.
    """
    limit = 65_500 if as_preprocess_data else 65_537
    return UINT16 if vocabulary_size < limit else INT32


def write_part(
    folder: Path,
    prefix: str,
    batches: Iterable[Batch],
    *,
    dtype: np.dtype[Any],
    eod_id: int,
    vocabulary_size: int,
) -> dict[str, int]:
    """Write `<prefix>.bin` and `<prefix>.idx` into `folder`, which exists; without a document, neither.

    Returns documents, documents_empty, tokens (of documents), special_tokens (EODs) and bytes (of both files).
    Raises ConfigError for a width or an EOD the vocabulary does not allow, CorruptDataError for batches that are not
    batches, ids outside the vocabulary and documents too long for int32, StorageFullError when the device is full.
    """
    _refuse_width(dtype, vocabulary_size)
    refuse_special_beyond(vocabulary_size, eod_id)
    counts = no_counts()
    with whole_file(folder / f"{prefix}.idx") as index:
        with whole_file(folder / f"{prefix}.bin") as data:
            index.seek(HEADER.size)
            for batch in batches:
                seen = counts["documents"] + counts["documents_empty"]
                marked = with_special(
                    batch,
                    eod_id,
                    before=False,
                    dtype=dtype,
                    vocabulary_size=vocabulary_size,
                    first_document=seen,
                )
                data.write(marked.tokens.data)
                index.write(marked.lengths.astype("<i4").data)
                marked.add_to(counts)
        if counts["documents"]:
            index_bytes = finish_index(index, counts["documents"], dtype)
            counts["bytes"] = (counts["tokens"] + counts["special_tokens"]) * dtype.itemsize + index_bytes
    return counts


def _refuse_width(dtype: np.dtype[Any], vocabulary_size: int) -> None:
    allowed = widths(vocabulary_size)
    if dtype not in allowed:
        raise ConfigError(
            "Megatron reads this vocabulary with another token width",
            expected=" or ".join(width.name for width in allowed),
            got=f"{dtype.name} for a vocabulary of {vocabulary_size}",
            next_step="use token_dtype(vocabulary_size)",
        )


def widths(vocabulary_size: int) -> tuple[np.dtype[Any], ...]:
    """The widths a part may have for a vocabulary: two from 65,500 to 65,536, else one."""
    return tuple(dict.fromkeys(token_dtype(vocabulary_size, as_preprocess_data=tool) for tool in (False, True)))


def finish_index(index: BinaryIO, sequences: int, dtype: np.dtype[Any]) -> int:
    """Complete an index whose lengths (i32) stand at byte 34: header, pointers, boundaries. Returns its bytes."""
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
    for first in range(0, sequences + 1, BLOCK_DOCUMENTS):
        index.write(np.arange(first, min(first + BLOCK_DOCUMENTS, sequences + 1), dtype="<i8").data)
    total_bytes = index.tell()
    index.seek(0)
    index.write(HEADER.pack(MAGIC, VERSION, CODES[dtype], sequences, sequences + 1))
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
        return self.lengths.size

    def document(self, ordinal: int) -> TokenArray:
        """Tokens of document `ordinal`, EOD included, as they are in the file (found by pointer, as Megatron does)."""
        start = int(self.pointers[ordinal]) // self.tokens.dtype.itemsize
        return self.tokens[start : start + int(self.lengths[ordinal])]


def open_part(prefix_path: Path) -> MegatronPart:
    """Map a part by its path without extension.

    Raises VerificationError for what Megatron's own reader refuses (magic, version, code, an index shorter than its
    header says) and for bytes behind the index, which it accepts.
    """
    index_path, data_path = (prefix_path.with_name(prefix_path.name + suffix) for suffix in (".idx", ".bin"))
    index_bytes, data_bytes = file_bytes(index_path), file_bytes(data_path)
    if index_bytes < HEADER.size:
        raise fault("the index is truncated", index_path, index_bytes, expected="34 bytes of header", got=index_bytes)
    with index_path.open("rb") as file:
        magic, version, code, sequences, boundaries = HEADER.unpack(file.read(HEADER.size))
    if magic != MAGIC:
        raise fault("this is not a Megatron index", index_path, 0, expected=MAGIC, got=magic)
    if version != VERSION:
        raise fault("the index has an unknown version", index_path, 9, expected=VERSION, got=version)
    if code not in DTYPES:
        raise fault("the index has a dtype code no exporter writes", index_path, 17, expected="8 or 4", got=code)
    expected_bytes = HEADER.size + 12 * sequences + 8 * boundaries
    if index_bytes != expected_bytes:
        what = "the index is truncated" if index_bytes < expected_bytes else "the index has bytes behind its end"
        raise fault(what, index_path, min(index_bytes, expected_bytes), expected=expected_bytes, got=index_bytes)
    dtype = DTYPES[code]
    return MegatronPart(
        index_path,
        data_path,
        mapped(index_path, "<i4", sequences, HEADER.size),
        mapped(index_path, "<i8", sequences, HEADER.size + 4 * sequences),
        mapped(index_path, "<i8", boundaries, HEADER.size + 12 * sequences),
        mapped(data_path, dtype, data_bytes // dtype.itemsize),
    )
