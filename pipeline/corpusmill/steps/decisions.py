"""Decisions made elsewhere: rows of JSON lines, CSV or parquet, each about a document, joined to documents out of core.

    rows --read_decisions--> key, keep or not         --write_sorted--> high low row keep, sorted by key

    high, low   uint64 LE: the XXH3-128 of a decision's key: of an id the id, of a line `file, newline, line`
    row         uint64 LE: number of the file << 40 | row in it, from 1
    keep        uint8

DuckDB tests the conditions and nothing else. Its readers number no row and guess the types of JSON and CSV; its sort
needs more memory for more rows (100 MB did not do for 10^8); its join reads all rows for every shard, and takes
five times the CPU of the search for 10^5 documents among 5 * 10^7 decisions (benchmarks/results/decisions.json).

Invariants: keys ascend, without duplicates. Memory: BUFFERED rows while they are read, and a PARTITIONS-th of all
rows, four times, while they are sorted: 40 MB of 10^8. Joining maps the columns, and reads only the pages that a search
touches.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from corpusmill.documents.compression import (
    ENDINGS,
    SUFFIXES,
    TABLE_ENDINGS,
    compression_of_lines,
    is_parquet,
    is_table,
    open_decompressed,
)
from corpusmill.documents.field_names import get_field
from corpusmill.errors import PermanentError
from corpusmill.kernels.mapping import mapped
from corpusmill.lazy import lazily
from corpusmill.storage import Store, StoredFile, Wanted, fetch, open_location, open_once

with lazily:
    from corpusmill.documents import conditions, reading


if TYPE_CHECKING:
    from corpusmill.documents.conditions import Condition

CSV_ENDINGS = tuple(".csv" + suffix for suffix in SUFFIXES)
DECISION_ENDINGS = (*ENDINGS, *CSV_ENDINGS, *TABLE_ENDINGS)
BUFFERED = 1 << 17
PARTITIONS = 256
RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<u8"), ("keep", "u1")])
ROW_BITS = 40

Row = tuple[int, Sequence[Any]]
"""(number from 1, values of the wanted columns)."""


class DecisionError(PermanentError):
    """A row of a file of decisions cannot be used."""


def _unusable(
    what: str,
    file: str,
    row: int,
    expected: str,
    got: str,
    next_step: str = "fix the file, or name other columns in `key` and `keep`",
) -> DecisionError:
    where = f"{file}, row {row:,}" if row else file
    return DecisionError(what, where=where, expected=expected, got=got, next_step=next_step)


def read_decisions(
    files: Sequence[StoredFile], endpoint_url: str | None, key: Sequence[str], keep: Condition, folder: Path
) -> Iterator[NDArray[Any]]:
    """Every decision as RECORD, in runs. DecisionError for a row without a key, or with a value of the wrong type.

    `key`: the column of an id, or those of a file and of a line in it. Parquet files are fetched into `folder`, one at
    a time.
    """
    with closing(conditions.database()) as opened:
        for number, file in enumerate(files):
            with _opened(file, endpoint_url, [*key, *keep.kinds], folder) as (rows, from_text):
                for run in iter(lambda rows=rows: list(islice(rows, BUFFERED)), []):  # type: ignore[misc]
                    records = np.zeros(len(run), RECORD)
                    keys = [_key(values[: len(key)], file.name, row, from_text=from_text) for row, values in run]
                    records["high"], records["low"] = _hashed(keys).T
                    records["row"] = np.array([row for row, _ in run], np.uint64) | np.uint64(number << ROW_BITS)
                    records["keep"] = _kept(opened, keep, run, len(key), file.name, from_text=from_text)
                    yield records


def read_keys(
    files: Sequence[StoredFile], endpoint_url: str | None, columns: Sequence[str], folder: Path, *, keys: int
) -> Iterator[tuple[int, list[Any]]]:
    """Every row's number and its values of some columns, None where JSON lacks one; the first `keys` are the key.

    Ids are returned as text. DecisionError for a row without a key.
    """
    for file in files:
        with _opened(file, endpoint_url, list(columns), folder) as (rows, from_text):
            for row, values in rows:
                _key(values[:keys], file.name, row, from_text=from_text)
                line = [int(values[1])] if keys > 1 else []
                yield row, [str(values[0]), *line, *values[keys:]]


def _kept(opened: Any, keep: Condition, run: list[Row], place: int, name: str, *, from_text: bool) -> NDArray[np.bool_]:
    """bool (rows,): which documents are kept. The condition's columns begin at `place`.

    DecisionError for a value of another type, and for a row for which the condition is neither true nor false.
    """
    given: dict[str, list[Any]] = {column: [] for column in keep.kinds}
    for number, (column, kind) in enumerate(keep.kinds.items(), place):
        for row, values in run:
            try:
                given[column].append(conditions.checked(values[number], kind, from_text=from_text))
            except ValueError as error:
                raise _unusable(
                    "decisions.not_readable: a decision cannot be read", name, row, f"{column}: a {kind}", str(error)
                ) from None
    kept = keep.tested(opened, given, len(run))
    if kept.null_count:
        first = kept.is_null().index(True).as_py()
        row = run[first][0]
        empty = [column for column in given if given[column][first] is None]
        if not empty:
            expected, got = (
                "values that the functions of `keep` take",
                "another, such as a malformed pattern",
            )
            raise _unusable("decisions.not_readable: a decision cannot be read", name, row, expected, got)
        column = empty[0] if empty[0].isidentifier() else '"' + empty[0].replace('"', '""') + '"'
        raise _unusable(
            "decisions.neither: an empty value leaves a condition neither true nor false",
            name,
            row,
            "true or false",
            ", ".join(f"no value in {column}" for column in empty),
            f"replace it in `keep`, as by coalesce({column}, ...), or test it: is not null",
        )
    return kept.to_numpy(zero_copy_only=False)


def _key(values: Sequence[Any], file: str, row: int, *, from_text: bool) -> bytes:
    """A document's id, or its file and line."""
    whole = [value for value in values if type(value) is int or (isinstance(value, str) and value)]
    if len(values) == 2 and len(whole) == 2 and from_text and str(values[1]).isdecimal():
        whole[1] = int(values[1])
    fits = len(whole) == len(values) and (len(whole) == 1 or (isinstance(whole[0], str) and type(whole[1]) is int))
    if not fits or (len(whole) == 2 and int(whole[1]) < 1):
        got = ", ".join(map(_kind, values)) if not fits else f"line {whole[1]}"
        expected = "an id: a text or an integer"
        if len(values) == 2:
            expected = "a file's name and the number of a line, from 1"
        raise _unusable("decisions.no_key: a decision has no key", file, row, expected, got)
    return key_of(*whole)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "an empty text" if value == "" else type(value).__name__


def _hashed(keys: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(map(xxhash.xxh3_128_digest, keys)), "<u8").reshape(-1, 2)


def key_of(document: str | int, line: str | int | None = None) -> bytes:
    """What is hashed of a document's id, or of its source file and line, from 1."""
    return str(document if line is None else f"{document}\n{line}").encode(errors="surrogatepass")


@contextmanager
def _opened(
    file: StoredFile, endpoint_url: str | None, columns: list[str], folder: Path
) -> Iterator[tuple[Iterator[Row], bool]]:
    """(the rows, whether all values are text) of a file."""
    store, name = open_location(file.location, endpoint_url=endpoint_url)
    wanted = Wanted(name, file.size_bytes, file.identity)
    if is_table(file.name):
        with _opened_table(store, wanted, file.name, folder) as table:
            yield _rows_of_table(table, file.name, columns), False
        return
    is_csv = file.name.lower().endswith(CSV_ENDINGS)
    compression = compression_of_lines(file.name) if is_csv else None
    with open_once(store, wanted) as raw, open_decompressed(raw, file.name, compression) as stream:
        yield (_rows_of_csv if is_csv else _rows_of_json)(stream, file.name, columns), is_csv


@contextmanager
def _opened_table(store: Store, wanted: Wanted, name: str, folder: Path) -> Iterator[BinaryIO]:
    """A table, forwards; parquet, whose footer is at its end, is fetched."""
    if not is_parquet(name):
        with open_once(store, wanted) as raw:
            yield raw
        return
    path = folder / "decisions.parquet"
    fetch(store, wanted, path, folder / "decisions.partial")
    try:
        with path.open("rb") as table:
            yield table
    finally:
        path.unlink()


def _rows_of_json(stream: BinaryIO, name: str, columns: list[str]) -> Iterator[Row]:
    for number, line in enumerate(stream, start=1):
        try:
            row = orjson.loads(line)
            got = "null" if row is None else f"a value of type {type(row).__name__}"
        except orjson.JSONDecodeError:
            row, got = None, "no JSON" if line.strip() else "a blank line"
        if not isinstance(row, dict):
            raise _unusable("decisions.not_readable: a decision cannot be read", name, number, "a JSON object", got)
        yield number, [get_field(row, column) for column in columns]


def _rows_of_csv(stream: BinaryIO, name: str, columns: list[str]) -> Iterator[Row]:
    rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), strict=True)
    number = 0
    try:
        head = next(rows, [])
        places = _places(head, columns, name)
        for number, row in enumerate(rows, start=1):
            if len(row) != len(head):
                got = f"{len(row):,} values"
                raise _unusable(
                    "decisions.not_readable: a decision cannot be read", name, number, f"{len(head):,} values", got
                )
            yield number, [row[place] for place in places]
    except (csv.Error, UnicodeDecodeError) as error:
        got = type(error).__name__
        raise _unusable(
            "decisions.not_readable: a decision cannot be read",
            name,
            number + 1,
            "CSV in UTF-8, its columns' names first",
            got,
        ) from None


def _rows_of_table(stream: BinaryIO, name: str, columns: list[str]) -> Iterator[Row]:
    lacking, rows = reading.read_columns(stream, name, columns)
    _require_found(lacking, name)
    yield from enumerate(rows, start=1)


def _places(head: list[str], columns: list[str], name: str) -> list[int]:
    _require_found([column for column in columns if head.count(column) != 1], name)
    return [head.index(column) for column in columns]


def _require_found(lacking: list[str], name: str) -> None:
    if lacking:
        got = "no column of this name, or several"
        raise _unusable("decisions.column_missing: a file of decisions lacks columns", name, 0, ", ".join(lacking), got)


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
        raise _unusable(
            "decisions.document_twice: one document has two decisions", second, again, "one for each key", got
        )


def place_of_row(row: int, names: Sequence[str]) -> tuple[str, int]:
    """(file, row in it from 1) of a value of the column `row`."""
    return names[row >> ROW_BITS], row & ((1 << ROW_BITS) - 1)


class Sorted:
    """Decisions that write_sorted wrote, mapped."""

    def __init__(self, folder: Path) -> None:
        self.high, self.low, self.row = (mapped(folder / name, "<u8") for name in ("high", "low", "row"))
        self.keep = mapped(folder / "keep", "u1")

    def __len__(self) -> int:
        return len(self.high)

    def find(self, keys: Iterable[bytes]) -> NDArray[np.int64]:
        """int64: the index of each key's decision; -1 without one."""
        rest = iter(keys)
        places = [self.places(_hashed(run)) for run in iter(lambda: list(islice(rest, BUFFERED)), [])]
        return np.concatenate(places) if places else np.empty(0, np.int64)

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
