"""The anchors of one text shard, the index from which duplicates are found, and the slices of the windows they own.

For every window of L = minimum_bytes bytes of a document, the anchor is the k-gram of the window with the highest rank,
the leftmost on ties (anchor_kernels.py). The rank depends on the k-gram's bytes alone, so equal windows have equal
anchors at equal offsets: windows whose anchors differ need never be compared. Neighbouring windows mostly share their
anchor, about 2 / (L - k + 2) anchors per byte of text. (Schleimer, Wilkerson, Aiken, "Winnowing", 2003; Roberts et al.,
"Reducing storage requirements for biological sequence comparison", 2004.)

An anchor owns the windows that have it: those that start from `before` bytes before its position onward, `windows` of
them. Every window is owned by exactly one anchor, or lies in a repeat: text with a short period (a rule of dashes,
zeros in base64) would make an anchor of nearly every byte, so windows equal to the one a period earlier are written as
one row of `repeats` and get no anchor. Hence  windows owned + windows in repeats = windows of the text: checked.

Of a hash's 64 bits, 12 are those of the bucket and the 32 below are kept. Of n anchors, n / 2^44 then share a hash by
chance: 1 in 17,000 of 10^9. A false match costs a digest and changes no range.

Price: 300-750 MB/s per core; 12 bytes x anchors on disk (7 % of the text at L = 500, 35 % at L = 100).
Memory: 28 bytes x run_anchors (112 MiB), the text is memory-mapped and read once. A shard with more anchors is written
in runs that are merged bucket by bucket; the bytes do not depend on it.

A slice is the windows of an anchor that start n x w to n x w + w - 1 bytes before it, w being a power of two. All of
them contain its gram: the L - w + 1 bytes from n x w before the anchor on. Equal windows have equal anchors at equal
offsets, so they are in slices of equal grams at equal n; what else a window holds is less than w bytes, its borders.

    place       position << 20 | before << 10 | windows - 1                 an anchor
    border      position << 20 | left << 10 | right     a slice of an anchor: where its gram begins, and how many bytes
                                                        its windows reach beyond the gram on either side

Of the window that starts j bytes before the gram, j bytes are left of it and w - 1 - j right of it; the slice has the
windows j from w - 1 - right to left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchor_kernels import (
    BUCKET_SHIFT,
    BUCKETS,
    HASH_SHIFT,
    MOST_ANCHOR_WINDOWS,
    MOST_TEXT_BYTES,
    find_anchors,
    sort_into_buckets,
)
from corpusmill.errors import BalanceError, CorruptDataError
from corpusmill.kernels import advance
from corpusmill.kernels.compiled import kernel
from corpusmill.kernels.content_kernels import bytes_hash
from corpusmill.kernels.mapping import mapped

ANCHOR_ROWS, ROW_BYTES = "anchors", 12
SMALL_FILES = ("anchors.json", "anchor_buckets", "anchor_repeats")

_RUN_ANCHORS = 1 << 22
_REPEATS = 1 << 16
_AT_ONCE = 1 << 16  # anchors between two looks at how far it is: some 10 MB of text


def kgram_bytes(minimum_bytes: int) -> int:
    """k: the bytes that two windows must share, at the anchor, to be compared at all.

    A third of L: a smaller k gives fewer anchors, 2 / (L - k + 2) per byte, but more of them are shared by text that is
    not duplicated. Anchors and matches of 136 MB of documentation, ns per byte, at k = L/2, L/3, L/4 and 16:
    2.2, 1.9, 1.9, 2.3 at L = 500 and 7.2, 5.6, 6.1, 7.4 at L = 100.
    Not below 16 (the rank reads 16 bytes) unless L is, and large enough that an anchor owns at most 1024 windows.
    """
    return min(minimum_bytes, max(16, minimum_bytes // 3, minimum_bytes + 1 - MOST_ANCHOR_WINDOWS))


@dataclass(frozen=True)
class Anchors:
    """The anchors of one shard, memory-mapped.

    rows        uint32 (n, 3): bits 20 to 51 of the k-gram's hash; its place, position << 20 | before << 10 |
                windows - 1, low half first. By bucket (the top 12 bits of the hash), in text order within a bucket
    starts      int64[4097]: first row of every bucket, then n
    repeats     uint64 (r, 2): first window start and one past the last of windows equal to the one a period earlier
    """

    minimum_bytes: int
    kgram_bytes: int
    rows: NDArray[np.uint64]
    starts: NDArray[np.int64]
    repeats: NDArray[np.uint64]

    def places(self, hashed: int) -> NDArray[np.uint64]:
        """The places of the anchors with a 64-bit hash, as far as its bits are kept; ascending."""
        bucket = hashed >> BUCKET_SHIFT
        rows = self.rows[self.starts[bucket] : self.starts[bucket + 1]]
        return places_of(rows[rows[:, 0] == np.uint32(hashed >> HASH_SHIFT & 0xFFFFFFFF)])


def places_of(rows: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """uint64 (n,): the places of `Anchors.rows`."""
    return rows[:, 1].astype(np.uint64) | rows[:, 2].astype(np.uint64) << np.uint64(32)


def partition_buckets(partition: int, partitions: int) -> tuple[int, int]:
    """First bucket of a partition and one past its last. All partitions together are all buckets."""
    return BUCKETS * partition // partitions, BUCKETS * (partition + 1) // partitions


def write_anchors(
    text: NDArray[np.uint8],
    offsets: NDArray[np.uint64],
    minimum_bytes: int,
    folder: Path,
    *,
    run_anchors: int = _RUN_ANCHORS,
) -> dict[str, int]:
    """Write the anchors of a text shard into `folder` , which exists, and return their counts. The caller writes the
    receipt.

    text, offsets   the text shard: uint8[n], 0xFF before each document; uint64[documents], positions of those 0xFF
    run_anchors     anchors held in memory at a time

    Raises CorruptDataError if offsets and text do not fit together, BalanceError if a window is not accounted for.
    """
    k = kgram_bytes(minimum_bytes)
    total_windows = _check_text_shard(text, offsets, minimum_bytes)
    capacity = max(1, min(run_anchors, total_windows))
    anchors = np.empty((capacity, 2), np.uint64)
    bucketed = np.empty((capacity, 3), np.uint32)
    repeats = np.empty((min(capacity, _REPEATS), 2), np.uint64)
    state = np.zeros(2, np.int64)
    of_shard = text.ctypes.data, text.size, offsets.ctypes.data, len(offsets)
    run_starts: list[NDArray[np.int64]] = []
    repeated: list[NDArray[np.uint64]] = []
    owned_windows = passed = 0
    while state[0] < len(offsets):
        filled = 0
        while state[0] < len(offsets) and filled < capacity:
            room = anchors[filled : filled + _AT_ONCE]
            anchors_found, repeats_found = find_anchors(*of_shard, minimum_bytes, k, state, room, repeats)
            filled += anchors_found
            position = int(state[1]) if state[0] < len(offsets) else text.size
            advance.note(position - passed)
            passed = position
            if repeats_found:
                repeated.append(repeats[:repeats_found].copy())
        starts = np.empty(BUCKETS + 1, np.int64)
        owned_windows += sort_into_buckets(anchors[:filled], bucketed[:filled], starts)
        (folder / f"anchors.run{len(run_starts)}").write_bytes(bucketed[:filled].data)
        run_starts.append(starts)
    starts = _merge_runs(folder, run_starts)
    all_repeats = np.concatenate(repeated) if repeated else np.empty((0, 2), np.uint64)
    repeated_windows = int((all_repeats[:, 1] - all_repeats[:, 0]).sum())
    if owned_windows + repeated_windows != total_windows:
        raise BalanceError(
            "anchors.window_without_anchor: not every window has one anchor",
            where=folder,
            expected=f"{total_windows:,} windows",
            got=f"{owned_windows:,} owned by an anchor + {repeated_windows:,} in repeats",
        )
    (folder / "anchor_buckets").write_bytes(starts.astype("<u8").data)
    (folder / "anchor_repeats").write_bytes(all_repeats.astype("<u8").data)
    counts = {
        "documents": len(offsets),
        "windows": total_windows,
        "repeated_windows": repeated_windows,
        "repeats": len(all_repeats),
        "anchors": int(starts[-1]),
        "largest_bucket": int(np.diff(starts).max()),
    }
    header = {"format": 2, "minimum_bytes": minimum_bytes, "kgram_bytes": k, **counts}
    (folder / "anchors.json").write_text(json.dumps(header, sort_keys=True, indent=1) + "\n", encoding="ascii")
    return counts


def open_anchors(folder: Path) -> Anchors:
    """Memory-map what write_anchors wrote. Raises CorruptDataError if the sizes of the files contradict one another."""
    header = json.loads((folder / "anchors.json").read_text(encoding="ascii"))
    starts = np.fromfile(folder / "anchor_buckets", "<u8").astype(np.int64)
    rows = _map_rows(folder / ANCHOR_ROWS, "<u4", 3)
    repeats = open_repeats(folder)
    stated = (BUCKETS + 1, header["anchors"], header["anchors"], header["repeats"])
    seen = (len(starts), int(starts[-1]) if len(starts) else 0, len(rows), len(repeats))
    if header["format"] != 2 or stated != seen:
        raise CorruptDataError(
            "anchors.files_disagree: the files of an anchors folder contradict each other",
            where=folder,
            expected="format 2; {:,} buckets + 1, last start {:,}, {:,} anchors, {:,} repeats".format(*stated),
            got="format {}; {:,} buckets + 1, last start {:,}, {:,} anchors, {:,} repeats".format(
                header["format"], *seen
            ),
            next_step="index the shard again",
        )
    return Anchors(header["minimum_bytes"], header["kgram_bytes"], rows, starts, repeats)


def open_repeats(folder: Path) -> NDArray[np.uint64]:
    """Memory-map the repeats alone."""
    return _map_rows(folder / "anchor_repeats", "<u8", 2)


def _map_rows(path: Path, dtype: str, columns: int) -> NDArray[Any]:
    rows, rest = divmod(path.stat().st_size, columns * np.dtype(dtype).itemsize)
    # A truncated file counts as empty, which the caller rejects.
    return mapped(path, dtype, 0 if rest else rows * columns).reshape(-1, columns)


def _check_text_shard(text: NDArray[np.uint8], offsets: NDArray[np.uint64], minimum_bytes: int) -> int:
    """Refuse offsets that do not fit the text (the kernels trust them); returns the number of windows."""
    fits = text.size < MOST_TEXT_BYTES and text.flags.c_contiguous and offsets.flags.c_contiguous
    fits = fits and offsets.dtype == np.uint64 and (len(offsets) > 0) == (text.size > 0)
    windows = 0
    for first in range(0, len(offsets), 1 << 20):
        if not fits:
            break
        bounds = np.append(offsets[first : first + (1 << 20) + 1].astype(np.int64), text.size)
        starts = bounds[: min(1 << 20, len(offsets) - first)]
        ends = bounds[1 : len(starts) + 1]
        fits = (first > 0 or starts[0] == 0) and bool((starts < ends).all()) and int(ends[-1]) <= text.size
        fits = fits and bool((text[starts] == 0xFF).all())
        windows += int(np.maximum(ends - starts - minimum_bytes, 0).sum())
    if not fits:
        raise CorruptDataError(
            "anchors.offsets_differ: the offsets of a text shard do not match its text",
            expected="uint64, ascending from 0, each the position of a byte 0xFF",
            got=f"{len(offsets):,} offsets ({offsets.dtype}) for {text.size:,} bytes",
            next_step="build the text shard again",
        )
    return windows


def _merge_runs(folder: Path, run_starts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Merge the runs' files into one file `anchors`, bucket by bucket, the runs in order. Returns its bucket starts."""
    paths = [folder / f"anchors.run{run}" for run in range(len(run_starts))]
    if len(paths) == 1:
        paths[0].replace(folder / "anchors")
        return run_starts[0]
    runs = [_map_rows(path, "<u4", 3) for path in paths]
    with (folder / "anchors").open("wb") as out:
        for bucket, after in pairwise(range(BUCKETS + 1)):
            for rows, starts in zip(runs, run_starts, strict=True):
                out.write(rows[starts[bucket] : starts[after]].data)
    for path in paths:
        path.unlink()
    return np.sum(run_starts, axis=0, dtype=np.int64) if run_starts else np.zeros(BUCKETS + 1, np.int64)


_PARTS = 4


@dataclass(frozen=True)
class Slicing:
    """How windows of `minimum_bytes` are cut into slices of `width`, a power of two."""

    minimum_bytes: int
    width: int

    @property
    def gram_bytes(self) -> int:
        """The number of bytes that all windows of a slice share."""
        return self.minimum_bytes - self.width + 1


def slicing_of(minimum_bytes: int) -> Slicing:
    """Slices of the largest power of two up to a quarter of the windows that an anchor can own.

    Narrower slices mean more hashes, wider ones longer borders. Half the width costs as much: 0.10 bytes per byte of
    text at L = 500 and 0.55 at 100 (hashes, borders and the answers to them).
    """
    quarter = (minimum_bytes - kgram_bytes(minimum_bytes) + 1) // _PARTS
    return Slicing(minimum_bytes, 1 << max(0, quarter.bit_length() - 1))


def positions_of(rows: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64 positions of places or borders."""
    return (rows >> np.uint64(20)).astype(np.int64)


def highs_of(rows: NDArray[np.uint64]) -> NDArray[np.int64]:
    """`before` of places, `left` of borders."""
    return (rows >> np.uint64(10)).astype(np.int64) & 1023


def lows_of(rows: NDArray[np.uint64]) -> NDArray[np.int64]:
    """`windows - 1` of places, `right` of borders."""
    return rows.astype(np.int64) & 1023


def count_slices(places: NDArray[np.uint64], width: int) -> NDArray[np.int64]:
    """How many slices of w = `width` windows each anchor has."""
    before = highs_of(places)
    return before // width - (before - lows_of(places)) // width + 1


def hash_slices(
    text: NDArray[np.uint8], origin: int, places: NDArray[np.uint64], slicing: Slicing
) -> NDArray[np.uint32]:
    """uint32 hashes of the grams of all slices of some anchors, anchor by anchor, the highest n first.

    text[0] is byte `origin` of the shard's text, and `text` holds every window that the anchors own. The hash includes
    n. It only proposes candidates: slices with equal hashes are compared.
    """
    hashes = np.empty(int(count_slices(places, slicing.width).sum()), np.uint32)
    _hash_slices(text.ctypes.data - origin, places, slicing.gram_bytes, slicing.width, hashes)
    return hashes


def borders_of(
    places: NDArray[np.uint64], width: int, marked: NDArray[np.uint8], owned: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The borders of the marked slices, ascending. `marked`: of all slices of `places`; `owned`: count_slices."""
    anchor = np.repeat(np.arange(len(places)), owned)
    begins = np.cumsum(owned) - owned
    before, windows = highs_of(places), lows_of(places)
    kept = np.flatnonzero(marked)
    anchor = anchor[kept]
    start = (before[anchor] // width - (kept - begins[anchor])) * width
    left = np.minimum(before[anchor] - start, width - 1)
    least = np.maximum(before[anchor] - windows[anchor] - start, 0)
    borders = (positions_of(places[anchor]) - start) << 20 | left << 10 | (width - 1 - least)
    return np.sort(borders.astype(np.uint64), kind="stable")  # nearly ascending


@kernel
def _hash_slices(text: Any, places: Any, gram_bytes: Any, width: Any, hashes: Any) -> None:
    filled = 0
    for row in range(len(places)):
        position = np.int64(places[row] >> np.uint64(20))
        before = np.int64(places[row] >> np.uint64(10)) & 1023
        least = before - (np.int64(places[row]) & 1023)
        for number in range(before // width, least // width - 1, -1):
            value = bytes_hash(text + position - number * width, gram_bytes)
            value = (value ^ np.uint64(number)) * np.uint64(0x9E3779B97F4A7C15)
            hashes[filled] = np.uint32(value >> np.uint64(32))
            filled += 1
