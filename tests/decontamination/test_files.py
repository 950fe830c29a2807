"""Benchmarks and documents in files."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from corpusmill.commands import app
from corpusmill.decontamination.items import Fields, Item, read_items
from tests.raising import raises

QUESTION = "A merchant sells nine copper kettles on Tuesday and twice as many on Friday; how many remain?"
OTHER = "Which river did the surveyors of Holm cross before they reached the abandoned quarry?"


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def read(data: bytes, name: str = "items.jsonl", fields: Fields | None = None) -> list[Item]:
    return list(read_items(io.BytesIO(data), name, "bench", fields or Fields()))


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["decontaminate", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_items_of_lines_have_names_questions_and_answers() -> None:
    data = (
        lines({"id": 7, "question": "a b", "answer": ["c", "d"]}, {"question": "e"}) + b"\n" + lines({"question": ""})
    )
    assert read(data) == [
        Item("bench", "7", "a b", "c\nd"),
        Item("bench", "2", "e"),
        Item("bench", "4", ""),
    ]
    assert read(gzip.compress(data), "items.jsonl.gz") == read(data)


@pytest.mark.parametrize(("row", "got"), [(None, "null"), (["a"], "a value of type list"), (7, "a value of type int")])
def test_row_of_a_benchmark_that_is_no_object_is_refused_by_file_and_row(row: Any, got: str) -> None:
    """A row of null was skipped, as blank lines are."""
    with raises("benchmark.not_readable") as refused:
        read(lines({"question": "a b"}) + b"\n" + lines(row))
    details = dict(refused.value.details)
    assert (details["where"], details["got"]) == ("items.jsonl, row 3", got)


def test_items_of_a_table_are_those_of_lines(tmp_path: Path) -> None:
    rows = [{"q": "one two", "a": "three", "p": None}, {"q": "four", "a": "", "p": "five"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "items.parquet")
    fields = Fields("q", "a", "p")
    assert read((tmp_path / "items.parquet").read_bytes(), "items.parquet", fields) == read(lines(*rows), fields=fields)


@pytest.mark.parametrize("data", [b"", lines([1]), lines({"prompt": "x"}), b"{]\n"])
def test_items_that_cannot_be_read_are_refused(data: bytes) -> None:
    with raises("benchmark.not_readable"):
        read(data)


def test_decontaminate_writes_a_line_for_each_hit(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_bytes(lines({"id": "q1", "question": QUESTION}, {"question": OTHER}))
    (tmp_path / "same.jsonl").write_bytes(lines({"id": "copy", "question": QUESTION.upper()}))
    documents = [{"text": "nothing here"}, {"id": "d", "text": f"é {OTHER}\n{QUESTION.replace(' ', chr(10))}"}]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl.gz").write_bytes(gzip.compress(b"no json\n" + lines(*documents)))
    benchmarks = ("--benchmark", tmp_path / "items.jsonl", "--benchmark", f"again={tmp_path / 'same.jsonl'}")
    printed = run(tmp_path / "data", *benchmarks, "--hits", tmp_path / "hits.jsonl",
                  "--max-rejected-share", 0.5)  # fmt: skip
    other, question = (len(f"é {OTHER}\n".encode()), len(QUESTION))
    place = {"file": "a.jsonl.gz", "line": 3, "id": "d"}
    assert [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()] == [
        {"benchmark": "items", "item": "2", **place, "begin": 3, "end": other - 2, "share": 1.0},
        {"benchmark": "items", "item": "q1", **place, "begin": other, "end": other + question - 1, "share": 1.0},
        {"benchmark": "again", "item": "copy", **place, "begin": other, "end": other + question - 1, "share": 1.0},
    ]
    assert (
        "items: 2 found of 2 that can be searched; 2 hits\nagain: 1 found of 1 that can be searched; 1 hit\n" in printed
    )
    assert "1 of 2 documents contain items" in printed
    assert f"rejected lines: 1 broken_json; see {tmp_path / 'hits.rejected.jsonl'}" in printed


def test_decontaminate_counts_items_that_cannot_be_searched_apart(tmp_path: Path) -> None:
    rows = [
        {"question": ""},
        {"id": "capital", "question": "Paris"},
        {"question": QUESTION},
        {"question": "?", "passage": OTHER},  # searched by its passage
        {"question": None, "passage": "too short"},
    ]
    (tmp_path / "items.jsonl").write_bytes(lines(*rows))
    (tmp_path / "data.jsonl").write_bytes(lines({"text": OTHER}))
    printed = run(tmp_path / "data.jsonl", "--benchmark", tmp_path / "items.jsonl", "--passage-field", "passage",
                  "--hits", tmp_path / "hits.jsonl")  # fmt: skip
    cannot = "3 cannot: 1, capital, 5 (too short or too common)"
    assert f"items: 1 found of 2 that can be searched; {cannot}; 1 hit\n" in printed


def test_decontaminate_without_hits_leaves_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_bytes(lines({"ask": QUESTION}))
    (tmp_path / "data.jsonl").write_bytes(lines({"body": OTHER}))
    hits = tmp_path / "hits.jsonl"
    run(tmp_path / "data.jsonl", "--benchmark", tmp_path / "items.jsonl", "--question-field", "ask",
        "--text-field", "body", "--hits", hits)  # fmt: skip
    assert hits.read_bytes() == b""


@pytest.mark.parametrize("threshold", ["0", "1.5", "much"])
def test_decontaminate_by_another_threshold_is_refused(threshold: str, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_bytes(lines({"question": QUESTION}))
    with raises("decontamination.unknown_threshold"):
        run(
            tmp_path,
            "--benchmark",
            tmp_path / "items.jsonl",
            "--hits",
            tmp_path.parent / "hits.jsonl",
            "--threshold",
            threshold,
        )


@pytest.mark.parametrize("hits", ["items.jsonl", "items.jsonl/../items.jsonl", "data.jsonl", "notes.txt"])
def test_decontaminate_hits_over_a_file_of_another_kind_are_refused(hits: str, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_bytes(lines({"question": QUESTION}))
    (tmp_path / "data.jsonl").write_bytes(lines({"text": OTHER}))
    (tmp_path / "notes.txt").write_text("mine\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with raises("command.file_of_others source.contains_output", "--hits"):
        run(tmp_path / "data.jsonl", "--benchmark", tmp_path / "items.jsonl", "--hits", tmp_path / hits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_decontaminate_too_many_malformed_lines_fail_and_leave_no_hits(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_bytes(lines({"question": QUESTION}))
    (tmp_path / "data.jsonl").write_bytes(b"no json\n" + lines({"text": QUESTION}))
    with raises("documents.too_many_malformed", "1 of 2"):
        run(tmp_path / "data.jsonl", "--benchmark", tmp_path / "items.jsonl", "--hits", tmp_path / "hits.jsonl")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["data.jsonl", "hits.rejected.jsonl", "items.jsonl"]
    assert json.loads((tmp_path / "hits.rejected.jsonl").read_bytes())["line"] == 1


def test_decontaminate_hits_in_a_folder_of_benchmarks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/items.jsonl").write_bytes(lines({"question": QUESTION}))
    (tmp_path / "data.jsonl").write_bytes(lines({"text": QUESTION}))
    with raises("source.contains_output", "--hits"):
        run(tmp_path / "data.jsonl", "--benchmark", tmp_path / "bench", "--hits", tmp_path / "bench/hits.jsonl")


@pytest.mark.parametrize("text", [QUESTION, OTHER])
def test_decontaminate_hits_of_an_earlier_run_are_replaced(text: str, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_bytes(lines({"question": QUESTION}))
    (tmp_path / "data.jsonl").write_bytes(lines({"text": text}))
    arguments = (tmp_path / "data.jsonl", "--benchmark", tmp_path / "items.jsonl", "--hits", tmp_path / "hits.jsonl")
    run(*arguments)
    first = (tmp_path / "hits.jsonl").read_bytes()
    run(*arguments)
    assert (tmp_path / "hits.jsonl").read_bytes() == first


def test_decontaminate_two_benchmarks_of_one_name_are_refused(tmp_path: Path) -> None:
    """Their counts were added up under one name."""
    (tmp_path / "data.jsonl").write_bytes(lines({"text": QUESTION}))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test.jsonl").write_bytes(lines({"question": QUESTION}))
    first, second = ("--benchmark", tmp_path / "one/test.jsonl"), ("--benchmark", tmp_path / "two/test.jsonl")
    hits = tmp_path / "hits.jsonl"
    with raises("benchmark.name_twice", "test", "NAME="):
        run(tmp_path / "data.jsonl", *first, *second, "--hits", hits)
    assert not hits.exists()
    printed = run(tmp_path / "data.jsonl", *first, "--benchmark", f"two={tmp_path / 'two/test.jsonl'}", "--hits", hits)
    assert "test: 1 found of 1 that can be searched; 1 hit\ntwo: 1 found of 1 that can be searched; 1 hit\n" in printed
