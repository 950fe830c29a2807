"""The rest of an infini-gram index besides the table: `tokenized` and `offset` of the text shard, and the metadata.

    metadata    one line per document: {"path": ..., "linenum": 0-based line, "metadata": {all fields but the text}}
    metaoff     u64 LE per document: where its line begins

The lines are Python's `json.dumps` of Python's `json.loads`, ASCII-escaped, as the indexer of infini-gram 2.6 writes
them: numbers are normalised (1.50 becomes 1.5) and of duplicate keys the last is kept. (suffix_array.py: the table.)
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np

from corpusmill.documents.located import changed_source, read_located_blocks
from corpusmill.documents.text_shard import IndexedSource

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
                text = fields.pop(text_field).encode()
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
