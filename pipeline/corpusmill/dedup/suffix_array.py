"""The suffix array of a text shard, in the files of an infini-gram index.

    tokenized   0xFF and the UTF-8 bytes of each document, one document after another
    offset      u64 LE per document: position of its 0xFF
    table       w bytes LE per byte of `tokenized`: suffix starts in the byte order of the suffixes, to the shard's end
    metadata    one JSON line per document; metaoff  u64 LE per document: where its line begins   (infini_gram.py)
    unigram     text, on request: "<byte> <count>" a line, ascending, separators counted

w is the least that holds every position, 1 to 6 bytes; readers infer it from the sizes. Any correct suffix array gives
these bytes; ours comes from libdivsufsort (Mori; pydivsufsort), and equals the table of infini-gram's own make-part.

Price: 8-11 MB/s; memory 5 bytes per byte of text below 2 GiB (9 above) while it is made; 4 bytes per byte on disk up to
4 GiB.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import PermanentError

TABLE, UNIGRAM = "table", "unigram"

_ROWS = 1 << 22


def pointer_bytes(text_bytes: int) -> int:
    """w: the bytes that hold any position in a text of this size; 1 for a text of one byte, where log2 gives 0."""
    return max(1, ((text_bytes - 1).bit_length() + 7) // 8)


def write_suffix_array(text: NDArray[np.uint8], folder: Path, *, unigram: bool = False) -> None:
    """Write `table` (and `unigram`) of a shard's text, uint8 (n,), into `folder`.

    A shard without documents gets an empty table. Raises PermanentError if there is not enough memory.
    """
    width = pointer_bytes(text.size)
    with (folder / TABLE).open("wb") as out:
        starts = _sorted_suffixes(text, folder)
        for first in range(0, len(starts), _ROWS):
            rows = starts[first : first + _ROWS].astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)
            out.write(np.ascontiguousarray(rows[:, :width]).data)
    if unigram:
        counts = np.bincount(text, minlength=256) if text.size else np.zeros(256, np.int64)
        lines = [f"{byte} {count}\n" for byte, count in enumerate(counts.tolist()) if count]
        (folder / UNIGRAM).write_text("".join(lines), encoding="ascii")


def _sorted_suffixes(text: NDArray[np.uint8], folder: Path) -> NDArray[np.int64]:
    from pydivsufsort import divsufsort

    if text.size == 0:
        return np.empty(0, np.int64)
    text = np.ascontiguousarray(text)
    # divsufsort refuses read-only arrays though it writes nothing; wrapping the address saves a copy of the text.
    same_bytes = np.ctypeslib.as_array((ctypes.c_uint8 * text.size).from_address(text.ctypes.data))
    try:
        starts: NDArray[np.int64] = divsufsort(same_bytes)
    except MemoryError as error:
        raise PermanentError(
            "suffix_array.too_little_memory: there is not enough memory for a suffix array",
            where=folder,
            expected=f"about {(5 if text.size < 1 << 31 else 9) * text.size:,} bytes free",
            next_step="lower --shard-bytes",
        ) from error
    return starts
