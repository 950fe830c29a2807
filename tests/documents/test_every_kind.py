"""Every kind of file gives the documents of a plain reader; damage of each kind is said for what it is."""

from __future__ import annotations

import io
import json
import random
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from corpusmill.config.sections import SourceConfig
from corpusmill.documents import columns, compression, reading
from corpusmill.engine.plan import SourceFile
from corpusmill.errors import CorruptDataError, SourceError
from corpusmill.sources.copies import each_file, read_source, streamed_copy
from corpusmill.storage.listing import list_all
from tests.documents.every_kind import (
    COMPRESSORS,
    arrow_bytes,
    as_lines,
    as_table,
    parquet_bytes,
    write_corpus,
)
from tests.raising import raises

DRAWN = [*range(12), *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.thorough]) for seed in range(12, 212))]
ROWS = [(f"text {number}", f"d{number}") for number in range(200)]
FIELDS = ("text", "id")


@pytest.mark.parametrize("seed", DRAWN)
def test_any_corpus_gives_the_documents_of_a_plain_reader(seed: int, tmp_path: Path) -> None:
    paths, fields, expected = write_corpus(tmp_path, seed)
    if not expected:
        return
    got = {}
    for file in each_file(paths):
        assert file.stored is not None
        batches = list(file.documents(*fields))
        got[file.stored.location] = [
            pair for batch in batches for pair in zip(batch.texts(), batch.each_id(), strict=True)
        ]
    assert got == expected
    listed = list_all(paths, compression.SOURCE_ENDINGS, named=tuple(compression.NAMED_ENDINGS)).files
    source = SourceConfig(paths=paths, text_field=fields[0], id_field=fields[1])
    planned = {
        file.location: [
            pair
            for batch in read_source(streamed_copy(SourceFile.of(file), None), source)
            for pair in zip(batch.texts(), batch.each_id(), strict=True)
        ]
        for file in listed
    }
    assert planned == expected


def whole(kind: str) -> tuple[str, bytes]:
    draw = random.Random(1)
    if kind == "parquet":
        return "a.parquet", parquet_bytes(draw, as_table(draw, ROWS, FIELDS))
    if kind.startswith("arrow"):
        table = pa.table({"text": [text for text, _ in ROWS], "id": [name for _, name in ROWS]})
        draw = random.Random(2 if kind == "arrow" else 3)
        return "a.arrow", arrow_bytes(draw, table)
    return f"a.jsonl{kind}", COMPRESSORS[kind](as_lines(draw, ROWS, FIELDS))


def read(folder: Path, name: str, data: bytes, field: str = "text") -> list[bytes]:
    (folder / name).write_bytes(data)
    return [
        text for file in each_file([str(folder / name)]) for batch in file.documents(field) for text in batch.texts()
    ]


def read_lines(folder: Path, name: str, data: bytes, texts: list[str] | None = None) -> bytes:
    (folder / name).write_bytes(data)
    with (folder / name).open("rb") as stream:
        lines = reading.open_lines(stream, name, texts=texts)
        return b"".join(iter(partial(lines.read, 1 << 20), b""))


KINDS = [*(suffix for suffix in COMPRESSORS if suffix), "parquet", "arrow", "arrow2"]


@pytest.mark.parametrize("kind", KINDS)
def test_file_that_is_cut_names_the_file_and_what_to_do(kind: str, tmp_path: Path) -> None:
    name, data = whole(kind)
    for size in (len(data) - 1, len(data) // 2, 40):
        with pytest.raises(CorruptDataError) as caught:
            read(tmp_path, name, data[:size])
        details = dict(caught.value.details)
        assert name in str(details["where"])
        assert details["expected"]
        assert details["next"]


@pytest.mark.parametrize("kind", KINDS)
def test_other_bytes_behind_the_end_are_refused(kind: str, tmp_path: Path) -> None:
    name, data = whole(kind)
    with pytest.raises(CorruptDataError):
        read(tmp_path, name, data + b'{"text": "behind"}\n')


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".parquet", ".arrow", ".jsonl.lz4"])
def test_wrong_ending_is_refused_with_the_kind(kind: str, ending: str, tmp_path: Path) -> None:
    name, data = whole(kind)
    same = name.endswith(ending) or name.removesuffix("d") == f"a{ending}"
    if not same:
        with pytest.raises((SourceError, CorruptDataError)) as caught:
            read(tmp_path, f"a{ending}", data)
        assert dict(caught.value.details)["next"]


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESSORS if suffix not in {"", ".lz4"}])
def test_decompression_bombs_of_every_compression_are_refused(suffix: str, tmp_path: Path) -> None:
    with raises("source.decompression_bomb", "a.jsonl"):
        read(tmp_path, f"a.jsonl{suffix}", COMPRESSORS[suffix](bytes(80 << 20)))


MEGABYTE = "a" * (1 << 20)


def arrow_of(column: Any, times: int = 1, compression: str | None = None) -> bytes:
    """An Arrow stream of a column `text`, with the same record batch so many times."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([column], names=["text"])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for _ in range(times):
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def parquet_of(column: Any) -> bytes:
    return parquet_bytes(random.Random(0), pa.table({"text": column}))


def repeated(times: int) -> Any:
    """A text of a megabyte that is in a dictionary once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([MEGABYTE]))


def views(times: int) -> Any:
    """Views that all show the same megabyte."""
    view = struct.pack("<i4sii", len(MEGABYTE), b"aaaa", 0, 0)
    buffers = [None, pa.py_buffer(view * times), pa.py_buffer(MEGABYTE.encode())]
    return pa.Array.from_buffers(pa.string_view(), times, buffers)


BOMBS = {
    "one message.arrow": lambda: arrow_of(pa.array(["a" * (80 << 20)]), compression="zstd"),
    "many messages.arrow": lambda: arrow_of(pa.array(["a" * (20 << 20)]), 5, "zstd"),
    "dictionary.arrow": lambda: arrow_of(repeated(600)),
    "dictionary.parquet": lambda: parquet_of(repeated(600)),
    "views.arrow": lambda: arrow_of(views(600)),
    "list of a dictionary.arrow": lambda: arrow_of(pa.ListArray.from_arrays([0, 600], repeated(600))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_of_a_table_is_refused_as_documents_and_as_lines(name: str, tmp_path: Path) -> None:
    data = BOMBS[name]()
    with raises("source.decompression_bomb", name):
        read_lines(tmp_path, name, data)
    if "list" not in name:
        with raises("source.decompression_bomb", name):
            read(tmp_path, name, data)


WITHOUT_END = {
    "nulls": pa.nulls(1 << 30),
    "a run": pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), pa.array(["a"])),
    "empty structs": pa.Array.from_buffers(pa.struct([]), 1 << 30, [None]),
}


@pytest.mark.parametrize("kind", WITHOUT_END)
def test_rows_without_end_that_take_no_bytes_are_refused(kind: str) -> None:
    with raises("arrow.not_readable source.decompression_bomb", "a.arrow"):
        next(reading.read_rows(io.BytesIO(arrow_of(WITHOUT_END[kind])), "a.arrow"))


def test_column_of_nulls_is_as_long_as_the_columns_beside_it() -> None:
    rows = (1 << 24) + 1
    batch = pa.record_batch([pa.nulls(rows), pa.nulls(rows, pa.int8())], names=["nothing", "numbers"])
    assert columns.decoded_bytes(batch) >= rows
    within = pa.record_batch(
        [pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), pa.nulls(rows))], names=["text"]
    )
    with pytest.raises(ValueError, match=r"16,777,217 values in 0 bytes"):
        columns.decoded_bytes(within)


def test_text_that_a_dictionary_or_a_view_repeats_is_read_as_often(tmp_path: Path) -> None:
    for column in (repeated(40), views(40)):
        assert read(tmp_path, "a.arrow", arrow_of(column)) == [MEGABYTE.encode()] * 40
    assert read(tmp_path, "a.parquet", parquet_of(repeated(40))) == [MEGABYTE.encode()] * 40


@pytest.mark.parametrize("offsets", [(0, 5, 2_000_000_000), (0, 5, 40_000), (0, 5000, 10), (-1, 5, 10)])
def test_offsets_outside_their_text_are_refused_instead_of_followed(
    offsets: tuple[int, int, int], tmp_path: Path
) -> None:
    for column in (pa.array(["hello", "world"]), pa.StructArray.from_arrays([pa.array(["hello", "world"])], ["inner"])):
        data = arrow_of(column)
        right = struct.pack("<3i", 0, 5, 10)
        assert data.count(right) == 1
        broken = data.replace(right, struct.pack("<3i", *offsets))
        field = "text.inner" if pa.types.is_struct(column.type) else "text"
        with raises("arrow.not_readable", "a.arrow"):
            read(tmp_path, "a.arrow", broken, field)
        with raises("arrow.not_readable", "a.arrow"):
            read_lines(tmp_path, "a.arrow", broken)


@pytest.mark.parametrize(
    "nested",
    [
        lambda column: column,
        lambda column: pa.StructArray.from_arrays([column], ["inner"]),
        lambda column: pa.ListArray.from_arrays(range(101), column),
        lambda column: pa.ListViewArray.from_arrays(pa.array(range(100), pa.int32()), pa.array([1] * 100), column),
        lambda column: pa.FixedSizeListArray.from_arrays(column, 4),
        lambda column: pa.MapArray.from_arrays([0, 30, 100], pa.array([""] * 100), column),
    ],
)
def test_bytes_of_shared_values_are_those_of_their_copies(nested: Any) -> None:
    draw = random.Random(1)
    texts = [None if draw.random() < 0.2 else "é" * draw.randrange(30) for _ in range(100)]
    plain = pa.array(texts)
    for column in (plain.dictionary_encode(), plain.cast(pa.string_view()), plain.cast(pa.binary_view())):
        batch = pa.record_batch([nested(column)], names=["text"])
        columns.require_valid(batch.column(0))
        assert columns.decoded_bytes(batch) == sum(len((text or "").encode()) for text in texts)


@pytest.mark.parametrize(
    ("name", "data", "documents"),
    [
        ("a b.csv", 'text,id\n"one, two\nlines",1\nthree,2\n', ["one, two\nlines", "three"]),
        ("a.tsv", "text\tid\none\t1\n", ["one"]),
        ("a.txt", "two\nlines\n", ["two\nlines\n"]),
        ("wiki_00", "plain text", ["plain text"]),
        ("a.json", '\ufeff[{"text": "one"}, {"text": "two"}]', ["one", "two"]),
        ("b.json", '{\n  "text": "one"\n}\n', ["one"]),
    ],
)
def test_refused_text_is_read_after_the_line_that_the_refusal_prints(
    name: str, data: str, documents: list[str], tmp_path: Path
) -> None:
    with pytest.raises(SourceError) as caught:
        read(tmp_path, name, data.encode())
    line = str(dict(caught.value.details)["next"])
    subprocess.run(line, shell=True, cwd=tmp_path, check=True)  # noqa: S602 - what a user would paste
    (made,) = tmp_path.glob("*.jsonl")
    assert read(tmp_path, made.name, made.read_bytes()) == [text.encode() for text in documents]


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_array_on_standard_input_is_refused_with_the_line_that_converts_it(
    packed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data in (b'[{"text": "one"}, {"text": "two"}]', b'{\n"text": "one"}'):
        for as_lines_of_text in (False, True):
            given = SimpleNamespace(buffer=io.BytesIO(COMPRESSORS[packed](data)))
            monkeypatch.setattr(sys, "stdin", given)
            (file,) = each_file(["-"])
            with raises("source.not_json_lines", "/dev/stdin > stdin.jsonl") as caught:
                if as_lines_of_text:
                    with file.lines(["text"]) as stream:
                        stream.read()
                else:
                    list(file.documents("text"))
    line = str(dict(caught.value.details)["next"])
    subprocess.run(line, shell=True, cwd=tmp_path, check=True, input=data)  # noqa: S602 - what a user would paste
    assert (tmp_path / "stdin.jsonl").read_bytes() == b'{"text": "one"}\n'


def test_folder_of_other_kinds_alone_prints_the_line_that_converts_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\none\n")
    with raises("source.no_known_files", "csv.DictReader"):
        list(each_file([str(tmp_path)]))


def test_paths_mean_what_they_mean_elsewhere(tmp_path: Path) -> None:
    for name in (
        "a.jsonl",
        "in/b.JSONL",
        "in/deep/c.ndjson",
        "in/wiki_00",
        "RC_2011-01.zst",
        "d.json",
        "cache-0a1b.arrow",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        data = b'{"text": "a"}\n'
        (tmp_path / name).write_bytes(COMPRESSORS[".zst"](data) if name.endswith("zst") else data)

    def names(path: str) -> list[str]:
        return [file.name for file in each_file([path])]

    everything = ["a.jsonl", "in/b.JSONL", "in/deep/c.ndjson"]
    assert names(str(tmp_path)) == names(f"{tmp_path}/**") == names(f"file://{tmp_path}") == everything
    assert names(f"{tmp_path}/*") == ["a.jsonl"]
    assert names(f"{tmp_path}/**/wiki_*") == ["in/wiki_00"]
    assert names(f"{tmp_path}/RC_*.zst") == ["RC_2011-01.zst"]
    assert names(f"{tmp_path}/*.json") == ["d.json"]


@pytest.mark.parametrize("write", [parquet_bytes, arrow_bytes])
def test_column_missing_in_one_file_of_a_hundred_names_that_file(write: Any, tmp_path: Path) -> None:
    ending = "parquet" if write is parquet_bytes else "arrow"
    for number in range(100):
        column = "body" if number == 73 else "text"
        (tmp_path / f"{number:02d}.{ending}").write_bytes(write(random.Random(0), pa.table({column: ["a"]})))
    with raises("parquet.no_text_column", f"73.{ending}", "body") as caught:
        for file in each_file([str(tmp_path)]):
            list(file.documents("text"))
    assert dict(caught.value.details)["next"]


PLAIN = b'{"text": "one"}\n{"text": "two"}\n'


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_marks_and_line_ends_of_other_systems_change_no_document(suffix: str, tmp_path: Path) -> None:
    for data in (b"\xef\xbb\xbf" + PLAIN, PLAIN.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf\r\n" + PLAIN, PLAIN[:-1]):
        assert read(tmp_path, f"a.jsonl{suffix}", COMPRESSORS[suffix](data)) == [b"one", b"two"]


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf16_is_named_within_every_compression(suffix: str, encoding: str, tmp_path: Path) -> None:
    mark = "" if encoding == "utf-16" else "\ufeff"
    with raises("source.other_kind", f"a.jsonl{suffix}", "UTF-16", "iconv"):
        read(tmp_path, f"a.jsonl{suffix}", COMPRESSORS[suffix]((mark + PLAIN.decode()).encode(encoding)))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_nan_is_one_malformed_line_of_every_compression(suffix: str, tmp_path: Path) -> None:
    data = PLAIN + b'{"text": "three", "score": NaN}\n'
    (tmp_path / f"a.jsonl{suffix}").write_bytes(COMPRESSORS[suffix](data))
    (batch,) = (batch for file in each_file([str(tmp_path)]) for batch in file.documents("text"))
    assert [(str(bad.reason), bad.line_number) for bad in batch.rejections] == [("broken_json", 2)]
    assert batch.texts() == [b"one", b"two"]


@pytest.mark.parametrize("kind", ["", *KINDS])
def test_file_of_no_bytes_has_no_documents_or_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    name, _ = whole(kind)
    if kind in COMPRESSORS:
        assert read(tmp_path, name, b"") == []
        return
    with pytest.raises((SourceError, CorruptDataError)) as caught:
        read(tmp_path, name, b"")
    assert name in str(caught.value)
    assert dict(caught.value.details)["next"]


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_file_without_lines_of_every_compression_has_no_documents(suffix: str, tmp_path: Path) -> None:
    assert read(tmp_path, f"a.jsonl{suffix}", COMPRESSORS[suffix](b"")) == []


def test_key_with_a_dot_wins_where_it_exists(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a.b": "own", "a": {"b": "inner"}}, {"a": {"b": "inner"}}, {"a": 1}, {"a": {"b": 2}}]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "long.jsonl").write_bytes(data.replace(b"{", b'{"pad": "' + b"x" * 200_000 + b'", ', 1))
    for name in ("a.jsonl", "long.jsonl"):
        (file,) = each_file([str(tmp_path / name)])
        (batch,) = file.documents("a.b")
        assert batch.texts() == [b"own", b"inner"]
        assert [rejection.reason.value for rejection in batch.rejections] == ["missing_text", "text_not_a_string"]
    column = pa.StructArray.from_arrays([pa.array(["inner"])], names=["b"])
    for table, text in ((pa.table({"a.b": ["own"], "a": column}), b"own"), (pa.table({"a": column}), b"inner")):
        (tmp_path / "a.parquet").write_bytes(parquet_bytes(random.Random(0), table))
        (file,) = each_file([str(tmp_path / "a.parquet")])
        assert [batch.texts() for batch in file.documents("a.b")] == [[text]]


INSTANT = pa.timestamp("ns")
UNREADABLE_FOR_PYTHON = {
    "instant in a struct": (pa.array([{"at": 1}], pa.struct([("at", INSTANT)])), {"at": 1}),
    "instant in a list": (pa.array([[1]], pa.list_(INSTANT)), [1]),
    "instant in a map": (pa.array([[("at", 1)]], pa.map_(pa.string(), INSTANT)), [["at", 1]]),
    "instant in a dictionary": (pa.array([1], INSTANT).dictionary_encode(), 1),
    "string in a list": (pa.ListArray.from_arrays([0, 2], pa.array([b"a", b"\xff"]).view(pa.string())), ["a", None]),
    "names twice in a struct": (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), {"a": 2}),
}


@pytest.mark.parametrize("kind", UNREADABLE_FOR_PYTHON)
def test_values_that_python_cannot_have_are_written_as_far_as_they_can_be(kind: str, tmp_path: Path) -> None:
    column, expected = UNREADABLE_FOR_PYTHON[kind]
    table = pa.table({"text": ["one"], "value": column})
    files = {"a.arrow": arrow_bytes(random.Random(0), table)}
    if "names twice" not in kind:
        files["a.parquet"] = parquet_bytes(random.Random(0), table)
    for name, data in files.items():
        assert json.loads(read_lines(tmp_path, name, data)) == {"text": "one", "value": expected}
        assert list(reading.read_rows(io.BytesIO(data), name)) == [{"text": "one", "value": expected}]
        batch = next(reading.read_documents(io.BytesIO(data), name, text_field="text", id_field="value"))
        assert batch.texts() == [b"one"]


@pytest.mark.parametrize("value", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view()])
def test_dictionary_of_any_text_is_read_and_written_as_it_is(value: Any, tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int16(), value)
    texts = [b"one", b"", b"two", b"one"] * 20
    column = columns.text_array(texts, kind)
    assert column.type == kind
    assert read(tmp_path, "a.arrow", arrow_of(column)) == texts
    missing = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int16()), pa.array(["a", None]).cast(value))
    assert columns.utf8_values(missing) == [b"a", None, None]


@pytest.mark.parametrize("kind", [pa.date64(), pa.time32("s"), pa.time64("us")])
def test_dates_and_times_outside_a_day_refuse_no_file(kind: Any, tmp_path: Path) -> None:
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    table = pa.table({"text": ["one", "two"], "at": pa.array([1, 1 << 30], width).view(kind)})
    data = arrow_bytes(random.Random(0), table)
    assert len(read_lines(tmp_path, "a.arrow", data).splitlines()) == 2
    named = {"text_field": "text", "id_field": "at", "fields": ["at"]}
    batches = list(reading.read_documents(io.BytesIO(data), "a.arrow", **named))
    assert [text for batch in batches for text in batch.texts()] == [b"one", b"two"]


def test_texts_that_become_null_as_lines_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = pa.array([b"one", b"\xff two", None, b"\xff"]).view(pa.string())
    read_lines(tmp_path, "a.arrow", arrow_of(texts))
    assert [record.getMessage() for record in caplog.records] == ["a.arrow: 2 texts are not UTF-8: they become null"]
    caplog.clear()
    read_lines(tmp_path, "a.arrow", arrow_of(pa.array(["one", None])))
    assert not caplog.records


@pytest.mark.parametrize("write", [parquet_of, arrow_of])
def test_row_whose_text_is_not_utf8_is_null_as_a_line_and_rejected_as_a_document(write: Any, tmp_path: Path) -> None:
    data = write(pa.array([b"one", b"\xff two", b"three"]).view(pa.string()))
    name = "a.parquet" if write is parquet_of else "a.arrow"
    for texts in (None, ["text"]):
        lines = read_lines(tmp_path, name, data, texts).splitlines()
        assert [json.loads(line)["text"] for line in lines] == ["one", None, "three"]
    assert read(tmp_path, name, data) == [b"one", b"three"]


def test_columns_of_one_name_are_no_field_and_do_not_hide_the_others(tmp_path: Path) -> None:
    structs = [pa.array([{"b": "in"}])] * 2
    table = pa.Table.from_arrays([pa.array(["one"]), pa.array(["x"]), pa.array(["y"]), *structs], [*"txxaa"])
    for name, data in (
        ("a.parquet", parquet_bytes(random.Random(0), table)),
        ("a.arrow", arrow_bytes(random.Random(0), table)),
    ):
        assert json.loads(read_lines(tmp_path, name, data)) == {"t": "one", "x": "y", "a": {"b": "in"}}
        assert [row["t"] for row in reading.read_rows(io.BytesIO(data), name)] == ["one"]
        assert read(tmp_path, name, data, "t") == [b"one"]
        for field in ("x", "a.b"):
            with raises("parquet.no_text_column", name):
                read(tmp_path, name, data, field)
            with raises("parquet.no_text_column", name):
                read_lines(tmp_path, name, data, [field])


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())]
)
def test_id_of_bytes_is_its_text_and_one_that_is_no_text_rejects_no_row(kind: Any) -> None:
    values = pa.array([b"abc", b'\xff"', None], pa.binary())
    table = pa.table(
        {
            "text": ["one", "two", "three"],
            "id": values.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else values.cast(kind),
        }
    )
    for name, data in (
        ("a.parquet", parquet_bytes(random.Random(0), table)),
        ("a.arrow", arrow_bytes(random.Random(0), table)),
    ):
        batches = list(reading.read_documents(io.BytesIO(data), name, text_field="text", id_field="id"))
        assert [identity for batch in batches for identity in batch.each_id()] == [b"abc", b'"b\'\\\\xff\\"\'"', b""]
        assert not any(batch.rejections for batch in batches)
