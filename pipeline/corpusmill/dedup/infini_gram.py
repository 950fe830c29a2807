"""An infini-gram index of a text shard: its suffix array, and the metadata of its documents.

    tokenized   0xFF and the UTF-8 bytes of each document, one document after another
    offset      u64 LE per document: position of its 0xFF
    table       w bytes LE per byte of `tokenized`: suffix starts in the byte order of the suffixes, to the shard's end
    metadata    one line per document: {"path": ..., "linenum": 0-based line, "metadata": {all fields but the text}}
    metaoff     u64 LE per document: where its line begins
    unigram     text, on request: "<byte> <count>" a line, ascending, separators counted

w is the least that holds every position, 1 to 6 bytes; readers infer it from the sizes. Any correct suffix array gives
these bytes; ours comes from libdivsufsort (Mori; pydivsufsort), and equals the table of infini-gram's own make-part.
The lines of `metadata` are Python's `json.dumps` of Python's `json.loads`, ASCII-escaped, as the indexer of infini-gram
2.6 writes them: numbers are normalised (1.50 becomes 1.5) and of duplicate keys the last is kept.

Price: 8-11 MB/s; memory 5 bytes per byte of text below 2 GiB (9 above) while it is made; 4 bytes per byte on disk up to
4 GiB.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from corpusmill.documents.field_names import pop_field
from corpusmill.documents.located import changed_source, read_located_blocks
from corpusmill.documents.text_shard import IndexedSource
from corpusmill.errors import PermanentError

METADATA, METADATA_OFFSETS = "metadata", "metaoff"


def link_text(text_shard: Path, folder: Path) -> None:
    """`tokenized` and `offset` of a text shard in the index's folder: the same files by another name, or copies."""
    for name in ("tokenized", "offset"):
        try:
            os.link(text_shard / name, folder / name)
        except OSError:  # another file system, or one without links
            shutil.copyfile(text_shard / name, folder / name)


def append_metadata(
    stream: BinaryIO,
    metadata: BinaryIO,
    offsets: BinaryIO,
    *,
    indexed: IndexedSource,
    text_field: str,
    path: str,
    lines_before: int,
) -> int:
    """Append the lines of one source file's documents, read from its decompressed `stream`; returns their bytes.

    `path`, `lines_before`: of the file that it is a part of, or its own name and 0.

    Raises CorruptDataError if a line's text differs from the indexed text, unless a step rewrote that.
    """
    numbers = indexed.line_numbers.astype(np.int64)
    rewritten = set(indexed.rewritten.tolist())  # a step changed their text
    begun = written = metadata.tell()
    for block in read_located_blocks(stream, indexed=indexed):
        lines, starts = [], []
        spans = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
        for document, (start, end) in enumerate(spans, start=block.first_document):
            try:
                fields = json.loads(block.data[start:end])
                text = pop_field(fields, text_field).encode()
                same = document in rewritten or text == indexed.text_of(document)
            except (ValueError, KeyError, TypeError, AttributeError):  # no JSON, no text, no object, no string
                same = False
            if not same:
                raise changed_source(indexed, document, "another line")
            row = {"path": path, "linenum": lines_before + int(numbers[document]), "metadata": fields}
            lines.append(json.dumps(row).encode("ascii") + b"\n")
            starts.append(written)
            written += len(lines[-1])
        metadata.write(b"".join(lines))
        offsets.write(np.array(starts, "<u8").tobytes())
    return written - begun


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
