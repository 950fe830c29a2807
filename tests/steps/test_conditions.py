"""Conditions on columns: what they hold for, and what is no condition."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.steps.conditions import checked, read_condition


def holds(text: str, **row: Any) -> bool:
    condition = read_condition(text)
    return condition.holds(
        [checked(row[name], kind) for name, kind in zip(condition.columns, condition.kinds, strict=True)]
    )


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("score >= 0.5", {"score": 0.5}, True),
        ("score > 0.5", {"score": 0.5}, False),
        ("score<1", {"score": 0}, True),
        ("score <= -1e-3", {"score": -1}, True),
        ("language == 'en'", {"language": "en"}, True),
        ('language != "en"', {"language": "en"}, False),
        ('language in ["de", "en"]', {"language": "en"}, True),
        ("language in ['de']", {"language": "en"}, False),
        ("spam == false", {"spam": False}, True),
        ("seen is null", {"seen": None}, True),
        ("seen is not null", {"seen": None}, False),
        ("not score > 1 and score > 0", {"score": 0.5}, True),
        ("score > 1 or score < 0 and score < -1", {"score": 2}, True),
        ("(score > 1 or score < 0) and score < -1", {"score": 2}, False),
        ("not (score > 1)", {"score": 1}, True),
        ("`a b` == 'and'", {"a b": "and"}, True),
        ("a.b == 1", {"a.b": 1.0}, True),
        ("language == 'en' or language is null", {"language": None}, True),
        ("language != 'en' and language is not null", {"language": None}, False),
        ("language != 'en' or not language is not null and score > 1", {"language": None, "score": 1}, False),
    ],
)
def test_condition_holds_as_it_reads(text: str, row: dict[str, Any], expected: bool) -> None:
    assert holds(text, **row) is expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "score", "score >=", ">= 1", "score = 1", "score >= 1 1", "score >= other", "(score > 1", "score > 1)"),
        *("score in []", "score in [1", "score in 1", "score is 1", "and > 1", "score > 1 and", "not", "spam > true"),
        *("score > 1 or score == 'a'", "__import__('os')", "score > 1; x", "score > 1 if x else 2", "f(x) > 1", "'a"),
        *("(" * 60 + "a > 1" + ")" * 60, "not " * 60 + "a > 1", "'a' == a", "true == a", "a == null", "a['b'] > 1"),
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|nothing|levels|compared|order"):
        read_condition(text)


@given(st.text(st.sampled_from("a1 ()<>=!'\"[],.`andornotinisnull"), max_size=30))
def test_any_text_is_a_condition_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert read_condition(text).columns


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))
def test_comparison_is_that_of_python(value: float, limit: float) -> None:
    assert holds(f"x >= {limit!r}", x=value) is (value >= limit)


@pytest.mark.parametrize(
    ("value", "kind", "from_text", "expected"),
    [
        ("0.5", "number", True, 0.5),
        ("7", "number", True, 7),
        ("True", "true or false", True, True),
        ("7", "text", True, "7"),
    ],
)
def test_values_of_csv_are_read_by_what_they_are_compared_with(
    value: Any, kind: str, from_text: bool, expected: Any
) -> None:
    assert checked(value, kind, from_text=from_text) == expected


@pytest.mark.parametrize(
    ("value", "kind", "from_text"),
    [
        *(("high", "number", True), ("", "number", True), ("nan", "number", True), ("yes", "true or false", True)),
        *((None, "number", False), (True, "number", False), ("0.5", "number", False), (float("nan"), "number", False)),
        *((1, "text", False), (1, "true or false", False), ([1], "number", False)),
    ],
)
def test_value_of_another_kind_is_refused_and_not_quoted(value: Any, kind: str, from_text: bool) -> None:
    with pytest.raises(ValueError, match=r"no value|a value of type") as caught:
        checked(value, kind, from_text=from_text)
    assert str(value) not in str(caught.value) or value in ("", None)
