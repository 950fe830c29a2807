"""The writeback of tables: the texts that a list of strings would have, everything else as it was."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.writeback import WriteBackCounts, WriteBackOptions
from corpusmill.dedup.writeback_parquet import write_back_table
from corpusmill.documents.parquet import footer_of
from corpusmill.documents.text_shard import IndexedSource
from tests.oracles.documents import indexed_source
from tests.raising import raises

KINDS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
Ranges = list[list[tuple[int, int]]]


def table_of(texts: list[str | None], kind: pa.DataType = KINDS[0], **columns: list[Any]) -> pa.Table:
    rows = {"n": list(range(len(texts))), "text": pa.array(texts, pa.string()).cast(kind), **columns}
    return pa.table(rows).replace_schema_metadata({"made by": "a test"})


def write_back(
    table: pa.Table, ranges: Ranges, mode: str = "remove", group_rows: int = 3, **options: Any
) -> tuple[pa.Table, WriteBackCounts]:
    """`ranges` are relative to each text; a row without text is no document."""
    source, sink = io.BytesIO(), io.BytesIO()
    pq.write_table(table, source, row_group_size=group_rows)
    texts = table["text"].to_pylist()
    rows = [row for row, text in enumerate(texts) if text is not None]
    bounds = np.cumsum([0, *(len(texts[row].encode()) + 1 for row in rows)])
    actual = [(int(at) + 1 + a, int(at) + 1 + b) for at, span in zip(bounds, ranges, strict=False) for a, b in span]
    counts = write_back_table(
        source,
        sink,
        row_groups=None,
        indexed=indexed_rows(rows, [texts[row].encode() for row in rows]),
        ranges=np.array(actual, np.uint64).reshape(-1, 2),
        options=WriteBackOptions(mode, "text", **options),  # type: ignore[arg-type]
    )
    return pq.read_table(sink), counts


def indexed_rows(rows: list[int], texts: list[bytes]) -> IndexedSource:
    """As the text shard has rows, whose hashes are those of their texts."""
    indexed = indexed_source("web/a.parquet", b"\n".join(texts) + b"\n", list(enumerate(texts)))
    return replace(indexed, line_numbers=np.array(rows, np.uint64))


@st.composite
def documents_with_ranges(draw: st.DrawFn) -> tuple[list[str | None], Ranges]:
    texts = draw(st.lists(st.one_of(st.none(), st.text("aü中", max_size=6)), max_size=8))
    ranges = []
    for text in texts:
        if text is None:
            continue
        borders = [len(text[:place].encode()) for place in range(len(text) + 1)]
        cuts = sorted(draw(st.lists(st.sampled_from(borders), max_size=4, unique=True)))
        ranges.append(list(zip(cuts[::2], cuts[1::2], strict=False)))
    return texts, ranges


def cut(text: str, ranges: list[tuple[int, int]]) -> str:
    data = bytearray(text.encode())
    for start, end in reversed(ranges):
        del data[start:end]
    return data.decode()


@given(documents_with_ranges(), st.booleans(), st.sampled_from(KINDS))
def test_remove_leaves_each_row_the_rest_of_its_text(
    case: tuple[list[str | None], Ranges], drop_empty: bool, kind: pa.DataType
) -> None:
    texts, ranges = case
    table = table_of(texts, kind)
    rows = [(row, text) for row, text in enumerate(texts) if text is not None]
    expected = [(row, cut(text, spans), spans) for (row, text), spans in zip(rows, ranges, strict=True)]
    kept = [(row, text) for row, text, spans in expected if text or not spans or not drop_empty]
    written, counts = write_back(table, ranges, drop_empty=drop_empty)
    assert list(zip(written["n"].to_pylist(), written["text"].to_pylist(), strict=True)) == kept
    assert written.schema == table.schema
    assert written.schema.metadata == table.schema.metadata
    assert (counts.documents_in, counts.documents_out) == (len(rows), len(kept))
    assert counts.documents_empty == sum(bool(spans) and not text for _, text, spans in expected)
    assert counts.text_bytes_in == counts.text_bytes_out + counts.text_bytes_removed


@given(documents_with_ranges(), st.sampled_from(KINDS))
def test_annotate_keeps_every_text_and_adds_its_ranges(
    case: tuple[list[str | None], Ranges], kind: pa.DataType
) -> None:
    texts, ranges = case
    table = table_of(texts, kind)
    written, counts = write_back(table, ranges, "annotate")
    documents = table.filter(table["text"].is_valid())
    assert written.drop_columns(["sa_remove_ranges"]).to_pydict() == documents.to_pydict()
    assert written["sa_remove_ranges"].to_pylist() == [[list(span) for span in spans] for spans in ranges]
    assert counts.text_bytes_removed == 0
    assert counts.text_bytes_out == counts.text_bytes_in == sum(len(text.encode()) for text in texts if text)


def test_annotate_over_a_column_that_is_there_is_refused_unless_told_otherwise() -> None:
    table = table_of(["abc", "d"], ranges=["old", "older"])
    with raises("annotation.column_taken"):
        write_back(table, [[(0, 1)], []], "annotate", annotate_key="ranges")
    written, _ = write_back(table, [[(0, 1)], []], "annotate", annotate_key="ranges", replace_existing=True)
    assert written["ranges"].to_pylist() == [[[0, 1]], []]
    assert written.column_names == table.column_names


def test_table_that_changed_since_it_was_indexed_is_an_error() -> None:
    source = io.BytesIO()
    pq.write_table(table_of(["abc", "defg"]), source)
    with raises("source.changed_since_indexed", "web/a"):
        write_back_table(
            source,
            io.BytesIO(),
            row_groups=None,
            indexed=indexed_rows([0, 1], [b"abc", b"def"]),
            ranges=np.zeros((0, 2), np.uint64),
            options=WriteBackOptions("remove", "text"),
        )


@pytest.mark.parametrize(("texts", "line"), [([b"abc", b"def"], 102), ([b"abc", b"defg", b"h"], 103)])
def test_row_of_a_part_that_changed_or_is_lost_is_named_as_in_the_users_file(texts: list[bytes], line: int) -> None:
    source = io.BytesIO()
    pq.write_table(table_of(["abc", "defg"]), source)
    indexed = indexed_rows([*range(len(texts))], texts)
    with raises("source.changed_since_indexed") as caught:
        write_back_table(
            source,
            io.BytesIO(),
            row_groups=None,
            indexed=replace(indexed, path="a.parquet", place_of=lambda row: ("a.parquet", 100 + row)),
            ranges=np.zeros((0, 2), np.uint64),
            options=WriteBackOptions("remove", "text"),
        )
    details = dict(caught.value.details)
    assert details["where"] == f"a.parquet, line {line}"
    assert details["got"] == ("another text" if line == 102 else "102 rows up to its end")


def test_table_whose_other_column_is_damaged_is_refused_by_name() -> None:
    """Index reads the text alone; here every column is copied."""
    source = io.BytesIO()
    pq.write_table(table_of(["a", "b"]), source)
    (chunks,) = footer_of(source, "web/a.parquet")
    (number,) = (chunk for chunk in chunks if chunk.path == "n")
    source.seek(number.start)
    source.write(b"\xff" * 8)
    with raises("parquet.not_readable", "web/a.parquet"):
        write_back_table(
            source,
            io.BytesIO(),
            row_groups=None,
            indexed=indexed_rows([0, 1], [b"a", b"b"]),
            ranges=np.empty((0, 2), np.uint64),
            options=WriteBackOptions("remove", "text"),
        )


def arrow_of(tables: list[pa.Table], new: Any = pa.ipc.new_file) -> io.BytesIO:
    """Each table is a record batch; deltas of dictionaries are allowed."""
    sink = io.BytesIO()
    with new(sink, tables[0].schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for table in tables:
            writer.write_table(table)
    return io.BytesIO(sink.getvalue())


def written_arrow(
    source: io.BytesIO, texts: list[str], ranges: Ranges, mode: str = "remove", rewritten: dict[int, str] | None = None
) -> pa.Table:
    """The Arrow file with `ranges`, relative to each text; `rewritten`: the texts that a step made of some."""
    data = [(rewritten or {}).get(row, text).encode() for row, text in enumerate(texts)]
    bounds = np.cumsum([0, *(len(text) + 1 for text in data)])
    actual = [(int(at) + 1 + a, int(at) + 1 + b) for at, span in zip(bounds, ranges, strict=False) for a, b in span]
    indexed = replace(
        indexed_rows(list(range(len(texts))), data),
        path="web/a.arrow",
        line_hashes=indexed_rows([*range(len(texts))], [text.encode() for text in texts]).line_hashes,
        rewritten=np.array(sorted(rewritten or {}), np.int64),
    )
    sink = io.BytesIO()
    write_back_table(
        source,
        sink,
        row_groups=None,
        indexed=indexed,
        ranges=np.array(actual, np.uint64).reshape(-1, 2),
        options=WriteBackOptions(mode, "text"),  # type: ignore[arg-type]
    )
    return pa.ipc.open_file(io.BytesIO(sink.getvalue())).read_all()


VALUES = [pa.string(), pa.large_string(), pa.binary()]
TEXTS = ["one abc", "two", "one abc", "three abc", "four", "two"]


def batches_with_dictionaries(kind: Any, index: Any, dictionary: list[str]) -> list[pa.Table]:
    """TEXTS in three record batches; of a plain column and of one that no step touches."""
    numbers = [dictionary.index(text) for text in TEXTS]
    values = pa.array([text.encode() for text in dictionary], pa.binary()).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array(numbers, index), values)
    other = pa.array(["x", "y"] * 3).dictionary_encode()
    table = pa.table({"text": column, "other": other})
    return [table.slice(start, 2) for start in (0, 2, 4)]


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_arrow_file_with_a_dictionary_of_texts_keeps_its_type_over_several_batches(kind: Any) -> None:
    tables = batches_with_dictionaries(kind, pa.int16(), [*dict.fromkeys(TEXTS)])
    ranges: Ranges = [[], [], [(3, 7)], [(5, 9)], [], [(0, 3)]]
    written = written_arrow(arrow_of(tables), TEXTS, ranges)
    plain = [value.decode() for value in written["text"].cast(pa.binary()).to_pylist()]
    assert plain == ["one abc", "two", "one", "three", "four", ""]
    assert written.schema == tables[0].schema
    assert written["other"].to_pylist() == ["x", "y"] * 3
    annotated = written_arrow(arrow_of(tables), TEXTS, ranges, "annotate")
    assert annotated["text"].cast(pa.binary()).to_pylist() == [text.encode() for text in TEXTS]


def test_arrow_file_whose_dictionary_grows_and_whose_texts_a_step_changed_is_annotated() -> None:
    first, second, third = batches_with_dictionaries(pa.string(), pa.int32(), [*dict.fromkeys(TEXTS)])
    grown = pa.array(["x", "y", "z"])
    column = pa.DictionaryArray.from_arrays(pa.array([2, 2], pa.int32()), grown)
    tables = [first, second, third.set_column(1, "other", column)]
    written = written_arrow(arrow_of(tables), TEXTS, [[] for _ in TEXTS], "annotate", rewritten={3: "3", 5: "5"})
    assert written["text"].to_pylist() == ["one abc", "two", "one abc", "3", "four", "5"]
    assert written["other"].to_pylist() == ["x", "y", "x", "y", "z", "z"]


def test_arrow_file_whose_dictionary_cannot_number_the_texts_that_are_left_is_refused() -> None:
    texts = [f"{number:03d}" for number in range(120)] * 2
    column = pa.DictionaryArray.from_arrays(pa.array([*range(120)] * 2, pa.int8()), pa.array(texts[:120]))
    table = pa.table({"text": column})
    ranges: Ranges = [*([] for _ in range(120)), *([(0, 1)] for _ in range(120))]
    with raises("writeback.dictionary_full", "web/a.arrow"):
        written_arrow(arrow_of([table.slice(0, 120), table.slice(120)]), texts, ranges)
