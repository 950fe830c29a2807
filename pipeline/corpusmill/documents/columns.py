"""Columns of tables as documents: a row takes the place of a line (pyarrow).

Text is string, large_string, string_view, binary, large_binary, binary_view, or a dictionary of any of these. An id may
be of any type: text is kept as it is, other values become JSON. A name with dots reaches into structs, and a column
whose own name has the dots wins (field_names.py). A row whose text is null or not UTF-8 is rejected, like a malformed
line.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.documents.batch import LONGEST_FIELDS_BYTES, DocumentBatch, Rejection, RejectionReason, batch_of
from corpusmill.documents.field_names import splits
from corpusmill.errors import SourceError

ROWS, BATCH_BYTES = 4096, 16 << 20  # limits of a batch: rows, and bytes of text after which it ends

DECODED_ROWS = 32
"""Rows that are decoded at once. Of 3 KB of text each: as fast as 4,096; 4 would take three times as long."""

LARGEST_EMPTY_VALUES = 1 << 24  # values that take no bytes of their own, such as nulls and runs

_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_LISTS = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)
_SHARING = (
    pa.types.is_dictionary,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_run_end_encoded,
    pa.types.is_union,
    pa.types.is_null,
)


@lru_cache
def is_text(kind: Any) -> bool:
    """Whether a column of this type can hold texts."""
    return any(of_kind(value_type(kind)) for of_kind in (*_STRINGS, *_BYTES))


def value_type(kind: Any) -> Any:
    """The type of a column's values: that of a dictionary's."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def place_of(schema: pa.Schema, name: str) -> tuple[str, ...]:
    """The keys of a field, from its column through structs; () if there is none of that name, or several."""
    fields = list(schema)
    return _place([(field.name, field.type) for field in fields], name)


def _place(fields: list[tuple[str, Any]], name: str) -> tuple[str, ...]:
    kinds = [kind for key, kind in fields if key == name]
    if kinds:
        return (name,) if len(kinds) == 1 else ()
    for head, rest in splits(name):
        structs = [kind for key, kind in fields if key == head]
        if len(structs) == 1 and pa.types.is_struct(structs[0]):
            inner = [structs[0].field(number) for number in range(structs[0].num_fields)]
            if place := _place([(field.name, field.type) for field in inner], rest):
                return (head, *place)
    return ()


def type_at(schema: pa.Schema, place: tuple[str, ...]) -> Any:
    """The type of a field."""
    kind = schema.field(place[0]).type
    for key in place[1:]:
        kind = kind.field(key).type
    return kind


def text_place(schema: pa.Schema, name: str, text_field: str, *, lists: bool = False) -> tuple[str, ...]:
    """Where the text is. SourceError, which lists the columns, if it is missing or of another type.

    `lists`: a list of texts is one, too.
    """
    place = place_of(schema, text_field)
    kind = type_at(schema, place) if place else None
    if lists and kind is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        kind = kind.value_type
    if kind is None or not is_text(kind):
        raise SourceError(
            "parquet.no_text_column: a table has no text column of this name",
            where=name,
            expected=f"a column {text_field} (source.text_field) of string, binary or a dictionary of these",
            got=", ".join(f"{field.name} {field.type}" for field in schema),
            next_step="set source.text_field to the column that holds the text",
        )
    return place


def require_valid(column: Any) -> None:
    """ArrowInvalid if offsets or indices point outside their buffers. Texts may be invalid UTF-8, row by row, and times
    may lie outside a day.
    """
    kind = _unchecked(column.type)
    (column if kind == column.type else column.view(kind)).validate(full=True)


@lru_cache
def _unchecked(kind: Any) -> Any:
    """A type of the same layout that has bytes in place of strings, and integers in place of dates and times."""
    made = kind
    if isinstance(kind, pa.BaseExtensionType):
        made = _unchecked(kind.storage_type)
    elif any(of_kind(kind) for of_kind in _STRINGS):
        made = _bytes_of(kind) if not pa.types.is_string_view(kind) else pa.binary_view()
    elif pa.types.is_date64(kind) or pa.types.is_time(kind):
        made = pa.int32() if kind.bit_width == 32 else pa.int64()
    elif pa.types.is_dictionary(kind):
        made = pa.dictionary(kind.index_type, _unchecked(kind.value_type), ordered=kind.ordered)
    elif pa.types.is_struct(kind):
        made = pa.struct([_unchecked_field(kind.field(number)) for number in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        made = pa.map_(_unchecked_field(kind.key_field), _unchecked_field(kind.item_field))
    elif pa.types.is_fixed_size_list(kind):
        made = pa.list_(_unchecked_field(kind.value_field), kind.list_size)
    for is_list, list_of in _LISTS:
        if is_list(kind):
            made = list_of(_unchecked_field(kind.value_field))
    return made


def _unchecked_field(field: Any) -> Any:
    return field.with_type(_unchecked(field.type))


def decoded_bytes(batch: Any) -> int:
    """How many bytes the values of a record batch are once none share any, as in dictionaries, views and runs.

    ValueError for values without end that take no bytes.
    """
    _backed(batch)
    total = 0
    for column in batch.columns:
        total += int(_value_bytes(column).sum()) if _shares(column.type) else column.nbytes
    return max(total, int(batch.num_rows))


@lru_cache
def _shares(kind: Any) -> bool:
    """Whether values of this type may share bytes, or take none."""
    if isinstance(kind, pa.BaseExtensionType):
        return _shares(kind.storage_type)
    own = any(of_kind(kind) for of_kind in _SHARING) or (pa.types.is_struct(kind) and not kind.num_fields)
    return own or any(_shares(kind.field(number).type) for number in range(kind.num_fields))


def _value_bytes(column: Any) -> Any:
    """int64 (values,): the bytes of each value of a column."""
    kind, count = column.type, len(column)
    if isinstance(kind, pa.BaseExtensionType):
        return _value_bytes(column.storage)
    if is_text(kind) or pa.types.is_dictionary(kind):
        return _text_bytes(column)
    if pa.types.is_run_end_encoded(kind):
        runs = np.diff(column.run_ends.to_numpy().astype(np.int64), prepend=0)
        return np.repeat(_value_bytes(_backed(column.values)), runs)
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        inner = [_value_bytes(_backed(column.field(number), count)) for number in range(kind.num_fields)]
        largest = max((int(sizes.max()) for sizes in inner if len(sizes)), default=0)  # of a union: at most
        return np.sum(inner, axis=0) if pa.types.is_struct(kind) and inner else np.full(count, largest)
    if kind.num_fields:  # lists and maps
        ends = np.concatenate(([0], np.cumsum(_value_bytes(_backed(column.values)))))
        first, last = _list_bounds(column)
        return ends[last] - ends[first]
    return np.full(count, column.nbytes // max(1, count))


def _text_bytes(column: Any) -> Any:
    """`_value_bytes` of texts, or of values in a dictionary."""
    kind, count = column.type, len(column)
    if pa.types.is_dictionary(kind):
        known = np.append(_value_bytes(_backed(column.dictionary)), 0)  # the last is that of null
        return known[column.indices.cast(pa.int64()).fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
    if not count:
        return np.zeros(0, np.int64)
    if _is_view(kind):
        views = np.frombuffer(column.buffers()[1], np.int32)[4 * column.offset : 4 * (column.offset + count) : 4]
        return np.where(column.is_valid().to_numpy(zero_copy_only=False), views, 0).astype(np.int64)
    return pc.binary_length(column.view(_unchecked(kind))).fill_null(0).to_numpy().astype(np.int64)


def _list_bounds(column: Any) -> tuple[Any, Any]:
    """(first, one past the last) of each list's values."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        first = (np.arange(len(column)) + column.offset) * kind.list_size
        return first, first + kind.list_size
    offsets = column.offsets.to_numpy().astype(np.int64)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return offsets, offsets + column.sizes.to_numpy()
    return offsets[:-1], offsets[1:]


def _backed(values: Any, known: int = LARGEST_EMPTY_VALUES) -> Any:
    """A column or a record batch as it is. ValueError if it states more values than its bytes can hold.

    `known`: so many values are borne out by others.
    """
    count = len(values) if isinstance(values, pa.Array) else values.num_rows
    if count > max(LARGEST_EMPTY_VALUES, known, 8 * values.nbytes):
        raise ValueError(f"{count:,} values in {values.nbytes:,} bytes")
    return values


def field_at(table: Any, place: tuple[str, ...]) -> Any:
    """A column of a table or record batch, or the field of the structs in it; null where a struct is."""
    column = table.column(place[0])
    if isinstance(column, pa.ChunkedArray):  # of a table
        column = column.combine_chunks()
    for key in place[1:]:
        column = pc.struct_field(column, key)
    return column


def with_field(table: pa.Table, place: tuple[str, ...], values: Any) -> pa.Table:
    """A table with other values at a place, of the same type."""
    number = table.schema.get_field_index(place[0])
    column = table.column(number).combine_chunks()
    return table.set_column(number, table.schema.field(number), _replaced(column, place[1:], values))


def _replaced(column: Any, place: tuple[str, ...], values: Any) -> Any:
    if not place:
        return values
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    fields = [kind.field(number) for number in range(kind.num_fields)]
    inner = [column.field(number) for number in range(kind.num_fields)]
    at = next(number for number, field in enumerate(fields) if field.name == place[0])
    inner[at] = _replaced(inner[at], place[1:], values)
    return pa.StructArray.from_arrays(inner, fields=fields, mask=column.is_null())


def utf8_values(column: Any) -> list[bytes | None]:
    """A text column's values as raw bytes, valid UTF-8 or not; None for null."""
    if isinstance(column.type, pa.DictionaryType):
        if _is_view(column.type.value_type):  # which pyarrow cannot take
            scalars = (None if number is None else column.dictionary[number] for number in column.indices.to_pylist())
            return [scalar.as_buffer().to_pybytes() if scalar and scalar.is_valid else None for scalar in scalars]
        column = column.dictionary_decode()
    values: list[bytes | None] = column.cast(_bytes_of(column.type)).to_pylist()
    return values


@lru_cache
def _bytes_of(kind: Any) -> Any:
    """The type of the bytes of a type of texts."""
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return pa.large_binary() if large else pa.binary()


def text_array(values: list[bytes], kind: Any) -> Any:
    """Texts as an array of the type of a text column."""
    value = value_type(kind)
    array = pa.array(values, _bytes_of(value))
    if not pa.types.is_dictionary(kind):
        return array.cast(value)
    encoded = array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(kind.index_type), encoded.dictionary.cast(value), ordered=kind.ordered
    )


def _is_view(kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def id_values(column: Any) -> list[bytes]:
    """Ids as bytes: strings as they are, valid UTF-8 or not, other values as JSON, null as b"".

    Bytes that are UTF-8 are strings; others are the JSON of how Python writes them, which tells them apart.
    """
    if is_text(column.type):
        ids = [value or b"" for value in utf8_values(column)]
        is_string = any(of_kind(value_type(column.type)) for of_kind in _STRINGS)
        return ids if is_string else [*map(_as_text, ids)]
    dumped = (None if value is None else json.dumps(value, default=str, ensure_ascii=False) for value in listed(column))
    return [b"" if value is None else value.encode() for value in dumped]


def _as_text(value: bytes) -> bytes:
    try:
        value.decode()
    except UnicodeDecodeError:
        return json.dumps(str(value)).encode()
    return value


def listed(column: Any) -> list[Any]:
    """The values as Python objects.

    An instant that Python cannot have is its number of units since 1970, a string that is not UTF-8 is None, and of
    fields of a struct that have the same name the last is kept.
    """
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # nanoseconds, and years beyond 9999
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return _inner_value(scalar)


def _inner_value(scalar: Any) -> Any:
    """What Python can have of a value that it cannot have whole."""
    kind = scalar.type
    if pa.types.is_struct(kind):
        return {kind.field(number).name: _value(scalar[number]) for number in range(kind.num_fields)}
    if pa.types.is_map(kind):
        return [(_value(pair[0]), _value(pair[1])) for pair in scalar.values]
    if hasattr(scalar, "values"):  # of a list
        return [_value(inner) for inner in scalar.values]
    inner = getattr(scalar, "value", None)  # of an instant, its number; of a dictionary or a union, a value
    return _value(inner) if isinstance(inner, pa.Scalar) else inner


def row_values(batch: Any, place: tuple[str, ...]) -> list[Any]:
    """The values of a field as Python objects that JSON can hold."""
    return _plain_values(field_at(batch, place))


def _plain_values(column: Any) -> list[Any]:
    return [plain(value) for value in listed(column)]


def plain(value: Any) -> Any:
    """A value of a table as JSON has it: bytes as text, else in base64; dates and decimals as text; no NaN."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def rows_of(batch: Any, places: dict[str, tuple[str, ...]] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a record batch as objects of JSON: all columns (of one name, the last), or the fields at `places`."""
    names = batch.schema.names if places is None else list(places)
    columns = batch.columns if places is None else [field_at(batch, place) for place in places.values()]
    for row in zip(*map(_plain_values, columns), strict=True):
        yield dict(zip(names, row, strict=True))


def rows_as_lines(batches: Iterable[Any], places: dict[str, tuple[str, ...]] | None = None) -> Iterator[bytes]:
    """The JSON lines of the rows of record batches, a piece for each batch: all columns, or the fields at `places`."""
    for batch in batches:
        yield b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows_of(batch, places))


def undecodable(batch: Any) -> int:
    """How many values of the columns of strings are not UTF-8."""
    strings = [column for column in batch.columns if any(of_kind(value_type(column.type)) for of_kind in _STRINGS)]
    return sum(sum(value is None for value in listed(column)) - column.null_count for column in strings)


class Rows:
    """Collects rows into batches of documents; `fields`: the places of those that are asked for, by name."""

    def __init__(
        self, source: str, text: tuple[str, ...], identity: tuple[str, ...], fields: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._source, self._text, self._identity, self._fields = source, text, identity, fields
        self._first_row = 0
        self._clear()

    def _clear(self) -> None:
        self._texts: list[bytes | None] = []
        self._ids: list[bytes] = []
        self._asked: list[bytes] = []
        self._bytes = 0

    def add(self, batch: Any, more_rows: int = 0) -> Iterator[DocumentBatch]:
        """Add a record batch; gives a full batch of documents. `more_rows`: how many the next one may have."""
        values = utf8_values(field_at(batch, self._text))
        self._texts += values
        self._ids += id_values(field_at(batch, self._identity)) if self._identity else [b""] * batch.num_rows
        if self._fields:
            places = {name: place for name, place in self._fields.items() if place}
            found = rows_of(batch, places) if places else iter([{}] * batch.num_rows)
            self._asked += [
                orjson.dumps({name: value for name, value in row.items() if value is not None}) for row in found
            ]
        self._bytes += sum(len(value or b"") for value in values) + sum(map(len, self._asked[-len(values) :]))
        if self._bytes >= BATCH_BYTES or len(self._texts) + more_rows > ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[DocumentBatch]:
        """The rows that are left."""
        if self._texts:
            yield _documents(self._texts, self._ids, self._asked, self._source, self._first_row)
            self._first_row += len(self._texts)
            self._clear()


def _documents(
    texts: list[bytes | None], identities: list[bytes], asked: list[bytes], source: str, first_row: int
) -> DocumentBatch:
    accepted: list[bytes] = []
    fields: list[bytes] = []
    ids: list[bytes] = []
    rows: list[int] = []
    rejections = []
    for row, (text, identity) in enumerate(zip(texts, identities, strict=True)):
        reason = _why_rejected(text, identity)
        if reason is None and asked:
            if len(asked[row]) > LONGEST_FIELDS_BYTES:
                reason = RejectionReason.FIELD_TOO_LONG
            else:
                fields.append(asked[row])
        if reason is None and text is not None:
            accepted.append(text)
            ids.append(identity)
            rows.append(first_row + row)
        else:
            assert reason is not None  # noqa: S101
            rejections.append(Rejection(reason, first_row + row, text or b""))
    size = sum(map(len, accepted)) + sum(map(len, ids)) + sum(len(rejection.raw) for rejection in rejections)
    return batch_of(source, accepted, ids, np.array(rows, np.uint64), size, rejections, fields=fields)


def _why_rejected(text: bytes | None, identity: bytes) -> RejectionReason | None:
    if text is None:
        return RejectionReason.TEXT_NOT_A_STRING
    try:
        text.decode()
        identity.decode()
    except UnicodeDecodeError:
        return RejectionReason.INVALID_UTF8
    return None
