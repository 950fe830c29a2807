"""Random corpora in every kind of file, and what a plain reader would make of them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".zstd": zstandard.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".lz4": lz4.frame.compress,
}
LINES = (".jsonl", ".ndjson", ".JSONL", ".Ndjson")
NAMED = (".json", "")
TEXT_TYPES = (
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
)
Row = tuple[str, str | int | None]
"""(text, id) of a document."""


def random_rows(draw: random.Random, most: int = 40) -> list[Row]:
    """Documents with texts and ids of all sorts."""
    words = ("word", "Ünïcödé", "中文", "a\u2028b", '"quoted"', "\\", "\t", "\0", "", "x" * 300)
    rows: list[Row] = []
    for number in range(draw.randrange(most)):
        text = " ".join(draw.choices(words, k=draw.randrange(8)))
        rows.append((text, draw.choice([f"d{number}", number, None])))
    return rows


def as_lines(draw: random.Random, rows: list[Row], fields: tuple[str, str]) -> bytes:
    """JSON lines with blank lines, either line end, and perhaps a byte order mark and no last line end."""
    newline = draw.choice(["\n", "\r\n"])
    lines = []
    for row in rows:
        if draw.random() < 0.1:
            lines.append(draw.choice(["", " ", "\t"]))
        lines.append(json.dumps(_nested(fields, row), ensure_ascii=draw.random() < 0.5))
    data = (newline.join(lines) + (newline if draw.random() < 0.8 else "")).encode()
    return (b"\xef\xbb\xbf" if draw.random() < 0.2 and data.startswith(b"{") else b"") + data


def _nested(fields: tuple[str, str], row: Row) -> dict[str, Any]:
    record: dict[str, Any] = {"other": [1, {"text": "no"}]}
    for field, value in zip(fields, row, strict=True):
        *outer, last = field.split(".")
        inner = record
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return record


def as_table(draw: random.Random, rows: list[Row], fields: tuple[str, str]) -> pa.Table:
    """A table whose text is of any type, with columns that Python cannot have."""
    texts = pa.array([text.encode() for text, _ in rows], pa.binary())
    kind = draw.choice(TEXT_TYPES if "." not in fields[0] else TEXT_TYPES[:2])
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    column = texts if value == pa.binary() else texts.cast(pa.string() if value != pa.large_binary() else value)
    column = column.cast(value) if column.type != value else column
    column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column
    ids = pa.array([None if name is None else str(name) for _, name in rows], pa.string())
    table = pa.table({"far": pa.array([2**62 + 1] * len(rows), pa.timestamp("ns"))})
    placed: dict[str, Any] = {}
    for field, values in zip(fields, (column, ids), strict=True):
        outer, _, last = field.rpartition(".")
        if outer:
            placed.setdefault(outer, {})[last] = values
        else:
            placed[field] = values
    for name, values in placed.items():
        is_struct = isinstance(values, dict)
        made = pa.StructArray.from_arrays(list(values.values()), names=list(values)) if is_struct else values
        table = table.append_column(name, made)
    return table


def parquet_bytes(draw: random.Random, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    codec = draw.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
    pq.write_table(table, sink, compression=codec, row_group_size=draw.choice([1, 7, 1000]))
    return sink.getvalue()


def arrow_bytes(draw: random.Random, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=draw.choice([None, "lz4", "zstd"]), unify_dictionaries=True)
    with draw.choice([pa.ipc.new_file, pa.ipc.new_stream])(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=draw.choice([1, 7, 1000]))
    return sink.getvalue()


def write_corpus(folder: Path, seed: int) -> tuple[list[str], tuple[str, str], dict[str, list[tuple[bytes, bytes]]]]:
    """(paths of a random corpus, its fields of text and id, the documents of each file that the paths name)."""
    draw = random.Random(seed)
    fields = draw.choice([("text", "id"), ("content", "url"), ("meta.text", "meta.id"), ("a.b.c", "id")])
    expected: dict[str, list[tuple[bytes, bytes]]] = {}
    paths = [str(folder / "all"), str(folder / "named" / "*")]
    for number in range(draw.randrange(1, 7)):
        rows = random_rows(draw)
        kind = draw.choice(["lines", "lines", "named", "parquet", "arrow"])
        ids = [(text.encode(), b"" if name is None else str(name).encode()) for text, name in rows]
        place = folder / ("named" if kind == "named" else "all") / draw.choice(["", "inner", "in/ner"])
        if kind in {"lines", "named"}:
            suffix = draw.choice([*COMPRESSORS])
            name = f"file_{number}{draw.choice(LINES if kind == 'lines' else NAMED)}{suffix}"
            data = COMPRESSORS[suffix](as_lines(draw, rows, fields))
            if suffix and draw.random() < 0.3 and rows:  # several members or frames
                data += COMPRESSORS[suffix](b"")
        elif "." in fields[0] and fields[0].count(".") > 1:
            continue  # as_table nests one level
        elif kind == "parquet":
            name, data = f"file_{number}.parquet", parquet_bytes(draw, as_table(draw, rows, fields))
        else:
            name, data = f"file_{number}.arrow", arrow_bytes(draw, as_table(draw, rows, fields))
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
        if kind == "named":
            paths.append(str(place / name))
        expected[str(place / name)] = ids
    (folder / "all").mkdir(exist_ok=True)
    paths = [path for path in paths if path in expected]
    if any(name.startswith(f"{folder}/all/") for name in expected):
        paths.append(str(folder / "all"))
    return paths, fields, expected
