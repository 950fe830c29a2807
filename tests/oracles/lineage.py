"""Obviously right answers to where things come from: source files, exported records and earlier text, read plainly."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import zstandard


def source_lines(path: Path) -> list[bytes]:
    """The lines of a source file, whatever its compression."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix in {".zst", ".zstd"}:
        data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data.split(b"\n")[:-1]


def exported_records(folder: Path) -> Iterator[tuple[str, str, int, list[int]]]:
    """(export, file, record, ids) of every record; for numpy every stretch from an EOT (or the file's start) on."""
    for path in sorted(folder.glob("webdataset/*.tar")):
        with tarfile.open(path) as tar:
            for record, member in enumerate(tar.getmembers()):
                yield "webdataset", path.name, record, json.loads(gzip.decompress(tar.extractfile(member).read()))
    for path in sorted(folder.glob("megatron/*.idx")):
        count = int(np.fromfile(path, "<u8", 1, offset=18)[0])
        lengths = np.fromfile(path, "<i4", count, offset=34).tolist()
        yield from cut("megatron", path.stem, np.fromfile(path.with_suffix(".bin"), "<i4").tolist(), lengths)
    for path in sorted(folder.glob("nanoset/*.ds")):
        ends = np.fromfile(f"{path}.index", "<u8").astype(int).tolist()
        lengths = [last - first for first, last in pairwise([0, *ends])]
        yield from cut("nanoset", path.stem, np.fromfile(path, "<u4").tolist(), lengths)


def cut(export: str, name: str, ids: list[int], lengths: list[int]) -> Iterator[tuple[str, str, int, list[int]]]:
    for record, length in enumerate(lengths):
        yield export, name, record, ids[:length]
        ids = ids[length:]


def numpy_stretches(folder: Path, eot: int) -> Iterator[tuple[str, int, list[int]]]:
    """(file, position, ids) of every stretch of a numpy file that begins with EOT or with the file."""
    for path in sorted(folder.glob("numpy/*/*.npy")):
        ids = np.load(path, allow_pickle=False).tolist()
        starts = sorted({0, *(place for place, token in enumerate(ids) if token == eot)})
        for first, last in pairwise([*starts, len(ids)]):
            yield f"{path.parent.name}/{path.name}", first, ids[first:last]
