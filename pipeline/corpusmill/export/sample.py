"""The first documents of an export as a separate export: a uniform sample if the order is a global shuffle.

The tokens are those of the whole export, byte for byte, special ones included: nothing is tokenized again.

Price: the sampled tokens are read once and written once; memory is a block of documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.export import megatron, nanoset
from corpusmill.export.framing import SequenceBatch
from corpusmill.tokens.token_shard import Batch

BLOCK_DOCUMENTS = 1 << 12


def sample_parts(
    prefixes: Sequence[Path], folder: Path, prefix: str, documents: int, *, vocabulary_size: int
) -> dict[str, int]:
    """Write the first `documents` documents of Megatron parts, in order, as `folder`/`prefix`; see write_part."""
    parts = [megatron.open_part(path) for path in prefixes]
    return megatron.write_part(
        folder,
        prefix,
        _sequences(parts, documents),
        dtype=parts[0].tokens.dtype,
        eod_id=None,
        empty_documents="boundary",
        vocabulary_size=vocabulary_size,
    )


def _sequences(parts: Sequence[megatron.MegatronPart], documents: int) -> Iterator[SequenceBatch]:
    for part in parts:
        taken = min(part.documents, documents)
        documents -= taken
        for first in range(0, taken, BLOCK_DOCUMENTS):
            bounds = np.asarray(part.boundaries[first : min(first + BLOCK_DOCUMENTS, taken) + 1])
            lengths = part.lengths[bounds[0] : bounds[-1]].astype(np.uint64)
            start = int(part.pointers[bounds[0]]) // part.tokens.dtype.itemsize if lengths.size else 0
            tokens = part.tokens[start : start + int(lengths.sum())]
            ends = np.cumsum(lengths, dtype=np.uint64)
            yield _unsigned(tokens), ends, (bounds[1:] - bounds[0]).astype(np.uint64)


def sample_files(
    paths: Sequence[Path], folder: Path, stem: str, documents: int, *, vocabulary_size: int
) -> dict[str, int]:
    """Write the first `documents` documents of `.ds` files, in order, as `folder`/`stem`.ds; see write_file."""
    files = [nanoset.open_file(path) for path in paths]
    return nanoset.write_file(
        folder,
        stem,
        _documents(files, documents),
        eos_id=None,
        tokenizer_name=files[0].tokenizer_name,
        vocabulary_size=vocabulary_size,
    )


def _documents(files: Sequence[nanoset.NanosetFile], documents: int) -> Iterator[Batch]:
    for file in files:
        taken = min(len(file), documents)
        documents -= taken
        for first in range(0, taken, BLOCK_DOCUMENTS):
            start = int(file.ends[first - 1]) if first else 0
            ends = file.ends[first : min(first + BLOCK_DOCUMENTS, taken)] - np.uint64(start)
            yield _unsigned(file.tokens[start : start + int(ends[-1])]), np.asarray(ends)


def _unsigned(tokens: Any) -> Any:
    """Megatron's int32 as the uint32 it is: ids are below 2^31."""
    return np.asarray(tokens).view(f"<u{tokens.dtype.itemsize}")
