"""Token shards in, the same tokens in a global shuffle out: a series of `.npy` files (Jaxformer, build-nanogpt), or
token shards.

    stream    [rest of a document] EOT a a a EOT b b EOT c c ...     all .npy files in order of their number
    records   with eot_id: whole documents, each behind its EOT, wherever the files cut them
              with context_tokens: consecutive slices of that many tokens

Partial records do not move: the rest of a document that began before the first file stays in front, a last slice
shorter than a context stays at the end. Token counts and shard sizes, and so a loader's steps per shard, do not change.

Of token shards every document is a record, even without tokens, so that documents and tokens balance. The shards'
tokenizer and special ids are kept; the origin of documents is not: an output shard counts as one source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.direct.reshuffle.folders import TOKEN_SHARD, whole_folder
from corpusmill.errors import ConfigError, CorruptDataError
from corpusmill.export.numpy_shards import open_shard, shard_bounds, write_shard
from corpusmill.kernels.slices import runs, starts_of
from corpusmill.shuffle.lines import Shuffled, shuffle_records
from corpusmill.tokens.token_shard import open_token_shard, write_described_shard

BLOCK_TOKENS = 1 << 20
NUMBERED = re.compile(r"(.*?)(\d+)\.npy")

Batch = tuple[NDArray[np.uint8], NDArray[np.uint64]]


def reshuffle_npy(
    files: list[Path],
    output: Path,
    *,
    seed: int,
    memory_bytes: int,
    scratch: Path,
    eot_id: int | None = None,
    context_tokens: int | None = None,
    tokens_per_shard: int | None = None,
) -> Shuffled:
    """Write shards of the input's names, numbered from 0, into `output`, a new or empty folder.

    `tokens_per_shard`: by default the first input's. Raises ConfigError for files of two folders, names or dtypes
    (held-out data must not mix with training data), numbers with a gap, and when no token is `eot_id`;
    CorruptDataError for a malformed shard; StorageFullError.
    """
    if (eot_id is None) == (context_tokens is None):
        raise ConfigError(
            "reshuffle.record_kind: exactly one kind of record must be chosen for .npy shards",
            expected="--eot-id (whole documents) or --context-tokens (slices of this many tokens)",
            got="both" if eot_id is not None else "neither",
        )
    files, prefix, digits = _one_series(files)
    shards = [open_shard(file) for file in files]
    dtype = shards[0].dtype
    if any(shard.dtype != dtype for shard in shards):
        raise ConfigError(
            "reshuffle.dtypes_differ: the shards have different dtypes", where=files[0].parent, expected=dtype.name
        )
    total = sum(len(shard) for shard in shards)
    if eot_id is not None:
        head, tail = _head_tokens(shards, eot_id, files), 0
    else:
        assert context_tokens is not None  # noqa: S101 (one of the two was given)
        head, tail = 0, total % context_tokens
    body = _blocks(shards, head, total - tail)
    batches = _documents(body, eot_id) if eot_id is not None else _contexts(body, int(context_tokens or 0))
    records = 0

    def stream() -> Iterator[NDArray[Any]]:
        nonlocal records
        yield from _blocks(shards, 0, head)
        for data, lengths in shuffle_records(batches, seed=seed, memory_bytes=memory_bytes, scratch=scratch):
            records += len(lengths)
            yield data.view(dtype)
        yield from _blocks(shards, total - tail, total)

    bounds = shard_bounds(total, tokens_per_shard or len(shards[0]))
    width = max(digits, len(str(len(bounds) - 2)))
    pieces = _Pieces(stream())
    with whole_folder(output) as inner:
        for number, (first, last) in enumerate(pairwise(bounds)):
            write_shard(inner / f"{prefix}{number:0{width}d}.npy", pieces.take(last - first), last - first, dtype)
        pieces.finish()
    return Shuffled(records, total * dtype.itemsize)


def _one_series(files: list[Path]) -> tuple[list[Path], str, int]:
    """(files by number, the part of the name before the number, its digits)."""
    matches = {file: NUMBERED.fullmatch(file.name) for file in files}
    series = {(str(file.parent), match[1] if match else file.name) for file, match in matches.items()}
    if len(series) != 1 or any(match is None for match in matches.values()):
        raise ConfigError(
            "reshuffle.not_one_series: the .npy files are not one series: splits would mix, or their order is unknown",
            expected="one folder of files <name><number>.npy",
            got=", ".join("/".join(match) for match in sorted(series)[:3]),
            next_step="shuffle each split separately",
        )
    numbered = sorted((int(match[2]), file, match) for file, match in matches.items() if match)
    for (number, before, _), (following, after, _) in pairwise(numbered):
        if following != number + 1:
            raise ConfigError(
                "reshuffle.series_with_gap: the numbers of the .npy files have a gap: documents run from one file to"
                " the next",
                where=before.parent,
                expected=f"number {number + 1} after {before.name}",
                got=after.name,
                next_step="fetch the missing file, or name the files of one run of numbers",
            )
    return [file for _, file, _ in numbered], numbered[0][2][1], min(len(number[2]) for _, _, number in numbered)


def _head_tokens(shards: list[NDArray[Any]], eot_id: int, files: list[Path]) -> int:
    """Tokens before the first EOT."""
    head = 0
    for block in _blocks(shards, 0, sum(len(shard) for shard in shards)):
        at = np.flatnonzero(block == eot_id)
        if len(at):
            return head + int(at[0])
        head += len(block)
    raise ConfigError(
        "reshuffle.no_document_begins: no document begins in these shards",
        where=files[0].parent,
        expected=f"token {eot_id} before every document",
        got=f"{head:,} other tokens",
        next_step="give the tokenizer's end-of-text id as --eot-id (cl100k: 100257, GPT-2: 50256)",
    )


def _blocks(shards: list[NDArray[Any]], first: int, last: int) -> Iterator[NDArray[Any]]:
    """Tokens [first, last) of the stream, copied, a block at a time."""
    begin = 0
    for shard in shards:
        low, high = max(first, begin), min(last, begin + len(shard))
        for at in range(low, high, BLOCK_TOKENS):
            yield np.array(shard[at - begin : min(at + BLOCK_TOKENS, high) - begin])
        begin += len(shard)


def _documents(blocks: Iterable[NDArray[Any]], eot_id: int) -> Iterator[Batch]:
    """Whole documents with their EOT; the stream begins with one."""
    held: list[NDArray[Any]] = []
    for block in blocks:
        begins = np.flatnonzero(block == eot_id)
        if not len(begins):
            held.append(block)
            continue
        before = sum(len(span) for span in held)
        bounds = np.union1d([0], before + begins)
        if bounds[-1]:
            yield _batch(np.concatenate([*held, block[: begins[-1]]]), bounds)
        held = [block[begins[-1] :]]
    if held:
        rest = np.concatenate(held)
        yield _batch(rest, np.array([0, len(rest)]))


def _contexts(blocks: Iterable[NDArray[Any]], context_tokens: int) -> Iterator[Batch]:
    """Slices of `context_tokens`; the stream holds a whole number of them."""
    held = np.empty(0)
    for block in blocks:
        joined = np.concatenate([held, block]) if len(held) else block
        whole = len(joined) - len(joined) % context_tokens
        if whole:
            yield _batch(joined[:whole], np.arange(0, whole + 1, context_tokens))
        held = joined[whole:]
    if len(held):
        raise CorruptDataError(
            "reshuffle.files_changed: the .npy files changed while read", got=f"{len(held):,} tokens left over"
        )


def _batch(tokens: NDArray[Any], bounds: NDArray[np.int64]) -> Batch:
    lengths = np.diff(bounds).astype(np.uint64) * np.uint64(tokens.itemsize)
    return np.ascontiguousarray(tokens).view(np.uint8), lengths


class _Pieces:
    """A stream of arrays, taken a number of tokens at a time."""

    def __init__(self, stream: Iterator[NDArray[Any]]) -> None:
        self._stream = stream
        self._left: NDArray[Any] = np.empty(0, np.uint32)

    def take(self, tokens: int) -> Iterator[NDArray[Any]]:
        while tokens:
            if not len(self._left):
                following = next(self._stream, None)
                if following is None:
                    return  # the caller checks the count
                self._left = following
            piece, self._left = self._left[:tokens], self._left[tokens:]
            tokens -= len(piece)
            yield piece

    def finish(self) -> None:
        """Exhaust the stream, so that the shuffle checks its output against its input."""
        if len(self._left) or next(self._stream, None) is not None:
            raise CorruptDataError(
                "reshuffle.files_changed: the .npy files changed while read", got="more tokens than before"
            )


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
            ends = starts[first:last] + lengths[first:last] - np.uint64(begin)
            yield int(numbers[first]), tokens[begin : begin + int(ends[-1])], ends
        position += len(tokens)
