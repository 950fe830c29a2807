"""Conditions on a row's columns in DuckDB's SQL: `score >= 0.5 and (language = 'en' or language is null)`.

DuckDB parses a condition and computes it. In between, a walk through the parsed tree admits only what depends on the
row alone, and finds the type of each column by what it is compared with: DuckDB would convert silently, and compare the
text '0.45' with 0.5 as 0.5. Numbers are doubles. Dots in a column's name reach into objects (field_names.py).

A row is of a list (steps/decisions.py), or a document with the fields that a text shard has of it. A condition is
neither true nor false where a column is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from corpusmill.documents.text_shard import DocumentStrings

NUMBER, TEXT, TRUTH = "number", "text", "true or false"
ANY, SAME = "", "of the same type"
LITERALS = {"INTEGER": NUMBER, "NUMERIC": NUMBER, "STRING": TEXT, "BOOLEAN": TRUTH}
ARROW = {NUMBER: pa.float64(), TEXT: pa.string(), TRUTH: pa.bool_(), ANY: pa.bool_()}
PYTHON: dict[type, str] = {float: NUMBER, int: NUMBER, str: TEXT, bool: TRUTH}
EXACT = 1 << 53  # doubles hold every integer up to here

SIGNS = "EQUAL NOTEQUAL LESSTHAN LESSTHANOREQUALTO GREATERTHAN GREATERTHANOREQUALTO BETWEEN IN"
RULES: dict[str, tuple[str, str]] = {  # the type of an expression's operands, and its own
    **dict.fromkeys(("CONJUNCTION_AND", "CONJUNCTION_OR", "OPERATOR_NOT"), (TRUTH, TRUTH)),
    **dict.fromkeys(("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"), (ANY, TRUTH)),
    **dict.fromkeys((f"COMPARE_{sign}" for sign in SIGNS.split()), (SAME, TRUTH)),
    **dict.fromkeys(("OPERATOR_COALESCE", "list_value"), (SAME, SAME)),  # the second is [...]
    # Functions, none of which may differ between machines, as exp does. `x in [...]` calls contains, too.
    **dict.fromkeys(("+", "-", "*", "/", "abs", "ceil", "floor", "round", "greatest", "least"), (NUMBER, NUMBER)),
    **dict.fromkeys(("lower", "upper", "trim", "||"), (TEXT, TEXT)),
    **dict.fromkeys(("~~", "!~~", "~~*", "!~~*", "starts_with", "ends_with"), (TEXT, TRUTH)),
    **dict.fromkeys(("regexp_matches", "regexp_full_match"), (TEXT, TRUTH)),
    **{"contains": (SAME, TRUTH), "length": (TEXT, NUMBER), "domain": (TEXT, TEXT)},
}
FUNCTIONS = ", ".join(sorted(name for name in RULES if name.islower() and name != "list_value"))

DOMAIN = r"""CREATE MACRO domain(url) AS nullif(regexp_replace(lower(regexp_extract(
    url, '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^/?#:]*)', 1)), '^www\.|\.$', '', 'g'), '')"""
"""The host of a URL in lower case, without `www.`; null if there is none."""

BATCH_DOCUMENTS = 1 << 14

Node = dict[str, Any]


def database() -> duckdb.DuckDBPyConnection:
    """An empty database in memory that reads and writes no file, loads no extension and keeps these settings."""
    opened = duckdb.connect(
        config={
            "enable_external_access": False,
            "autoload_known_extensions": False,
            "lock_configuration": True,
            "max_expression_depth": 100,
            "memory_limit": "1GB",
            "temp_directory": "",
            "threads": 1,
        }
    )
    opened.execute(DOMAIN)
    return opened


@dataclass(frozen=True)
class Condition:
    """A parsed condition: a query of a table `rows`, and the type of each of its columns, ANY if it is only tested for
    null.
    """

    query: str
    kinds: Mapping[str, str]

    def tested(
        self, opened: duckdb.DuckDBPyConnection, columns: Mapping[str, Sequence[Any]], rows: int
    ) -> pa.Array[Any]:
        """Bools (rows,), null where the condition is neither true nor false. `columns`: values that are `checked`."""
        arrays = {name: pa.array(columns[name], ARROW[kind]) for name, kind in self.kinds.items()}
        opened.register("rows", pa.table(arrays or {"none": pa.nulls(rows)}))
        tested: pa.Array[Any] = opened.sql(self.query).to_arrow_table().column(0).combine_chunks()
        return tested


def read_condition(text: str) -> Condition:
    """Parse a condition. ValueError for what is not one, or depends on more than a row."""
    kinds: dict[str, str] = {}
    with closing(database()) as opened:
        try:
            _parsed(opened, f"SELECT {text}")  # refuses `a) and (b`
            frame, parsed = (_parsed(opened, f"SELECT TRY(({condition}\n))") for condition in ("true", text))
            tested = parsed["statements"][0]["node"]["select_list"]
            frame["statements"][0]["node"]["select_list"] = tested
            if parsed != frame:
                raise ValueError("expected one condition, got other SQL")
            _kind(tested[0]["children"][0], kinds, TRUTH)
            query = opened.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(parsed)]).fetchall()[0][0]
            condition = Condition(f"{query} FROM rows", kinds)
            strict = replace(condition, query=condition.query.replace("TRY", "", 1))  # TRY hides malformed patterns
            if strict.tested(opened, dict.fromkeys(kinds, ()), 0).type != pa.bool_():
                raise ValueError("expected a condition, got a list")
        except duckdb.Error as error:
            raise ValueError(str(error).splitlines()[0]) from None
    if len({name.lower() for name in kinds}) < len(kinds):
        raise ValueError("the names of two columns differ in case alone, which SQL ignores")
    return condition


def _parsed(opened: duckdb.DuckDBPyConnection, query: str) -> Node:
    if "\0" in query:
        raise ValueError("unexpected null character")
    parsed: Node = json.loads(opened.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0][0])
    if parsed["error"]:
        raise ValueError(parsed["error_message"])
    return parsed


def _kind(node: Node, kinds: dict[str, str], wanted: str = ANY) -> str:
    """The type of an expression; notes those of its columns in `kinds`, and makes its numbers doubles.

    ValueError if it is not `wanted`, or if a condition may not use it.
    """
    if node["class"] == "COLUMN_REF":
        what = ".".join(node["column_names"])
        node["column_names"] = [what]
        own_kind = kinds[what] = kinds.get(what) or wanted
    elif node["class"] == "CONSTANT":
        what, own_kind = "a value", _literal(node["literal"])
    else:
        what = node.get("function_name") or node["type"]
        if what not in RULES or node.get("schema"):
            what = what.lower().replace("_", " ")
            raise ValueError(
                f"unexpected {what}: a condition may use columns, values, operators, coalesce, {FUNCTIONS}"
            )
        of_operands, own_kind = RULES[what]
        operands = [node[side] for side in ("left", "right", "input", "lower", "upper") if side in node]
        operands += node.get("children") or [argument["expression"] for argument in node.get("arguments", ())]
        if of_operands == SAME:
            of_operands = _of_others(operands, kinds)
            operands = [operand for operand in operands if operand["class"] == "COLUMN_REF"]
        for operand in operands:
            _kind(operand, kinds, of_operands)
        own_kind = of_operands if own_kind == SAME else own_kind
    if wanted and own_kind != wanted:
        raise ValueError(f"{what}: expected a {wanted}, got a {own_kind}")
    return own_kind


def _of_others(operands: list[Node], kinds: dict[str, str]) -> str:
    """The type of the operands that are no columns."""
    kinds_of_others = sorted({_kind(operand, kinds) for operand in operands if operand["class"] != "COLUMN_REF"})
    if len(kinds_of_others) != 1:
        got = (
            "a " + " and a ".join(kinds_of_others)
            if kinds_of_others
            else "columns alone: a text has single quotes, such as 'en'"
        )
        raise ValueError(f"expected a column and values of one type, got {got}")
    return kinds_of_others[0]


def _literal(literal: Node) -> str:
    kind = LITERALS.get(literal["kind"], ANY)
    if kind == ANY:
        raise ValueError("expected a number, a text, true or false; of null, say `is null`")
    if kind == NUMBER:
        value = float(literal["text"])
        if math.isinf(value) or (literal["kind"] == "INTEGER" and abs(int(literal["text"])) > EXACT):
            raise ValueError("a number is too large to be exact")
        literal |= {"kind": "NUMERIC", "text": f"{value:.17e}"}
    return kind


def of_documents(condition: Condition, fields: DocumentStrings | None, documents: int) -> NDArray[np.int8]:
    """int8 (documents,): what a condition is of each document of a text shard: 1 true, 0 false, -1 neither, as where a
    document lacks a field, or has one of another type.
    """
    outcomes = np.empty(documents, np.int8)
    with closing(database()) as opened:
        for first in range(0, documents, BATCH_DOCUMENTS):
            ordinals = range(first, min(documents, first + BATCH_DOCUMENTS))
            rows = [orjson.loads(fields[ordinal]) if fields else {} for ordinal in ordinals]
            columns = {name: [_usable(row.get(name), kind) for row in rows] for name, kind in condition.kinds.items()}
            tested = condition.tested(opened, columns, len(rows))
            outcomes[ordinals.start : ordinals.stop] = tested.cast(pa.int8()).fill_null(-1).to_numpy()
    return outcomes


def _usable(value: Any, kind: str) -> Any:
    try:
        return checked(value, kind)
    except ValueError:
        return None


def checked(value: Any, kind: str, *, from_text: bool = False) -> Any:
    """A column's value, if it is of type `kind` or null; `from_text`: the value is CSV text, null if empty.

    ValueError does not quote it.
    """
    if from_text:
        value = _from_text(value, kind)
    if value is None or kind == ANY:
        return None if value is None else True
    if PYTHON.get(type(value)) != kind:
        raise ValueError(f"a value of type {type(value).__name__}")
    if kind == NUMBER and (math.isnan(value) or (type(value) is int and abs(value) > EXACT)):
        raise ValueError("no value" if math.isnan(value) else "an integer that no double holds")
    return value


def _from_text(text: str, kind: str) -> Any:
    if kind == TRUTH:
        return {"": None, "true": True, "false": False}.get(text.lower(), text)
    for read in (int, float) if kind == NUMBER else ():
        try:
            return read(text)
        except ValueError:
            continue
    return text or None
