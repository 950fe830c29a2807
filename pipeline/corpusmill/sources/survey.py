"""Surveys source files before anything is built: their number and sizes, the keys that hold text, and how much text.

At most MOST_FILES files of each ending, spread over the listing, are opened; of each, one block of lines (parquet: of
rows) is parsed. How much of its file a block is follows from MEASURED_BYTES decompressed bytes, or from the number of
rows: 20 ms a file of 4 MiB or more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, BinaryIO, NamedTuple, cast

import orjson

from corpusmill.documents.compression import ending_of, is_parquet, is_table, open_decompressed
from corpusmill.documents.decompressing import PieceStream
from corpusmill.documents.field_names import DEEPEST, MISSING, all_fields, get_field
from corpusmill.documents.lines import read_line_blocks
from corpusmill.engine.plan import SourceFile
from corpusmill.errors import SourceError
from corpusmill.lazy import lazily
from corpusmill.storage import StoredFile, open_location

with lazily:
    import pyarrow as pa

    from corpusmill.documents import arrow, columns, parquet


MOST_FILES = 64
MOST_MEASURED = 16  # before a build, which waits for it
BLOCK_BYTES = 1 << 20
MEASURED_BYTES = 4 << 20
STEP_BYTES = 8 << 10  # read at once, so that bytes read are bytes decompressed
LONGEST_LINE_BYTES = 64 << 20
ROWS = 1000
USUAL_FIELD, USUAL_ID = "text", "id"
USUAL_IDS = (USUAL_ID, "doc_id", "document_id", "uuid", "url")
KEYS_SHOWN = 10


Visit = Callable[[dict[str, Any] | list[str], str], None]
"""Sees each object of JSON lines, or the names of a parquet file's columns, and where that is."""


class Texts(NamedTuple):
    """An amount of text."""

    size_bytes: int
    documents: int


@dataclass(frozen=True)
class FileSurvey:
    """The beginning of one file: its `lines` (parquet: rows), and by key the number of lines with text there, the bytes
    of that text, and the number of lines with what can be an id: text or an integer. `asked`: the fields among those
    asked for that it has. `share`: about how much of the file it is; `size_bytes`: the file's, as stored.
    """

    name: str
    size_bytes: int
    lines: int
    lines_with_text: Counter[str]
    text_bytes: Counter[str]
    lines_with_id: Counter[str]
    share: float
    asked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Survey:
    """The files by ending, their size as stored, and the beginnings of some."""

    endings: Counter[str]
    size_bytes: int
    files: list[FileSurvey]

    def lines(self) -> int:
        """The number of lines read."""
        return sum(file.lines for file in self.files)

    def lines_with_text(self) -> Counter[str]:
        """By key, how many of the lines hold a string there."""
        return sum((file.lines_with_text for file in self.files), Counter[str]())

    def text_bytes(self) -> Counter[str]:
        """By key, the bytes of these strings."""
        return sum((file.text_bytes for file in self.files), Counter[str]())

    def lines_with_id(self, field: str) -> int:
        """How many of the lines have an id under a key."""
        return sum(file.lines_with_id[field] for file in self.files)

    def text_factors(self, field: str) -> dict[str, tuple[float, float]]:
        """By ending, about how many (bytes of text under a key, lines with it) there are for each stored byte; (1, 0)
        where none was read.
        """
        factors = {}
        for ending in self.endings:
            files = [file for file in self.files if file.lines and ending_of(file.name) == ending]
            text_bytes = sum(file.text_bytes[field] / file.share for file in files)
            lines = sum(file.lines_with_text[field] / file.share for file in files)
            size_bytes = sum(file.size_bytes for file in files)
            factors[ending] = (text_bytes / size_bytes, lines / size_bytes) if text_bytes else (1.0, 0.0)
        return factors


def survey_sources(
    files: list[StoredFile],
    endpoint_url: str | None = None,
    *,
    fields: Collection[str] = (),
    asked: Collection[str] = (),
    most_files: int = MOST_FILES,
    visit: Visit = lambda _seen, _where: None,
) -> Survey:
    """Survey listed files, at most so many of each ending; CorruptDataError for a file that cannot be read.

    `fields`: of a table, the columns of bytes to read: other bytes may be images, which are no text. `asked`: other
    fields, of any type, to look for.
    """
    by_ending: dict[str, list[StoredFile]] = {}
    for file in files:
        by_ending.setdefault(ending_of(file.name), []).append(file)
    surveyed = [
        _survey(file, endpoint_url, visit, fields, asked)
        for group in by_ending.values()
        for file in group[:: max(1, -(-len(group) // most_files))]
    ]
    endings = Counter({ending: len(group) for ending, group in by_ending.items()})
    return Survey(endings, sum(file.size_bytes for file in files), surveyed)


def texts_of(files: Iterable[SourceFile], field: str, endpoint_url: str | None = None) -> list[Texts]:
    """About how much text each planned file or part holds, by the beginnings of a few files.

    CorruptDataError for a file that cannot be read.
    """
    files = list(files)
    sizes: Counter[str] = Counter()
    for file in files:
        sizes[file.location] += file.size_bytes
    whole = {file.location: file for file in files}
    stored = [StoredFile(file.shown, location, sizes[location], file.identity) for location, file in whole.items()]
    factors = survey_sources(stored, endpoint_url, fields=(field,), most_files=MOST_MEASURED).text_factors(field)
    return [Texts(*(round(factor * file.size_bytes) for factor in factors[ending_of(file.name)])) for file in files]


def choose_text_field(survey: Survey) -> str:
    """The key that holds the text: `text` if most lines have it, else the key with the most text among those in most
    lines.

    SourceError if no key holds text in most lines, or if the chosen one holds none in a file.
    """
    lines, with_text, text_bytes = survey.lines(), survey.lines_with_text(), survey.text_bytes()
    candidates = [key for key, count in with_text.items() if 2 * count > lines]
    candidates = [key for key in candidates if "." not in key] or candidates
    if not candidates:
        raise SourceError(
            "survey.no_text_key: no key holds text in most lines",
            where=f"{lines:,} lines at the start of {len(survey.files):,} files",
            expected="a JSON object per line, or a parquet row, with its text under one key",
            got=_shares(with_text, lines) or "no lines with text at all",
            next_step="pass the key as --text-field, or convert the files",
        )
    chosen = USUAL_FIELD if USUAL_FIELD in candidates else max(candidates, key=lambda key: (text_bytes[key], key))
    if others := files_without(survey, chosen):
        first = others[0]
        raise SourceError(
            f"survey.several_text_keys: not all files have text under one key: {len(others):,} of"
            f" {len(survey.files):,} have no {chosen}",
            where="\n".join(file.name for file in others[:KEYS_SHOWN]),
            expected=f"{chosen} in every file: {_shares(with_text, lines)}",
            got=f"in {first.name}: {_shares(first.lines_with_text, first.lines) or 'no text'}",
            next_step="name a folder or pattern of files that share a key, or pass the key as --text-field",
        )
    return chosen


def require_text_field(survey: Survey, field: str) -> None:
    """SourceError with the keys that hold text, if lines were read and none of them has text under `field`."""
    lines, with_text = survey.lines(), survey.lines_with_text()
    if lines and not with_text[field]:
        raise SourceError(
            "survey.no_text: no line has text under source.text_field",
            where=f"{lines:,} lines at the start of {len(survey.files):,} files",
            expected=f"text under the key {field}",
            got=_shares(with_text, lines) or "no text under any key",
            next_step="set source.text_field to the key that holds the text",
        )


def choose_id_field(survey: Survey) -> str:
    """The usual name of an id that most lines have; USUAL_ID if they have none."""
    usual = [field for field in USUAL_IDS if 2 * survey.lines_with_id(field) > survey.lines()]
    return usual[0] if usual else USUAL_ID


def require_id_field(survey: Survey, field: str) -> None:
    """SourceError if lines were read and none of them has an id under `field`."""
    if (lines := survey.lines()) and not survey.lines_with_id(field):
        raise SourceError(
            f"survey.no_ids: 0 of {lines:,} lines have {field}",
            where=f"the start of {len(survey.files):,} files",
            expected="an id, text or an integer, under source.id_field",
            got=_shares(sum((file.lines_with_id for file in survey.files), Counter[str]()), lines) or "no such key",
            next_step="set source.id_field to the key that holds the id, or leave it out if documents have none",
        )


def require_asked_fields(survey: Survey, fields: Collection[str]) -> None:
    """SourceError if lines were read, and none of them has a field that steps, decisions or the budget ask for."""
    found = frozenset[str]().union(*(file.asked for file in survey.files))
    if lacking := [field for field in fields if field not in found] if survey.lines() else []:
        raise SourceError(
            "survey.no_field: no line has a field that steps, decisions or the budget ask for",
            where=f"{survey.lines():,} lines at the start of {len(survey.files):,} files",
            expected=", ".join(lacking),
            got=_shares(sum((file.lines_with_id for file in survey.files), Counter[str]()), survey.lines()) or "none",
            next_step="fix the name; dots reach into objects, as in meta.lang",
        )


def files_without(survey: Survey, field: str) -> list[FileSurvey]:
    """The surveyed files that have lines, but no text under a key."""
    return [file for file in survey.files if file.lines and not file.lines_with_text[field]]


def _shares(with_text: Counter[str], lines: int) -> str:
    """`text in 98 %, title in 40 %`, the most frequent keys first."""
    keys = sorted(with_text, key=lambda key: (-with_text[key], key))[:KEYS_SHOWN]
    return ", ".join(f"{key} in {with_text[key] / lines:.0%}" for key in keys)


def _survey(
    file: StoredFile, endpoint_url: str | None, visit: Visit, fields: Collection[str], asked: Collection[str]
) -> FileSurvey:
    store, name = open_location(file.location, endpoint_url=endpoint_url)
    found: set[str] = set()
    lines, with_text, text_bytes, with_id = 0, Counter[str](), Counter[str](), Counter[str]()
    with store.open(name) as raw:
        has_rows = is_table(file.name)
        records, share = _rows(raw, file, visit, fields, asked, found) if has_rows else _lines(raw, file)
        for record in records:
            lines += 1
            if not has_rows:
                visit(record, f"{file.name}, line {lines:,}")
                found.update(name for name in asked if get_field(record, name, MISSING) is not MISSING)
            for key, value in all_fields(record):
                with_id[key] += type(value) is int or (isinstance(value, str) and value != "")
                if isinstance(value, str):
                    with_text[key] += 1
                    text_bytes[key] += len(value.encode(errors="surrogatepass"))
    return FileSurvey(file.name, file.size_bytes, lines, with_text, text_bytes, with_id, share, frozenset(found))


class _Counted:
    """Reads a few bytes at a time, and counts them."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.bytes_read = 0

    def read(self, size: int) -> bytes:
        piece = self._raw.read(min(size, STEP_BYTES))
        self.bytes_read += len(piece)
        return piece


def _lines(raw: BinaryIO, file: StoredFile) -> tuple[list[dict[str, Any]], float]:
    """The object of each line of the first block, and the share of the file that they are; an empty one for a line that
    is not a JSON object.
    """
    counted = _Counted(raw)
    with open_decompressed(cast(BinaryIO, counted), file.name) as stream:
        beginning = stream.read(MEASURED_BYTES)
        whole_bytes = float(len(beginning))
        if len(beginning) == MEASURED_BYTES:
            whole_bytes *= max(1.0, file.size_bytes / counted.bytes_read)
        more = islice(iter(lambda: stream.read(BLOCK_BYTES), b""), LONGEST_LINE_BYTES // BLOCK_BYTES)
        pieces = chain((beginning,), more)  # a longer line is not read to its end
        again = cast(BinaryIO, PieceStream(pieces))
        block = next(read_line_blocks(again, block_bytes=BLOCK_BYTES, longest_line_bytes=LONGEST_LINE_BYTES), None)
    if block is None or block.cut:
        return [], 1.0
    return [_members(block.data[start:end]) for start, end in block.spans(first=True)], len(block.data) / whole_bytes


def _members(line: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _rows(
    raw: BinaryIO, file: StoredFile, visit: Visit, fields: Collection[str], asked: Collection[str], found: set[str]
) -> tuple[list[dict[str, Any]], float]:
    """The texts and integers of the first rows by name, dots for structs, and the share of all rows that they are;
    `found` gets those of `asked` that there are.
    """
    if is_parquet(file.name):
        table = parquet.open_parquet(raw, file.name)
        schema, all_rows = table.schema_arrow, table.metadata.num_rows
        places = _surveyed(schema, fields)
        batches = parquet.read_few(table, raw, file.name, [".".join(place) for place in places.values()])
    else:
        counted = _Counted(raw)
        arrow_table = arrow.ArrowTable(cast(BinaryIO, counted), file.name, lambda schema: _columns(schema, fields))
        schema, batches, all_rows = arrow_table.schema, arrow_table.batches(), 0
        places = _surveyed(schema, fields)
    visit(schema.names, file.name)
    found.update(name for name in asked if columns.place_of(schema, name))
    rows: list[dict[str, Any]] = []
    seen = 0
    for batch in batches:
        first = batch.slice(0, ROWS - seen)
        values = [_values(columns.field_at(first, place)) for place in places.values()]
        rows += [dict(zip(places, row, strict=True)) for row in zip(*values, strict=True)]
        seen += batch.num_rows
        if seen >= ROWS:
            break
    if is_parquet(file.name):
        return rows, len(rows) / all_rows if all_rows else 1.0
    read = min(1.0, counted.bytes_read / max(1, file.size_bytes))
    return rows, read * len(rows) / seen if seen else 1.0


def _columns(schema: Any, fields: Collection[str]) -> list[int]:
    return sorted({schema.get_field_index(place[0]) for place in _surveyed(schema, fields).values()})


def _surveyed(schema: Any, fields: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The places of what can be text or an id, by name. Of bytes, which may be images, only those named in `fields`."""
    return {
        name: place
        for place, kind in _leaves([(field.name, field.type) for field in schema])
        if columns.place_of(schema, name := ".".join(place)) == place
        and (pa.types.is_integer(kind) or (columns.is_text(kind) and (name in fields or not _is_bytes(kind))))
    }


def _leaves(fields: list[tuple[str, Any]], depth: int = DEEPEST) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(place, type of its values) of all fields that are no structs."""
    for name, kind in fields:
        if not pa.types.is_struct(kind):
            yield (name,), columns.value_type(kind)
        elif depth:
            inner = [(kind.field(number).name, kind.field(number).type) for number in range(kind.num_fields)]
            yield from (((name, *place), value) for place, value in _leaves(inner, depth - 1))


def _is_bytes(kind: Any) -> bool:
    return any(of_kind(kind) for of_kind in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def _values(column: Any) -> list[str | int | None]:
    """Texts, None for one that is not UTF-8, whose row a reader rejects; or integers."""
    if not columns.is_text(column.type):
        return list(column.to_pylist())
    return [_decoded(value) for value in columns.utf8_values(column)]


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
