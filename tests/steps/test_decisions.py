"""Decisions made elsewhere: read, sorted out of core and joined."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.conditions import Condition, read_condition
from corpusmill.steps import decisions
from corpusmill.steps.decisions import (
    DECISION_ENDINGS,
    RECORD,
    DecisionError,
    Sorted,
    key_of,
    place_of_row,
    read_decisions,
    write_sorted,
)
from corpusmill.storage import list_sources
from tests.documents.every_kind import COMPRESSORS
from tests.raising import raises

Decided = tuple[tuple[str, ...], Condition]

BY_ID: Decided = ("id",), read_condition("score >= 0.5")
BY_LINE: Decided = ("file", "line"), read_condition("score >= 0.5")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    name = path.name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
        return
    if name.endswith(".arrow"):
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, max_chunksize=2)
        return
    if ".csv" in name:
        head = list(rows[0])
        text = "".join(
            ",".join(map(str, row)) + "\n" for row in [head, *([row[item] for item in head] for row in rows)]
        )
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    data = text.encode()
    path.write_bytes(COMPRESSORS.get(path.suffix, bytes)(data))


def read(folder: Path, decided: Decided) -> list[tuple[str, int, int]]:
    """(file, row, keep) of every decision in a folder, in order."""
    files = list_sources([str(folder)], DECISION_ENDINGS)
    names = [file.name for file in files]
    records = np.concatenate([np.empty(0, RECORD), *read_decisions(files, None, *decided, folder)])
    return [(*place_of_row(int(row["row"]), names), int(row["keep"])) for row in records]


def error_of(folder: Path, decided: Decided) -> dict[str, str]:
    with pytest.raises(DecisionError) as caught:
        read(folder, decided)
    assert "secret" not in str(caught.value)
    return {"code": caught.value.code, **dict(caught.value.details)}


@pytest.mark.parametrize("ending", DECISION_ENDINGS)
def test_rows_of_every_format_are_the_same_decisions(ending: str, tmp_path: Path) -> None:
    rows = [{"score": number / 4, "id": f"d{number}", "file": "a.jsonl", "line": number + 1} for number in range(5)]
    write(tmp_path / f"one{ending}", rows)
    for decided in (BY_ID, BY_LINE):
        assert read(tmp_path, decided) == [(f"one{ending}", n + 1, int(n >= 2)) for n in range(5)]


def test_integers_are_ids_as_documents_have_them(tmp_path: Path) -> None:
    write(tmp_path / "one.jsonl", [{"id": 7, "score": 1}])
    (tmp_path / "sorted").mkdir()
    files = list_sources([str(tmp_path / "one.jsonl")], DECISION_ENDINGS)
    write_sorted(read_decisions(files, None, *BY_ID, tmp_path), tmp_path / "sorted", ["one.jsonl"])
    assert Sorted(tmp_path / "sorted").find([key_of("7"), key_of("8")]).tolist() == [0, -1]


GOOD = {"id": "a", "file": "f", "line": 1, "score": 1}


@pytest.mark.parametrize(
    ("rows", "decided", "message"),
    [
        ([GOOD, {"id": "b"}], BY_ID, "no value in score"),
        ([GOOD, {"score": 1}], BY_ID, "decisions.no_key"),
        ([GOOD, {"id": None, "score": 1}], BY_ID, "decisions.no_key"),
        ([GOOD, {"id": "", "score": 1}], BY_ID, "decisions.no_key"),
        ([GOOD, {"id": 1.5, "score": 1}], BY_ID, "decisions.no_key"),
        ([GOOD, {"id": True, "score": 1}], BY_ID, "decisions.no_key"),
        ([GOOD, {"id": "b", "score": "secret"}], BY_ID, "a value of type str"),
        ([GOOD, {"id": "b", "score": None}], BY_ID, "no value in score"),
        ([GOOD, {**GOOD, "line": "1"}], BY_LINE, "decisions.no_key"),
        ([GOOD, {**GOOD, "file": 1}], BY_LINE, "decisions.no_key"),
        ([GOOD, {"id": [1], "score": 1}], BY_ID, "list"),
        ([GOOD, {"id": {"a": 1}, "score": 1}], BY_ID, "dict"),
        ([GOOD, {**GOOD, "line": 1.0}], BY_LINE, "str, float"),
        ([GOOD, {**GOOD, "line": True}], BY_LINE, "str, bool"),
        ([GOOD, {**GOOD, "line": None}], BY_LINE, "str, null"),
        ([GOOD, {**GOOD, "file": None}], BY_LINE, "null, int"),
        ([GOOD, {**GOOD, "line": 0}], BY_LINE, "line 0"),
        ([GOOD, {**GOOD, "line": -3}], BY_LINE, "line -3"),
        ([GOOD, [1, 2]], BY_ID, "a value of type list"),
        ([GOOD, None], BY_ID, "null"),
        ([GOOD, "a"], BY_ID, "a value of type str"),
        ([GOOD, 7], BY_ID, "a value of type int"),
    ],
)
def test_row_that_cannot_be_used_is_named_with_its_file(
    rows: list[Any], decided: Decided, message: str, tmp_path: Path
) -> None:
    write(tmp_path / "one.jsonl", rows)
    error = error_of(tmp_path, decided)
    assert message in f"{error['code']}: {error['got']}"
    assert error["where"] == "one.jsonl, row 2"


@pytest.mark.parametrize(
    ("ids", "got"),
    [
        (pa.array(["a", None]), "null"),
        (pa.array([b"a", b"b"]), "bytes"),
        (pa.array([1.0, 2.0]), "float"),
        (pa.array([["a"], ["b"]]), "list"),
        (pa.array([True, False]), "bool"),
        (pa.array([None, None]), "null"),
    ],
)
def test_table_whose_ids_are_null_or_of_another_type_is_refused_by_its_row(ids: Any, got: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ids, "score": [1.0, 1.0]}), tmp_path / "one.parquet")
    error = error_of(tmp_path, BY_ID)
    first = 2 if ids[0].as_py() == "a" else 1
    assert (error["where"], error["got"]) == (f"one.parquet, row {first}", got)


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        (b"id,score\na,1\nb\n", 2, "2 values"),
        (b"id,score\na,1\nb,secret\n", 2, "a value of type str"),
        (b"id,points\na,1\n", 0, "decisions.column_missing"),
        (b"id,score,score\na,1,1\n", 0, "decisions.column_missing"),
        (b"", 0, "decisions.column_missing"),
        (b'id,score\na,1\n"b,2\n', 2, "CSV in UTF-8"),
        (b"id,score\na\xff,1\n", 1, "CSV in UTF-8"),
    ],
)
def test_csv_that_cannot_be_used_is_named(text: bytes, row: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_bytes(text)
    error = error_of(tmp_path, BY_ID)
    assert message in str(error)
    assert error["where"] == (f"one.csv, row {row}" if row else "one.csv")


@pytest.mark.parametrize(
    "keep", ["lang is null", "lang is not null", "lang == 'en' or lang is null", "lang != 'en' and lang is not null"]
)
def test_empty_cell_of_csv_is_the_null_of_json_lines(keep: str, tmp_path: Path) -> None:
    rows = [("a", "en"), ("b", None), ("c", "de")]
    (tmp_path / "one.csv").write_text("id,lang\n" + "".join(f"{key},{lang or ''}\n" for key, lang in rows))
    (tmp_path / "one.jsonl").write_text("".join(json.dumps({"id": key, "lang": lang}) + "\n" for key, lang in rows))
    kept = [keep for *_, keep in read(tmp_path, (("id",), read_condition(keep)))]  # of both files, one after the other
    assert kept[:3] == kept[3:]
    assert 0 < sum(kept) < 6


def test_empty_cell_that_is_compared_with_a_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id,lang\na,\n")
    error = error_of(tmp_path, (("id",), read_condition("lang != 'en'")))
    assert (error["where"], error["got"]) == ("one.csv, row 1", "no value in lang")
    assert "coalesce(lang, ...)" in error["next"]


def test_empty_cell_of_a_column_whose_name_sql_quotes_is_named_with_its_quotes(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id,the lang\na,\n")
    error = error_of(tmp_path, (("id",), read_condition("\"the lang\" != 'en'")))
    assert 'coalesce("the lang", ...)' in error["next"]
    read_condition("coalesce(\"the lang\", '') != 'en'")


def test_row_whose_pattern_is_malformed_is_not_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id,pattern\na,x\nb,(((\n")
    error = error_of(tmp_path, (("id",), read_condition("regexp_matches('x', pattern)")))
    assert (error["code"], error["where"]) == ("decisions.not_readable", "one.csv, row 2")
    assert "(((" not in str(error)


@pytest.mark.parametrize("name", ["one.jsonl", "one.parquet", "one.arrow"])
def test_columns_with_dots_reach_into_objects_and_structs_unless_a_column_has_the_dots(
    name: str, tmp_path: Path
) -> None:
    decided = ("meta.id",), read_condition("marks.score >= 0.5")
    rows = [{"meta": {"id": key, "other": 1}, "marks": {"score": score}} for key, score in (("a", 1.0), ("b", 0.0))]
    write(tmp_path / name, rows)
    assert [item[1:] for item in read(tmp_path, decided)] == [(1, 1), (2, 0)]
    write(tmp_path / name, [{**row, "marks.score": 0.0} for row in rows])
    assert [item[1:] for item in read(tmp_path, decided)] == [(1, 0), (2, 0)]
    write(tmp_path / name, [{"meta": {"id": "a"}, "marks": {"other": 1.0}}])
    assert "marks.score" in str(error_of(tmp_path, decided))


def test_table_without_a_column_is_named(tmp_path: Path) -> None:
    write(tmp_path / "one.parquet", [{"id": "a", "points": 1}])
    assert "score" in str(error_of(tmp_path, BY_ID))
    assert not list(tmp_path.glob("decisions.*"))


def records_of(keys: list[bytes], keep: list[bool] | None = None, first: int = 1) -> np.ndarray:
    records = np.zeros(len(keys), RECORD)
    records["high"], records["low"] = decisions._hashed(keys).T
    records["row"] = np.arange(first, first + len(keys))
    records["keep"] = True if keep is None else keep
    return records


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.booleans(), max_size=40),
    st.lists(st.text(max_size=5), max_size=20),
    st.integers(1, 7),
)
def test_join_is_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, bool], asked: list[str], run: int
) -> None:
    folder = tmp_path_factory.mktemp("sorted")
    keys = [key_of(row) for row in rows]
    runs = [
        records_of(keys[at : at + run], list(rows.values())[at : at + run], at + 1) for at in range(0, len(keys), run)
    ]
    counts = write_sorted(runs, folder, ["one.jsonl"])
    assert counts == {"decisions": len(rows), "decisions_keep": sum(rows.values())}
    joined = Sorted(folder)
    wanted = [*asked, *rows]
    actual = joined.find(map(key_of, wanted)).tolist()
    assert [place >= 0 for place in actual] == [item in rows for item in wanted]
    assert [bool(joined.keep[place]) for place in actual if place >= 0] == [
        rows[item] for item in wanted if item in rows
    ]
    assert [int(joined.row[place]) for place in actual if place >= 0] == [
        list(rows).index(item) + 1 for item in wanted if item in rows
    ]


def test_keys_whose_first_halves_are_equal_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions.xxhash, "xxh3_128_digest", lambda key: b"\x07" * 8 + key.rjust(8, b"\0"))
    write_sorted([records_of([b"a", b"b", b"d"])], tmp_path, ["one"])
    joined = Sorted(tmp_path)
    actual = joined.find([b"a", b"b", b"c", b"d", b"e"]).tolist()
    assert [int(joined.row[place]) if place >= 0 else 0 for place in actual] == [1, 2, 0, 3, 0]


def test_key_that_is_there_twice_names_both_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [{"id": "x", "score": 1}, {"id": "y", "score": 1}])
    write(tmp_path / "b.jsonl", [{"id": "z", "score": 1}, {"id": "x", "score": 1}])
    (tmp_path / "sorted").mkdir()
    files = list_sources([str(tmp_path / "*.jsonl")], DECISION_ENDINGS)
    with raises("decisions.document_twice") as caught:
        write_sorted(read_decisions(files, None, *BY_ID, tmp_path), tmp_path / "sorted", [file.name for file in files])
    assert dict(caught.value.details)["where"] == "b.jsonl, row 2"
    assert "a.jsonl, row 1, too" in str(caught.value)


def test_line_keys_do_not_run_together() -> None:
    assert key_of("a", 11) != key_of("a1", 1)


def test_first_row_of_a_key_counts_where_keys_may_be_there_twice(tmp_path: Path) -> None:
    runs = [records_of([b"b", b"a"]), records_of([b"b", b"c", b"a"], first=3)]
    assert write_sorted(runs, tmp_path, ["one"], once=False) == {"decisions": 3, "decisions_keep": 3}
    joined = Sorted(tmp_path)
    assert joined.row[joined.find([b"a", b"b", b"c"])].tolist() == [2, 1, 4]


def test_sorting_takes_memory_of_a_run_and_a_partition(tmp_path: Path) -> None:
    rows, run = 2_000_000, 50_000

    def runs() -> Iterator[np.ndarray]:
        generator = np.random.Generator(np.random.PCG64(3))
        for first in range(0, rows, run):
            records = np.zeros(run, RECORD)
            records["high"], records["low"] = generator.integers(0, 1 << 64, (2, run), np.uint64)
            records["row"] = np.arange(first + 1, first + 1 + run)
            yield records

    tracemalloc.start()
    write_sorted(runs(), tmp_path, ["one"])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (
        most
        < 8 * run * RECORD.itemsize + 8 * rows * RECORD.itemsize // decisions.PARTITIONS
        < rows * RECORD.itemsize // 4
    )
    high = Sorted(tmp_path).high
    assert len(high) == rows
    assert bool((high[1:] >= high[:-1]).all())
