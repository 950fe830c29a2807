"""Conditions on columns: what they are for rows, by plain Python, and what is no condition."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.batch import batch_of
from corpusmill.documents.conditions import checked, database, of_documents, read_condition
from corpusmill.documents.text_shard import TextShardWriter, open_text_shard

Row = dict[str, Any]


def outcomes(text: str, rows: list[Row]) -> list[bool | None]:
    condition = read_condition(text)
    columns = {name: [checked(row.get(name), kind) for row in rows] for name, kind in condition.kinds.items()}
    with closing(database()) as opened:
        return condition.tested(opened, columns, len(rows)).to_pylist()


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("score<1 and score <= -1e-3", {"score": -1}, True),
        ("language in ['de']", {"language": "en"}, False),
        ("score in [0.5, 1]", {"score": 0.45}, False),
        ("spam == false", {"spam": False}, True),
        ("spam", {"spam": False}, False),
        ("seen is not null", {"seen": None}, False),
        ("seen is null", {"seen": [7]}, False),
        ("not score > 1 and score > 0", {"score": 0.5}, True),
        ("score > 1 or score < 0 and score < -1", {"score": 2}, True),
        ("(score > 1 or score < 0) and score < -1", {"score": 2}, False),
        ("\"a b\" = 'and'", {"a b": "and"}, True),
        ('"a.b" = 1 -- a comment', {"a.b": 1.0}, True),
        ("a.b = 1 and meta.deep.lang is null", {"a.b": 1.0}, True),
        ("domain(meta.url) in ('a.example', 'b.example')", {"meta.url": "https://www.B.example:80/x?y"}, True),
        ("domain(url) is null", {"url": "no address"}, True),
        ("language == 'en' or language is null", {"language": None}, True),
        ("language != 'en' and language is not null", {"language": None}, False),
        ("language != 'en'", {"language": None}, None),
        ("coalesce(score, 0) - 1 < 0", {"score": None}, True),
        ("length(title) >= 3 and lower(title) like '%ab'", {"title": "xAB"}, True),
        ("regexp_matches(title, pattern)", {"title": "a", "pattern": "("}, None),
        ("title = 'it''s \"; -- x'", {"title": "it's \"; -- x"}, True),
        ("current_timestamp = 'a'", {"current_timestamp": "a"}, True),
        ("false", {}, False),
    ],
)
def test_condition_holds_as_it_reads(text: str, row: Row, expected: bool | None) -> None:
    assert outcomes(text, [row]) == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "syntax|SELECT") for text in ("", "a >=", "a >= 1 1", "(a > 1", "a > 1)", "not", "a b")),
        *((text, "syntax") for text in ("a > 1; x", "a > 1;", "a > 1) and (b > 2", "a > 1 as b", "a > 1 from rows")),
        *((text, "syntax") for text in ("a > 1)) from ((select 1", "a > 1 union select true", "distinct a")),
        *((text, "unterminated") for text in ("'a", "a > 1 /* x", "a = 'x'';")),
        *((text, "single quotes") for text in ('a == "en"', 'a in ["en", "de"]', "a >= other", "a in b", "a in []")),
        *((text, "unexpected") for text in ("a > 1, b > 2", "*", "a > (select 1)", "exists(from rows)", "a::int > 1")),
        *((text, "unexpected") for text in ("random() > 0", "now() > a", "current_setting('x') = 1", "sum(a) > 1")),
        *((text, "unexpected") for text in ("read_text('x') = a", "main.lower(a) = 'x'", "a collate nocase = 'b'")),
        *((text, "expected") for text in ("a > ?", "a = null", "a > 1 or a = 'a'", "a + 1", "lower(a) > 1", "[true]")),
        *((text, "Error") for text in ("length(a, b) > 1", "lower(a) over () = 'x'", "lower(a) filter (b) = 'x'")),
        *(("a > 1e999", "too large"), ("a > 9007199254740993", "too large"), ("a > 1 or A > 1", "case")),
        *(("domain(a) > 1", "one type"), ("a = '\0'", "null"), ("not " * 120 + "a > 1", "depth")),
        ("(" * 5000 + "a > 1" + ")" * 5000, "depth"),
        *((text, "missing") for text in ("a ~ '('", "b or regexp_matches(a, '[')", "a similar to 'x' || '('")),
    ],
)  # fmt: skip
def test_what_is_no_condition_on_a_row_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_condition(text)


NAMES = st.from_regex(r"[a-zA-Z0-9-]{1,8}(\.[a-zA-Z0-9-]{1,8}){0,3}", fullmatch=True)


@given(
    st.sampled_from(["http", "HTTPS", "s3", "git+ssh"]),
    st.sampled_from(["", "user@", "user:pass@"]),
    NAMES | st.just("[2001:db8::1]"),
    st.sampled_from(["", ":80", "."]),
    st.sampled_from(["", "/", "/a//b?c=http://x.y/#d", "?q", "#f"]),
)
def test_domain_is_the_host_that_python_finds(scheme: str, user: str, host: str, port: str, path: str) -> None:
    url = f"{scheme}://{user}{host}{port}{path}"
    found = (urlsplit(url).hostname or "").removeprefix("www.").removesuffix(".")
    expected = found if not host.startswith("[") else host
    assert outcomes(f"domain(url) = '{expected}'", [{"url": url}]) == [True]


def test_condition_of_documents_is_neither_true_nor_false_where_a_field_lacks_or_is_of_another_type(
    tmp_path: Path,
) -> None:
    fields: list[dict[str, Any]] = [{"score": 1}, {"score": 0.25}, {}, {"score": None}, {"score": "1"}, {"score": [1]}]
    fields *= 7000
    with TextShardWriter(tmp_path, fields=True) as writer:
        writer.start_source("a.jsonl")
        texts, numbers = [b"text"] * len(fields), np.arange(len(fields), dtype=np.uint64)
        asked = [json.dumps(row).encode() for row in fields]
        writer.append(batch_of("a.jsonl", texts, texts, numbers, 0, [], fields=asked))
    shard = open_text_shard(tmp_path)
    tested = of_documents(read_condition("score > 0.5"), shard.document_fields(), shard.documents)
    assert tested.tolist() == [1, 0, -1, -1, -1, -1] * 7000
    assert of_documents(read_condition("true"), None, 3).tolist() == [1, 1, 1]


@given(st.text(st.sampled_from("a1 ()<>=!'\"[],.`;-+andornotinisnull"), max_size=30))
def test_any_text_is_a_condition_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert read_condition(text).query


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))
def test_comparison_is_that_of_python(value: float, limit: float) -> None:
    """To the last bit: a limit is often a value of the column."""
    assert outcomes(f"x >= {limit!r} and x in [{limit!r}, 0.5]", [{"x": limit}, {"x": value}]) == [
        True,
        value >= limit and value in {limit, 0.5},
    ]


Tree = tuple[str, Callable[[Row], bool | None]]
"""A condition, and what it is for a row; None: neither true nor false."""
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, "==": operator.eq, "!=": operator.ne, "=": operator.eq}
NUMBERS = st.integers(-3, 3) | st.sampled_from([-0.5, 0.1, 2.5])
TEXTS = st.text("a'\"é;", max_size=2)


def written(value: float | str) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def compared(column: str, sign: str, value: Any) -> Tree:
    return (
        f"{column} {sign} {written(value)}",
        lambda row: None if row[column] is None else SIGNS[sign](row[column], value),
    )


def listed(column: str, values: list[Any], brackets: str) -> Tree:
    text = f"{column} in {brackets[0]}{', '.join(map(written, values))}{brackets[1]}"
    return text, lambda row: None if row[column] is None else row[column] in values


def joined(word: str, one: Tree, other: Tree) -> Tree:
    decisive = word == "or"

    def joint(row: Row) -> bool | None:
        both = {one[1](row), other[1](row)}
        return decisive if decisive in both else None if None in both else not decisive

    return f"({one[0]} {word} {other[0]})", joint


def negated(one: Tree) -> Tree:
    return f"not ({one[0]})", lambda row: None if one[1](row) is None else not one[1](row)


def leaves(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    return (
        st.builds(compared, st.just(column), st.sampled_from(sorted(SIGNS)), values)
        | st.builds(listed, st.just(column), st.lists(values, min_size=1, max_size=3), st.sampled_from(["[]", "()"]))
        | st.just((f"{column} is null", lambda row: row[column] is None))
    )


conditions = st.recursive(
    leaves("score", NUMBERS) | leaves("language", TEXTS),
    lambda inner: st.builds(joined, st.sampled_from(["and", "or"]), inner, inner) | st.builds(negated, inner),
    max_leaves=6,
)
rows = st.fixed_dictionaries({"score": st.none() | NUMBERS, "language": st.none() | TEXTS})


@given(conditions, st.lists(rows, min_size=1, max_size=8))
def test_condition_is_what_plain_python_says(tree: Tree, rows: list[Row]) -> None:
    text, oracle = tree
    assert outcomes(text, rows) == [oracle(row) for row in rows]


@pytest.mark.parametrize(
    "query",
    [
        *("FROM read_csv('/etc/passwd')", "FROM '/etc/passwd'", "COPY (SELECT 1) TO 'x.csv'", "ATTACH 'x.db'"),
        *("INSTALL httpfs", "LOAD httpfs", "SET threads = 2", "SET enable_external_access = true", "FROM rows"),
    ],
)
def test_database_reads_nothing_and_keeps_its_settings(query: str) -> None:
    rows = pa.table({"a": [1]})  # Python's names are none of its tables
    with closing(database()) as opened, pytest.raises(duckdb.Error):
        opened.sql(query).fetchall()
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("value", "kind", "from_text", "expected"),
    [
        *(("0.5", "number", True, 0.5), ("7", "number", True, 7), ("7", "text", True, "7"), ("", "text", True, None)),
        *(("True", "true or false", True, True), ("", "number", True, None), (None, "number", False, None)),
        *(([1], "", False, True), ("", "", True, None)),
    ],
)
def test_value_of_the_type_of_what_it_is_compared_with_is_read(
    value: Any, kind: str, from_text: bool, expected: Any
) -> None:
    assert checked(value, kind, from_text=from_text) == expected


@pytest.mark.parametrize(
    ("value", "kind", "from_text"),
    [
        *(("high", "number", True), ("nan", "number", True), ("yes", "true or false", True), (True, "number", False)),
        *(("0.5", "number", False), (float("nan"), "number", False), (1 << 60, "number", False), (1, "text", False)),
        *((1, "true or false", False), ([1], "number", False)),
    ],
)
def test_value_of_another_type_is_refused_and_not_quoted(value: Any, kind: str, from_text: bool) -> None:
    with pytest.raises(ValueError, match=r"no value|a value of type|no double") as caught:
        checked(value, kind, from_text=from_text)
    assert str(value) not in str(caught.value)
