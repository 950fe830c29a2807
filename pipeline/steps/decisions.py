"""Decisions made elsewhere: rows of JSON lines, CSV or parquet, each about a document, joined to documents out of core.

    rows --read_decisions--> key, keep or not         --write_sorted--> high low row keep, sorted by key

    high, low   uint64 LE: the XXH3-128 of a decision's key: of an id the id, of a line `file, newline, line`
    row         uint64 LE: number of the file << 40 | row in it, from 1
    keep        uint8

Invariants: keys ascend, without duplicates. Memory: BUFFERED rows while they are read, and a PARTITIONS-th of all
rows, four times, while they are sorted: 40 MB of 10^8. Joining maps the columns, and reads only the pages that a search
touches.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from corpusmill.documents.compression import ENDINGS, open_decompressed
from corpusmill.errors import PermanentError
from corpusmill.steps.conditions import NULL, Condition, checked
from corpusmill.storage import StoredFile, Wanted, fetch, open_location, open_once

CSV_ENDINGS = tuple(ending.replace(".jsonl", ".csv") for ending in ENDINGS)
DECISION_ENDINGS = (*ENDINGS, *CSV_ENDINGS, ".parquet")
BUFFERED = 1 << 18
PARTITIONS = 256
RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<u8"), ("keep", "u1")])
ROW_BITS = 40
MISSING = object()

Row = tuple[int, Sequence[Any]]
"""(number from 1, values of the wanted columns)."""


class DecisionError(PermanentError):
    """A row of a file of decisions cannot be used: `file`, `row`."""

    file = ""
    row = 0


def _unusable(what: str, file: str, row: int, expected: str, got: str) -> DecisionError:
    error = DecisionError(
        what,
        where=f"{file}, row {row:,}" if row else file,
        expected=expected,
        got=got,
        next_step="fix the file, or name other columns in `key` and `keep`",
    )
    error.file, error.row = file, row
    return error


@dataclass(frozen=True)
class Decided:
    """The column or columns of the key (an id; a file and a line), and the condition under which a document is kept."""

    key: tuple[str, ...]
    keep: Condition


def read_decisions(
    files: Sequence[StoredFile], endpoint_url: str | None, decided: Decided, folder: Path
) -> Iterator[NDArray[Any]]:
    """Every decision as RECORD, in runs. DecisionError for a row without a key, or with a value of the wrong type.

    Parquet files are fetched into `folder`, one at a time.
    """
    for number, file in enumerate(files):
        with _opened(file, endpoint_url, [*decided.key, *decided.keep.columns], folder) as (rows, from_text):
            for run in iter(lambda rows=rows: list(islice(rows, BUFFERED)), []):  # type: ignore[misc]
                yield _records(run, number, file.name, decided, from_text=from_text)


def read_keys(
    files: Sequence[StoredFile], endpoint_url: str | None, columns: Sequence[str], folder: Path, *, keys: int
) -> Iterator[tuple[int, list[Any]]]:
    """Every row's number and its values of some columns, MISSING where JSON lacks one; the first `keys` are the key.

    Ids are returned as text. DecisionError for a row without a key.
    """
    for file in files:
        with _opened(file, endpoint_url, list(columns), folder) as (rows, from_text):
            for row, values in rows:
                _key(values[:keys], file.name, row, from_text=from_text)
                line = [int(values[1])] if keys > 1 else []
                yield row, [str(values[0]), *line, *values[keys:]]


def _records(run: list[Row], number: int, name: str, decided: Decided, *, from_text: bool) -> NDArray[Any]:
    keys, keep = len(decided.key), decided.keep
    records = np.zeros(len(run), RECORD)
    digests, kept = [], []
    for row, values in run:
        digests.append(xxhash.xxh3_128_digest(_key(values[:keys], name, row, from_text=from_text)))
        given = []
        for column, kind, value in zip(keep.columns, keep.kinds, values[keys:], strict=True):
            if value is MISSING and not kind.endswith(NULL):
                raise _unusable("a decision lacks a column", name, row, column, "a row without it")
            try:
                given.append(checked(None if value is MISSING else value, kind, from_text=from_text))
            except ValueError as error:
                raise _unusable("a decision cannot be read", name, row, f"{column}: a {kind}", str(error)) from None
        kept.append(keep.holds(given))
    pairs = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
    records["high"], records["low"], records["keep"] = pairs[:, 0], pairs[:, 1], kept
    records["row"] = np.array([row for row, _ in run], np.uint64) | np.uint64(number << ROW_BITS)
    return records


def _key(values: Sequence[Any], file: str, row: int, *, from_text: bool) -> bytes:
    """A document's id, or its file and line."""
    whole = [value for value in values if type(value) is int or (isinstance(value, str) and value)]
    if len(values) == 2 and len(whole) == 2 and from_text and str(values[1]).isdecimal():
        whole[1] = int(values[1])
    fits = len(whole) == len(values) and (len(whole) == 1 or (isinstance(whole[0], str) and type(whole[1]) is int))
    if not fits:
        got = ", ".join("no value" if value in (MISSING, None, "") else type(value).__name__ for value in values)
        expected = "an id: a text or an integer" if len(values) == 1 else "a file's name and the number of a line"
        raise _unusable("a decision has no key", file, row, expected, got)
    return key_of((str(whole[0]), *map(int, whole[1:])))


def key_of(key: Sequence[str | int]) -> bytes:
    """What is hashed of an id, or of a file and a line."""
    return key_of_id(str(key[0])) if len(key) == 1 else key_of_line(str(key[0]), int(key[1]))


def key_of_id(identity: str) -> bytes:
    """What is hashed of a document's id."""
    return identity.encode(errors="surrogatepass")


def key_of_line(file: str, line: int) -> bytes:
    """What is hashed of a document's source file and line, from 1."""
    return f"{file}\n{line}".encode(errors="surrogatepass")


@contextmanager
def _opened(
    file: StoredFile, endpoint_url: str | None, columns: list[str], folder: Path
) -> Iterator[tuple[Iterator[Row], bool]]:
    """(the rows, whether all values are text) of a file."""
    store, name = open_location(file.location, endpoint_url=endpoint_url)
    wanted = Wanted(name, file.size_bytes, file.identity)
    if file.name.endswith(".parquet"):
        path = folder / "decisions.parquet"
        fetch(store, wanted, path, folder / "decisions.partial")
        try:
            with path.open("rb") as table:
                yield _rows_of_table(table, file.name, columns), False
        finally:
            path.unlink()
        return
    is_csv = file.name.endswith(CSV_ENDINGS)
    as_lines = file.name[::-1].replace("vsc.", "lnosj.", 1)[::-1] if is_csv else file.name
    with open_once(store, wanted) as raw, open_decompressed(raw, as_lines) as stream:
        yield (_rows_of_csv if is_csv else _rows_of_json)(stream, file.name, columns), is_csv


def _rows_of_json(stream: BinaryIO, name: str, columns: list[str]) -> Iterator[Row]:
    for number, line in enumerate(stream, start=1):
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = None
        if not isinstance(row, dict):
            raise _unusable("a decision cannot be read", name, number, "a JSON object", "something else")
        yield number, [row.get(column, MISSING) for column in columns]


def _rows_of_csv(stream: BinaryIO, name: str, columns: list[str]) -> Iterator[Row]:
    rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), strict=True)
    number = 0
    try:
        head = next(rows, [])
        places = _places(head, columns, name)
        for number, row in enumerate(rows, start=1):
            if len(row) != len(head):
                got = f"{len(row):,} values"
                raise _unusable("a decision cannot be read", name, number, f"{len(head):,} values", got)
            yield number, [row[place] for place in places]
    except (csv.Error, UnicodeDecodeError) as error:
        got = type(error).__name__
        raise _unusable(
            "a decision cannot be read", name, number + 1, "CSV in UTF-8, its columns' names first", got
        ) from None


def _rows_of_table(stream: BinaryIO, name: str, columns: list[str]) -> Iterator[Row]:
    from corpusmill.documents.parquet import open_parquet

    table = open_parquet(stream, name)
    _places(table.schema_arrow.names, columns, name)
    number = 0
    for batch in table.iter_batches(1 << 14, columns=list(dict.fromkeys(columns)), use_threads=False):
        values = [batch.column(column).to_pylist() for column in columns]
        for row in zip(*values, strict=True):
            number += 1
            yield number, row


def _places(head: list[str], columns: list[str], name: str) -> list[int]:
    lacking = [column for column in columns if head.count(column) != 1]
    if lacking:
        got = f"{len(head):,} columns, none or several of which have this name"
        raise _unusable("a file of decisions lacks a column", name, 0, ", ".join(lacking), got)
    return [head.index(column) for column in columns]


def write_sorted(
    runs: Iterable[NDArray[Any]], folder: Path, names: Sequence[str], *, once: bool = True
) -> dict[str, int]:
    """Write the sorted columns into `folder`; returns counts. DecisionError for a duplicate key.

    Without `once`, the first row of a duplicate key counts instead, and the others are ignored.
    """
    parts = folder / "parts"
    parts.mkdir()
    counts = {"decisions": 0, "decisions_keep": 0}
    for records in runs:
        _scatter(records, parts)
    columns = {name: (folder / name).open("wb") for name in RECORD.names or ()}
    try:
        for part in range(PARTITIONS):
            path = parts / f"{part:03d}"
            if not path.exists():
                continue
            records = np.fromfile(path, RECORD)
            records = records[np.lexsort((records["row"], records["low"], records["high"]))]
            same = _same_key_as_before(records)
            if once:
                _require_none(same, records, names)
            records = records[~same]
            counts["decisions"] += len(records)
            counts["decisions_keep"] += int(records["keep"].sum())
            for name, file in columns.items():
                file.write(np.ascontiguousarray(records[name]).tobytes())
            path.unlink()
    finally:
        for file in columns.values():
            file.close()
    parts.rmdir()
    return counts


def _scatter(records: NDArray[Any], parts: Path) -> None:
    of = (records["high"] >> np.uint64(56)).astype(np.int64)
    order = np.argsort(of, kind="stable")
    ends = np.cumsum(np.bincount(of, minlength=PARTITIONS))
    for part, (begin, end) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
        if begin < end:
            with (parts / f"{part:03d}").open("ab") as file:
                file.write(records[order[begin:end]].tobytes())


def _same_key_as_before(records: NDArray[Any]) -> NDArray[np.bool_]:
    same = (records["high"][1:] == records["high"][:-1]) & (records["low"][1:] == records["low"][:-1])
    return np.concatenate([np.zeros(1, np.bool_), same])


def _require_none(same: NDArray[np.bool_], records: NDArray[Any], names: Sequence[str]) -> None:
    if same.any():
        place = int(np.argmax(same)) - 1
        (first, at), (second, again) = (place_of_row(int(row), names) for row in records["row"][place : place + 2])
        got = f"a decision about it in {first}, row {at:,}, too"
        raise _unusable("two decisions are about the same document", second, again, "one for each key", got)


def place_of_row(row: int, names: Sequence[str]) -> tuple[str, int]:
    """(file, row in it from 1) of a value of the column `row`."""
    return names[row >> ROW_BITS], row & ((1 << ROW_BITS) - 1)


class Sorted:
    """Decisions that write_sorted wrote, mapped."""

    def __init__(self, folder: Path) -> None:
        self.high, self.low, self.row = (_mapped(folder / name, "<u8") for name in ("high", "low", "row"))
        self.keep = _mapped(folder / "keep", "u1")

    def __len__(self) -> int:
        return len(self.high)

    def find(self, keys: Iterable[bytes]) -> NDArray[np.int64]:
        """int64: the index of each key's decision; -1 without one."""
        rest = iter(keys)
        places = [self._find(run) for run in iter(lambda: list(islice(rest, BUFFERED)), [])]
        return np.concatenate(places) if places else np.empty(0, np.int64)

    def _find(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        return self.places(np.frombuffer(b"".join(map(xxhash.xxh3_128_digest, keys)), "<u8").reshape(-1, 2))

    def places(self, pairs: NDArray[np.uint64]) -> NDArray[np.int64]:
        """int64 (n,): the same for keys that were hashed, uint64 (n, 2): high and low."""
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))  # sorted, so that searches touch the file in order
        high, low = pairs[order, 0], pairs[order, 1]
        places = np.searchsorted(self.high, high).astype(np.int64)
        while True:
            here = np.flatnonzero(places < len(self))
            before = here[(self.high[places[here]] == high[here]) & (self.low[places[here]] < low[here])]
            if not len(before):
                break
            places[before] += 1
        same = here[(self.high[places[here]] == high[here]) & (self.low[places[here]] == low[here])]
        rows = np.full(len(pairs), -1, np.int64)
        rows[order[same]] = places[same]
        return rows


def _mapped(path: Path, dtype: str) -> NDArray[Any]:
    return np.memmap(path, dtype, "r").view(np.ndarray) if path.stat().st_size else np.empty(0, dtype)
