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
from corpusmill.errors import ConfigError

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


def test_items_of_a_table_are_those_of_lines(tmp_path: Path) -> None:
    rows = [{"q": "one two", "a": "three", "p": None}, {"q": "four", "a": "", "p": "five"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "items.parquet")
    fields = Fields("q", "a", "p")
    assert read((tmp_path / "items.parquet").read_bytes(), "items.parquet", fields) == read(lines(*rows), fields=fields)


@pytest.mark.parametrize("data", [b"", lines([1]), lines({"prompt": "x"}), b"{]\n"])
def test_items_that_cannot_be_read_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="a benchmark cannot be read"):
        read(data)


def test_decontaminate_writes_a_line_for_each_hit(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_bytes(lines({"id": "q1", "question": QUESTION}, {"question": OTHER}))
    (tmp_path / "same.jsonl").write_bytes(lines({"id": "copy", "question": QUESTION.upper()}))
    documents = [{"text": "nothing here"}, {"id": "d", "text": f"é {OTHER}\n{QUESTION.replace(' ', chr(10))}"}]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl.gz").write_bytes(gzip.compress(b"no json\n" + lines(*documents)))
    benchmarks = ("--benchmark", tmp_path / "items.jsonl", "--benchmark", f"again={tmp_path / 'same.jsonl'}")
    printed = run(tmp_path / "data", *benchmarks, "--hits", tmp_path / "hits.jsonl")
    other, question = (len(f"é {OTHER}\n".encode()), len(QUESTION))
    place = {"file": "a.jsonl.gz", "line": 3, "id": "d"}
    assert [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()] == [
        {"benchmark": "items", "item": "2", **place, "begin": 3, "end": other - 2, "share": 1.0},
        {"benchmark": "items", "item": "q1", **place, "begin": other, "end": other + question - 1, "share": 1.0},
        {"benchmark": "again", "item": "copy", **place, "begin": other, "end": other + question - 1, "share": 1.0},
    ]
    assert "items: 2 of 2 items found, 2 hits\nagain: 1 of 1 items found, 1 hits\n" in printed
    assert "1 of 2 documents contain items, 1 lines rejected: broken_json" in printed


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
    with pytest.raises(ConfigError, match="threshold"):
        run(
            tmp_path,
            "--benchmark",
            tmp_path / "items.jsonl",
            "--hits",
            tmp_path.parent / "hits.jsonl",
            "--threshold",
            threshold,
        )


def test_decontaminate_two_benchmarks_of_one_name_are_refused(tmp_path: Path) -> None:
    """Their counts were added up under one name."""
    (tmp_path / "data.jsonl").write_bytes(lines({"text": QUESTION}))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test.jsonl").write_bytes(lines({"question": QUESTION}))
    first, second = ("--benchmark", tmp_path / "one/test.jsonl"), ("--benchmark", tmp_path / "two/test.jsonl")
    hits = tmp_path / "hits.jsonl"
    with pytest.raises(ConfigError, match="two benchmarks are called test") as caught:
        run(tmp_path / "data.jsonl", *first, *second, "--hits", hits)
    assert "NAME=" in str(caught.value)
    assert not hits.exists()
    printed = run(tmp_path / "data.jsonl", *first, "--benchmark", f"two={tmp_path / 'two/test.jsonl'}", "--hits", hits)
    assert "test: 1 of 1 items found, 1 hits\ntwo: 1 of 1 items found, 1 hits\n" in printed
