"""The global shuffle of byte strings whose number is not known in advance: lines of text, finished samples.

    record i   key = word i of the Philox stream of the seed; the order is that of (key, i)

A source is read in batches, which are kept while they fit in memory; otherwise all go to 64 part files by the upper
bits of their keys, and each part is read back and sorted, or, if it is still too large, split again by the next bits.
As in cells.py the order is that of the keys, so it does not depend on the memory, on how the source was cut, or on
the number of parts.

    part file   the records, back to back; beside it NN.index: (length u64, key u64) of each

Price: a source that fits is read once and written once; a larger one goes to disk once for every factor of 64. Memory:
`memory_bytes` for records held and written, beyond what the process needs; a single larger record is held, too. Part
files are mapped, not copied, when they are read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import BalanceError, CorruptDataError, full_device_explained
from corpusmill.fingerprint import random_words
from corpusmill.kernels.content import ContentSum
from corpusmill.kernels.content_kernels import text_hashes
from corpusmill.kernels.mapping import mapped, release_pages
from corpusmill.kernels.slices import JoinedBytes, copy_slices, line_ends, runs, starts_of

PARTS_BITS = 6
PARTS = 1 << PARTS_BITS
WRITE_BYTES = 4 << 20
BUFFER_BYTES = 4 << 10  # small, so that most of what a batch has for a part goes to the kernel without a copy
INDEX_RECORDS = 1 << 16
OVERHEAD_BYTES = 56  # per record: length and key as read and in order, start, end, place in the order


@dataclass(frozen=True)
class Records:
    """Byte strings back to back: data uint8, lengths uint64, keys uint64."""

    data: NDArray[np.uint8]
    lengths: NDArray[np.uint64]
    keys: NDArray[np.uint64]

    @property
    def held_bytes(self) -> int:
        """The memory that they take."""
        return len(self.data) + OVERHEAD_BYTES * len(self.lengths)


@dataclass(frozen=True)
class Shuffled:
    """What was read and written; equal for both, or BalanceError."""

    records: int
    data_bytes: int


def shuffle_records(
    batches: Iterable[tuple[NDArray[np.uint8], NDArray[np.uint64]]], *, seed: int, memory_bytes: int, scratch: Path
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint64]]]:
    """(data, lengths) batches in, the same records in the order of their keys out, in batches of about 4 MiB.

    BalanceError at the end if count or content of the output differs from the input's. StorageFullError if `scratch`,
    which holds the part files, is full; they are removed in any case.
    """
    read, written = _Account(), _Account()
    source = map(read.add, _keyed(batches, seed))
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=scratch, prefix="shuffle-") as folder:
        for records in _ordered(source, 64, memory_bytes, Path(folder)):
            written.add(records)
            yield records.data, records.lengths
    if read != written:
        raise BalanceError(
            "shuffle.records_differ: the shuffle lost, duplicated or changed a record",
            expected=f"{read.records:,} records with content {read.content}",
            got=f"{written.records:,} records with content {written.content}",
            next_step="run again; if it persists, the disk under --work-folder returns other bytes than were written",
        )


def line_batches(blocks: Iterable[bytes]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint64]]]:
    """(data, lengths) of the lines of blocks of whole lines, newlines included; a missing last newline is added."""
    for block in blocks:
        whole = block if block.endswith(b"\n") else block + b"\n"
        data = np.frombuffer(whole, np.uint8)
        yield data, np.diff(line_ends(data), prepend=np.uint64(0))


def _keyed(batches: Iterable[tuple[NDArray[np.uint8], NDArray[np.uint64]]], seed: int) -> Iterator[Records]:
    words = random_words({"shuffle": "lines", "seed": seed})
    for data, lengths in batches:
        if len(lengths):
            keys = np.asarray(words.random_raw(len(lengths)), np.uint64).reshape(-1)
            yield Records(data, lengths, keys)


@dataclass
class _Account:
    """The number of records, and the sum of their hashes, which does not depend on their order."""

    records: int = 0
    content: ContentSum = field(default_factory=ContentSum)

    def add(self, batch: Records) -> Records:
        ends = np.cumsum(batch.lengths, dtype=np.uint64)
        hashes = text_hashes(batch.data, ends - batch.lengths, ends)
        self.records += len(batch.lengths)
        self.content += ContentSum(*hashes.sum(axis=1, dtype=np.uint64).tolist())
        return batch


def _ordered(source: Iterator[Records], bits: int, held_bytes: int, folder: Path) -> Iterator[Records]:
    """Records of `source` in the order of their keys, which agree in all but their lowest `bits`."""
    kept: list[Records] = []
    held = 0
    for records in source:
        kept.append(records)
        held += records.held_bytes
        if held > held_bytes and bits and not (len(kept) == 1 and len(records.lengths) == 1):
            yield from _parted(kept, source, bits, held_bytes, folder)
            return
    if kept:
        yield from _sorted(kept)


def _sorted(kept: list[Records]) -> Iterator[Records]:
    joined = JoinedBytes([records.data for records in kept])
    lengths, keys = (np.concatenate([getattr(records, name) for records in kept]) for name in ("lengths", "keys"))
    kept.clear()
    order = np.argsort(keys, kind="stable")
    starts = starts_of(lengths)[order]
    lengths, keys = lengths[order], keys[order]
    for first, last in runs(np.cumsum(lengths, dtype=np.uint64), WRITE_BYTES):
        written = np.empty(int(lengths[first:last].sum()), np.uint8)
        joined.copy_slices(starts[first:last], lengths[first:last], written)
        yield Records(written, lengths[first:last], keys[first:last])


def _parted(
    kept: list[Records], source: Iterator[Records], bits: int, held_bytes: int, folder: Path
) -> Iterator[Records]:
    """Write everything to part files by the upper bits of the keys, then order part by part."""
    inner = folder / f"{bits:02d}"
    inner.mkdir()
    shift = max(0, bits - PARTS_BITS)
    parts = [inner / f"{number:02d}" for number in range(PARTS)]
    with full_folder_explained(folder, "part files need the size of the input"), ExitStack() as stack:
        files, indexes = (
            [stack.enter_context(path.open("wb", BUFFER_BYTES)) for path in paths]
            for paths in (parts, map(_index, parts))
        )
        while kept:
            _part(kept.pop(0), shift, files, indexes)
        for records in source:
            _part(records, shift, files, indexes)
    for path in parts:
        yield from _ordered(_read_part(path, held_bytes), shift, held_bytes, folder)
        for file in (path, _index(path)):
            file.unlink()
    inner.rmdir()


def _index(part: Path) -> Path:
    return part.with_suffix(".index")


def _part(records: Records, shift: int, files: list[BinaryIO], indexes: list[BinaryIO]) -> None:
    """Append each record to the file and the index of its part, in order."""
    places = ((records.keys >> np.uint64(shift)) & np.uint64(PARTS - 1)).astype(np.uint8)
    order = np.argsort(places, kind="stable")
    starts, lengths = starts_of(records.lengths)[order], records.lengths[order]
    index = np.stack([lengths, records.keys[order]], axis=1)
    grouped = np.empty_like(records.data)
    copy_slices(records.data, starts, lengths, grouped)
    bounds = np.searchsorted(places[order], np.arange(PARTS + 1))
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])[bounds].tolist()
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        files[number].write(grouped[ends[number] : ends[number + 1]].data)
        indexes[number].write(index[bounds[number] : bounds[number + 1]].data)


def _read_part(path: Path, held_bytes: int) -> Iterator[Records]:
    """The records of a part; of one that is larger than `held_bytes`, what was read does not stay mapped."""
    index = mapped(_index(path), "<u8", _index(path).stat().st_size // 16 * 2).reshape(-1, 2)
    size, expected = path.stat().st_size, int(index[:, 0].sum())
    if size != expected:
        raise CorruptDataError(
            "shuffle.part_truncated: a part file is truncated", where=path, expected=f"{expected:,} bytes", got=size
        )
    data, start = mapped(path, np.uint8, size), 0
    for begin in range(0, len(index), INDEX_RECORDS):
        lengths, keys = np.ascontiguousarray(index[begin : begin + INDEX_RECORDS].T)
        ends = np.cumsum(lengths, dtype=np.uint64)
        for first, last in runs(ends, WRITE_BYTES):
            end = start + int(lengths[first:last].sum())
            yield Records(data[start:end], lengths[first:last], keys[first:last])
            start = end
            if start > held_bytes:
                release_pages(data)


def full_folder_explained(folder: Path, needs: str) -> AbstractContextManager[None]:
    """StorageFullError if the device or quota of `folder` is full; its next step includes `needs`."""
    next_step = f"free space there or choose another folder; {needs}"
    return full_device_explained("shuffle.disk_full: no space left for a shuffle", where=folder, next_step=next_step)
