"""Token shards in, the same documents in a global shuffle out, as token shards.

Every document is a record, even without tokens, so that documents and tokens balance. The shards' tokenizer and special
ids are kept; the origin of documents is not: an output shard counts as one source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.direct.reshuffle.folders import TOKEN_SHARD, whole_folder
from corpusmill.errors import ConfigError
from corpusmill.kernels.runs import runs
from corpusmill.kernels.slices import starts_of
from corpusmill.shuffle.lines import Shuffled, shuffle_records
from corpusmill.tokens.token_shard import open_token_shard, write_described_shard

BATCH_TOKENS = 1 << 20


def reshuffle_token_shards(
    folders: list[Path],
    output: Path,
    *,
    seed: int,
    memory_bytes: int,
    scratch: Path,
    tokens_per_shard: int | None = None,
) -> Shuffled:
    """Write token shards 00000, 00001, ... into `output`, a new or empty folder.

    A document goes to the shard in which its first token falls, so that shards hold `tokens_per_shard` tokens up to
    the last document's; by default there are as many shards as in the input. Raises ConfigError for shards of different
    tokenizers, CorruptDataError for one whose files disagree, StorageFullError.
    """
    total = sum(len(open_token_shard(folder).tokens) for folder in folders)
    description = _common_description(folders)
    size = tokens_per_shard or max(1, -(-total // len(folders)))
    dtype = np.dtype(description["dtype"]).newbyteorder("<")
    shuffled = shuffle_records(_batches(folders), seed=seed, memory_bytes=memory_bytes, scratch=scratch)
    records = data_bytes = 0
    with whole_folder(output) as inner:
        for number, (_, pieces) in enumerate(groupby(_cut(shuffled, dtype, size), key=lambda piece: piece[0])):
            folder = inner / f"{number:05d}"
            folder.mkdir()
            written, documents = write_described_shard((piece[1:] for piece in pieces), description, folder)
            records, data_bytes = records + documents, data_bytes + written * dtype.itemsize
    return Shuffled(records, data_bytes)


def _common_description(folders: list[Path]) -> dict[str, Any]:
    """The tokenizer's description, which all shards must share."""
    described = {folder: json.loads((folder / TOKEN_SHARD).read_text()) for folder in folders}
    first: dict[str, Any] = described[folders[0]]
    for folder, description in described.items():
        if description != first:
            names = [name for name in {**first, **description} if first.get(name) != description.get(name)]
            raise ConfigError(
                "reshuffle.tokenizers_differ: token shards of different tokenizers cannot be shuffled together",
                where=f"{folders[0]} and {folder}",
                expected=", ".join(f"{name}: {first.get(name)}" for name in names),
                got=", ".join(f"{name}: {description.get(name)}" for name in names),
            )
    return first


def _batches(folders: list[Path]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint64]]]:
    """(bytes of documents, lengths in bytes), as shuffle_records takes them."""
    for folder in folders:
        shard = open_token_shard(folder)
        lengths = np.diff(np.asarray(shard.ends), prepend=np.uint64(0)).astype(np.uint64)
        for first, last in runs(shard.ends, BATCH_TOKENS):
            start = int(shard.ends[first - 1]) if first else 0
            tokens = np.array(shard.tokens[start : int(shard.ends[last - 1])])
            yield tokens.view(np.uint8), lengths[first:last] * np.uint64(tokens.itemsize)


def _cut(
    shuffled: Iterable[tuple[NDArray[np.uint8], NDArray[np.uint64]]], dtype: np.dtype[Any], size: int
) -> Iterator[tuple[int, NDArray[Any], NDArray[np.uint64]]]:
    """(position // size of the first token, tokens, ends): consecutive documents that share an output shard."""
    position = 0
    for data, byte_lengths in shuffled:
        tokens, lengths = data.view(dtype), byte_lengths // np.uint64(dtype.itemsize)
        starts = starts_of(lengths)
        numbers = (starts + np.uint64(position)) // np.uint64(size)
        for first, last in pairwise([0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]):
            begin = int(starts[first])
            ends = (starts + lengths)[first:last] - np.uint64(begin)
            yield int(numbers[first]), tokens[begin : begin + int(ends[-1])], ends
        position += len(tokens)
