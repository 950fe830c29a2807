"""The global shuffle of byte strings whose number is not known before they are read: lines of text, ready samples.

    record i   key = word i of the Philox stream of the seed; the order is that of (key, i)

A source is read in batches. While they fit in memory they are kept; when they do not, all go to 64 part files by the
upper bits of their keys, and each part is read back and ordered, or, if it is still too large, parted again by the next
bits. As in placement.py the order is that of the keys, so it does not depend on the memory, on how the source was cut,
or on the number of parts.

    part file   lengths[n] u64 | keys[n] u64 | bytes ... one such group per batch, behind a u64 pair (n, bytes)

Price: a source that fits is read once and written once; a larger one goes to disk once for every factor of 64. Memory:
`memory_bytes` for records held and written, beyond what the process needs; a single record larger than that is held.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.errors import BalanceError, CorruptDataError, StorageFullError
from pipeline.fingerprint import canonical_json
from pipeline.slices import JoinedBytes, copy_slices, starts_of
from pipeline.tokens.records import MIX_HIGH, MIX_LOW
from pipeline.tokens.runs import runs

PARTS_BITS = 6
PARTS = 1 << PARTS_BITS
WRITE_BYTES = 4 << 20
OVERHEAD_BYTES = 56  # beside a record's bytes: length and key as read and in order, start, end, place in the order


@dataclass(frozen=True)
class Records:
    """Byte strings back to back: data uint8, lengths uint64, keys uint64."""

    data: NDArray[np.uint8]
    lengths: NDArray[np.uint64]
    keys: NDArray[np.uint64]

    @property
    def held_bytes(self) -> int:
        """What keeping them costs."""
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

    BalanceError at the end if the order-free digest or the count of what came out is not that of what went in.
    StorageFullError when `scratch`, where part files go, is full; they are removed in any case.
    """
    accounts = [[0, 0, 0], [0, 0, 0]]
    source = (_counted(one, accounts[0]) for one in _keyed(batches, seed))
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=scratch, prefix="shuffle-") as folder:
        for one in _ordered(source, 64, memory_bytes, Path(folder)):
            _counted(one, accounts[1])
            yield one.data, one.lengths
    if accounts[0] != accounts[1]:
        raise BalanceError(
            "the shuffle lost, doubled or changed a record",
            expected=f"{accounts[0][0]:,} records with digest {accounts[0][1]:016x}{accounts[0][2]:016x}",
            got=f"{accounts[1][0]:,} records with digest {accounts[1][1]:016x}{accounts[1][2]:016x}",
            next_step="run again; if it stays, the disk under --scratch returns other bytes than were written",
        )


def line_batches(blocks: Iterable[bytes]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint64]]]:
    """(data, lengths) of the lines of blocks of whole lines, newlines included; a last line without one gets it."""
    for block in blocks:
        whole = block if block.endswith(b"\n") else block + b"\n"
        data = np.frombuffer(whole, np.uint8)
        ends = np.flatnonzero(data == ord("\n")).astype(np.uint64) + np.uint64(1)
        yield data, np.diff(ends, prepend=np.uint64(0)).astype(np.uint64, copy=False)


def _keyed(batches: Iterable[tuple[NDArray[np.uint8], NDArray[np.uint64]]], seed: int) -> Iterator[Records]:
    key = hashlib.sha256(canonical_json({"shuffle": "lines", "seed": seed})).digest()[:16]
    words = np.random.Philox(key=np.frombuffer(key, "<u8").astype(np.uint64))
    for data, lengths in batches:
        if len(lengths):
            keys = np.asarray(words.random_raw(len(lengths)), np.uint64).reshape(-1)
            yield Records(data, lengths, keys)


def _counted(one: Records, account: list[int]) -> Records:
    low, high = bytes_digest(one.data, one.lengths)
    account[0] += len(one.lengths)
    account[1] = (account[1] + int(low)) % (1 << 64)
    account[2] = (account[2] + int(high)) % (1 << 64)
    return one


@njit(nogil=True, cache=True)
def bytes_digest(data: Any, lengths: Any) -> tuple[Any, Any]:
    """Order-free digest of byte strings laid back to back (uint8): as tokens' record_digest, eight bytes at a time.

    The last word of a string is filled with zeros; its length goes into the hash first, so that nothing is ambiguous.
    """
    low_sum, high_sum = np.uint64(0), np.uint64(0)
    at = np.int64(0)
    for i in range(len(lengths)):
        low, high = MIX_LOW ^ np.uint64(lengths[i]), MIX_HIGH
        end = at + np.int64(lengths[i])
        while at < end:
            word = np.uint64(0)
            if end - at >= 8:
                word = (
                    np.uint64(data[at])
                    | np.uint64(data[at + 1]) << np.uint64(8)
                    | np.uint64(data[at + 2]) << np.uint64(16)
                    | np.uint64(data[at + 3]) << np.uint64(24)
                    | np.uint64(data[at + 4]) << np.uint64(32)
                    | np.uint64(data[at + 5]) << np.uint64(40)
                    | np.uint64(data[at + 6]) << np.uint64(48)
                    | np.uint64(data[at + 7]) << np.uint64(56)
                )
                at += 8
            else:
                shift = np.uint64(0)
                while at < end:
                    word |= np.uint64(data[at]) << shift
                    shift += np.uint64(8)
                    at += 1
            low = (low ^ word) * MIX_LOW
            low ^= low >> np.uint64(29)
            high = (high + word) * MIX_HIGH
            high ^= high >> np.uint64(32)
        low_sum += low
        high_sum += high
    return low_sum, high_sum


def _ordered(source: Iterator[Records], bits: int, held_bytes: int, folder: Path) -> Iterator[Records]:
    """Records of `source` in the order of their keys, which agree in all but their lowest `bits`."""
    kept: list[Records] = []
    held = 0
    for one in source:
        kept.append(one)
        held += one.held_bytes
        if held > held_bytes and bits and not (len(kept) == 1 and len(one.lengths) == 1):
            yield from _parted(kept, source, bits, held_bytes, folder)
            return
    if kept:
        yield from _sorted(kept)


def _sorted(kept: list[Records]) -> Iterator[Records]:
    joined = JoinedBytes([one.data for one in kept])
    lengths, keys = (np.concatenate([getattr(one, name) for one in kept]) for name in ("lengths", "keys"))
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
    with full_disk_said(folder, "part files need as much as the input, once"), ExitStack() as stack:
        files = [stack.enter_context(path.open("wb", buffering=1 << 18)) for path in parts]
        while kept:
            _part(kept.pop(0), shift, files)
        for one in source:
            _part(one, shift, files)
    for path in parts:
        yield from _ordered(_read_part(path), shift, held_bytes, folder)
        path.unlink()
    inner.rmdir()


def _part(one: Records, shift: int, files: list[BinaryIO]) -> None:
    """Append each record to the file of its part, in order."""
    places = ((one.keys >> np.uint64(shift)) & np.uint64(PARTS - 1)).astype(np.uint8)
    order = np.argsort(places, kind="stable")
    starts = starts_of(one.lengths)[order]
    lengths, keys = one.lengths[order], one.keys[order]
    grouped = np.empty_like(one.data)
    copy_slices(one.data, starts, lengths, grouped)
    bounds = np.searchsorted(places[order], np.arange(PARTS + 1))
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        first, last = int(bounds[number]), int(bounds[number + 1])
        start, end = int(ends[first]), int(ends[last])
        head: NDArray[Any] = np.array([last - first, end - start], "<u8")
        for part in (head, lengths[first:last], keys[first:last], grouped[start:end]):
            files[number].write(np.ascontiguousarray(part).data)


def _read_part(path: Path) -> Iterator[Records]:
    with path.open("rb") as file:
        while head := file.read(16):
            count, data_bytes = np.frombuffer(head, "<u8").tolist()
            lengths = np.frombuffer(_exactly(file, 8 * count, path), "<u8")
            keys = np.frombuffer(_exactly(file, 8 * count, path), "<u8")
            yield Records(np.frombuffer(_exactly(file, data_bytes, path), np.uint8), lengths, keys)


def _exactly(file: BinaryIO, count: int, path: Path) -> bytes:
    found = file.read(count)
    if len(found) != count:
        raise CorruptDataError("a part file is cut off", where=path, expected=f"{count:,} bytes", got=len(found))
    return found


@contextmanager
def full_disk_said(folder: Path, needs: str) -> Iterator[None]:
    """A device or quota that is full becomes a StorageFullError that names `folder` and what it `needs`."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageFullError(
            "no space left for a shuffle",
            where=folder,
            got=error.strerror,
            next_step=f"free space there or choose another folder; {needs}",
        ) from error
