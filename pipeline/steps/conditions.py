"""Conditions on columns, as written in configurations: `score >= 0.5 and (language == "en" or language is null)`.

condition   all ("or" all)*                 all   one ("and" one)*
one         "not" one | "(" condition ")" | column compared
compared    (">=" | ">" | "<=" | "<" | "==" | "!=") value | "in" "[" value, ... "]" | "is" ["not"] "null"
column      letters, digits, _ and . ; anything in backquotes
value       a number, "text" or 'text', true, false
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

TOKEN = re.compile(
    r"""\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<text>"[^"]*"|'[^']*')|(?P<quoted>`[^`]+`)"""
    r"""|(?P<name>[A-Za-z_][\w.]*)|(?P<sign>>=|<=|==|!=|[><()\[\],]))"""
)
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
WORDS = {"and", "or", "not", "in", "is", "null", "true", "false"}
KINDS: dict[type, str] = {float: "number", int: "number", str: "text", bool: "true or false"}

NULL = " or null"

Test = Callable[[Sequence[Any]], bool]


@dataclass(frozen=True)
class Condition:
    """A parsed condition. `kinds`: for each column, in order, the type of its values, "" for any, and NULL behind it if
    the column is tested for null.

    `holds(values)` of one row, a value for each column (see `checked`). No comparison holds for null.
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    holds: Test


def read_condition(text: str) -> Condition:
    """Parse a condition. ValueError, with the position, for malformed text."""
    return _Reader(text).whole()


def checked(value: Any, kind: str, *, from_text: bool = False) -> Any:
    """A column's value, if it is of type `kind`; `from_text`: the value is CSV text, null if empty. ValueError does not
    quote it.
    """
    of = kind.removesuffix(NULL)
    if from_text:
        value = _from_text(value, of)
    if not of or (value is None and kind != of):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise ValueError("no value")
    if KINDS.get(type(value)) != of:
        raise ValueError(f"a value of type {type(value).__name__}")
    return value


def _from_text(text: str, kind: str) -> Any:
    if text == "":
        return None
    if kind == "true or false":
        return {"true": True, "false": False}.get(text.lower(), text)
    for read in (int, float) if kind == "number" else ():
        try:
            return read(text)
        except ValueError:
            continue
    return text


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = list(self._tokens(text))
        self.at = 0
        self.kinds: dict[str, str] = {}
        self.nullable: set[str] = set()

    def _tokens(self, text: str) -> Iterator[tuple[str, str]]:
        at = 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"unexpected text at character {at + 1}")
            at = match.end()
            yield str(match.lastgroup), match[str(match.lastgroup)]
        yield "end", ""

    def whole(self) -> Condition:
        test = self.either()
        self.take("", kind="end")
        kinds = (kind + NULL * (column in self.nullable) for column, kind in self.kinds.items())
        return Condition(tuple(self.kinds), tuple(kinds), test)

    def next(self, *words: str) -> bool:
        return self.tokens[self.at][1] in words and self.tokens[self.at][0] in {"name", "sign"}

    def take(self, word: str = "", kind: str = "") -> str:
        of, token = self.tokens[self.at]
        if (word and token != word) or (kind and of != kind):
            raise ValueError(f"expected {word or kind}, got {token or 'the end'}")
        self.at += 1
        return token

    def either(self, depth: int = 0) -> Test:
        if depth > 50:
            raise ValueError("more than 50 levels of brackets and not")
        tests = [self.all(depth)]
        while self.next("or"):
            self.take()
            tests.append(self.all(depth))
        return tests[0] if len(tests) == 1 else lambda values: any(test(values) for test in tests)

    def all(self, depth: int) -> Test:
        tests = [self.operand(depth)]
        while self.next("and"):
            self.take()
            tests.append(self.operand(depth))
        return tests[0] if len(tests) == 1 else lambda values: all(test(values) for test in tests)

    def operand(self, depth: int) -> Test:
        if depth > 50:
            raise ValueError("more than 50 levels of brackets and not")
        if self.next("not"):
            self.take()
            test = self.operand(depth + 1)
            return lambda values: not test(values)
        if self.next("("):
            self.take()
            test = self.either(depth + 1)
            self.take(")")
            return test
        return self.compared()

    def compared(self) -> Test:
        kind, token = self.tokens[self.at]
        if kind not in {"name", "quoted"} or token in WORDS:
            raise ValueError(f"expected a column, got {token or 'the end'}")
        self.at += 1
        column = token.strip("`")
        self.kinds.setdefault(column, "")
        place = list(self.kinds).index(column)
        if self.next("is"):
            self.take()
            wanted = not self.next("not")
            if not wanted:
                self.take()
            self.take("null")
            self.nullable.add(column)
            return lambda values: (values[place] is None) == wanted
        if self.next("in"):
            self.take()
            listed = self.listed(column)
            return lambda values: values[place] in listed
        sign = self.take(kind="sign")
        if sign not in COMPARISONS:
            raise ValueError(f"expected a comparison after {column}, got {sign}")
        compare, value = COMPARISONS[sign], self.value(column)
        if isinstance(value, bool) and sign not in {"==", "!="}:
            raise ValueError(f"{value} has no order: compare {column} by == or !=")
        return lambda values: values[place] is not None and compare(values[place], value)

    def listed(self, column: str) -> list[Any]:
        self.take("[")
        values = [self.value(column)]
        while self.next(","):
            self.take()
            values.append(self.value(column))
        self.take("]")
        return values

    def value(self, column: str) -> Any:
        kind, token = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            value: Any = int(token) if re.fullmatch(r"[-+]?\d+", token) else float(token)
        elif kind == "text":
            value = token[1:-1]
        elif kind == "name" and token in {"true", "false"}:
            value = token[0] == "t"
        else:
            raise ValueError(f"expected a number, a text, true or false, got {token or 'the end'}")
        of = KINDS[type(value)]
        if self.kinds[column] not in {"", of}:
            raise ValueError(f"{column} is compared with a {of} and with a {self.kinds[column]}")
        self.kinds[column] = of
        return value
