"""The records of one file of any export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import SourceError
from corpusmill.export.megatron import open_part
from corpusmill.export.nanoset import open_file
from corpusmill.export.numpy_shards import open_shard
from corpusmill.export.webdataset import read_shard


def open_stream(path: Path, dtype: str) -> NDArray[Any] | None:
    """The tokens of a `.npy`, or of a `.bin` of `dtype` without its `.idx`, mapped. None for a file of records."""
    if path.suffix == ".npy":
        return open_shard(path)
    if path.suffix == ".bin" and not path.with_suffix(".idx").exists():
        return open_shard(path, np.dtype(dtype))
    return None


def open_documents(path: Path) -> tuple[int, Callable[[int], NDArray[Any]]]:
    """(documents in a `.bin` or `.ds`, function that gives the ids of one). SourceError for another file."""
    if path.suffix in {".bin", ".idx"}:
        part = open_part(path.with_suffix(""))
        return part.documents, part.document
    if path.suffix == ".ds":
        file = open_file(path)
        return len(file), file.document
    raise SourceError(
        "peek.unknown_kind: peek cannot read this kind of file",
        where=path,
        expected="a .tar, .npy, .bin or .ds file of a finished dataset",
        got=path.suffix or "no extension",
    )


def read_records(path: Path, dtype: str) -> Iterator[NDArray[Any]]:
    """The ids of each record, in order: a context of a `.tar`, a document of a `.bin` or `.ds`, a whole stream."""
    if path.suffix == ".tar":
        for _, context in read_shard(path):
            yield context
    elif (stream := open_stream(path, dtype)) is not None:
        yield stream
    else:
        count, document = open_documents(path)
        for number in range(count):
            yield document(number)
