"""The rest of an infini-gram index beside the table: `tokenized` and `offset` of the text shard, and the metadata.

    metadata    one line per document: {"path": ..., "linenum": 0-based line, "metadata": {all fields but the text}}
    metaoff     u64 LE per document: where its line begins

The lines are Python's `json.dumps` of Python's `json.loads`, ASCII-escaped, as the indexer of infini-gram 2.6 writes
them: numbers are normalised (1.50 becomes 1.5) and of duplicate keys the last stays. (suffix_array.py: the table.)
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.documents.located import changed_source, read_located_blocks

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
    source: str,
    line_numbers: NDArray[np.uint64],
    bounds: NDArray[np.uint64],
    text_field: str,
) -> int:
    """Append the lines of one source file's documents, read from its decompressed `stream`; returns their bytes.

    line_numbers    uint64 (n,): the 0-based lines that are documents; bounds uint64 (n + 1,): TextShard.bounds
    Raises CorruptDataError if a line is not what was indexed.
    """
    numbers = line_numbers.astype(np.int64)
    places = bounds.astype(np.int64)
    text_bytes = places[1:] - places[:-1] - 1
    begun = written = metadata.tell()
    for block in read_located_blocks(
        stream, source=source, line_numbers=numbers, text_bytes=text_bytes, text_field=text_field
    ):
        lines, starts = [], []
        spans = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
        for document, (start, end) in enumerate(spans, start=block.first_document):
            try:
                fields = json.loads(block.data[start:end])
            except ValueError as error:
                got = f"a line that is not JSON: {error}"
                raise changed_source(source, int(numbers[document]), int(text_bytes[document]), got) from error
            del fields[text_field]
            row = {"path": source, "linenum": int(numbers[document]), "metadata": fields}
            lines.append(json.dumps(row).encode("ascii") + b"\n")
            starts.append(written)
            written += len(lines[-1])
        metadata.write(b"".join(lines))
        offsets.write(np.array(starts, "<u8").tobytes())
    return written - begun
