"""Surveys source files before there is a configuration: their number and sizes, and the keys that hold text.

At most MOST_FILES files, spread over the listing, are opened; of each, one block of lines (parquet: of rows) is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from corpusmill.documents.compression import NAMED_ENDINGS, SOURCE_ENDINGS, open_decompressed
from corpusmill.documents.lines import read_line_blocks
from corpusmill.errors import SourceError
from corpusmill.storage import StoredFile, open_location

MOST_FILES = 64
BLOCK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 64 << 20
ROWS = 1000
USUAL_FIELD = "text"
KEYS_SHOWN = 10


@dataclass(frozen=True)
class FileSurvey:
    """The beginning of one file: its `lines` (parquet: rows), and by key the number of lines with text there, and its
    bytes.
    """

    name: str
    lines: int
    lines_with_text: Counter[str]
    text_bytes: Counter[str]


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


def survey_sources(files: list[StoredFile], endpoint_url: str | None = None) -> Survey:
    """Survey listed files; CorruptDataError for a file that cannot be read."""
    step = max(1, -(-len(files) // MOST_FILES))
    endings = Counter(ending_of(file.name) for file in files)
    surveyed = [_survey(file, endpoint_url) for file in files[::step]]
    return Survey(endings, sum(file.size_bytes for file in files), surveyed)


def ending_of(name: str) -> str:
    """`.jsonl.zst` of `a.b.jsonl.zst`."""
    return next(ending for ending in (*SOURCE_ENDINGS, *NAMED_ENDINGS) if name.endswith(ending))


def choose_text_field(survey: Survey) -> str:
    """The key that holds the text: `text` if most lines have it, else the key with the most text among those in most
    lines.

    SourceError if no key holds text in most lines, or if the chosen one holds none in a file.
    """
    lines, with_text, text_bytes = survey.lines(), survey.lines_with_text(), survey.text_bytes()
    candidates = [key for key, count in with_text.items() if 2 * count > lines]
    if not candidates:
        raise SourceError(
            "no key holds text in most lines",
            where=f"{lines:,} lines at the start of {len(survey.files):,} files",
            expected="a JSON object per line, or a parquet row, with its text under one key",
            got=_shares(with_text, lines) or "no lines with text at all",
            next_step="pass the key as --text-field, or convert the files",
        )
    chosen = USUAL_FIELD if USUAL_FIELD in candidates else max(candidates, key=lambda key: (text_bytes[key], key))
    if others := files_without(survey, chosen):
        first = others[0]
        raise SourceError(
            f"not all files have text under one key: {len(others):,} of {len(survey.files):,} have no {chosen}",
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
            "no line has text under source.text_field",
            where=f"{lines:,} lines at the start of {len(survey.files):,} files",
            expected=f"text under the key {field}",
            got=_shares(with_text, lines) or "no text under any key",
            next_step="set source.text_field to the key that holds the text",
        )


def files_without(survey: Survey, field: str) -> list[FileSurvey]:
    """The surveyed files that have lines, but no text under a key."""
    return [file for file in survey.files if file.lines and not file.lines_with_text[field]]


def _shares(with_text: Counter[str], lines: int) -> str:
    """`text in 98 %, title in 40 %`, the most frequent keys first."""
    keys = sorted(with_text, key=lambda key: (-with_text[key], key))[:KEYS_SHOWN]
    return ", ".join(f"{key} in {with_text[key] / lines:.0%}" for key in keys)


def _survey(file: StoredFile, endpoint_url: str | None) -> FileSurvey:
    store, name = open_location(file.location, endpoint_url=endpoint_url)
    lines, with_text, text_bytes = 0, Counter[str](), Counter[str]()
    with store.open(name) as raw:
        for record in _rows(raw, file.name) if file.name.endswith(".parquet") else _lines(raw, file.name):
            lines += 1
            for key, value in record:
                if isinstance(value, str):
                    with_text[key] += 1
                    text_bytes[key] += len(value.encode(errors="surrogatepass"))
    return FileSurvey(file.name, lines, with_text, text_bytes)


def _lines(raw: BinaryIO, name: str) -> Iterator[Iterable[tuple[str, Any]]]:
    """The members of each line of the first block; empty for a line that is not a JSON object."""
    with open_decompressed(raw, name) as stream:
        for block in read_line_blocks(stream, block_bytes=BLOCK_BYTES, longest_line_bytes=LONGEST_LINE_BYTES):
            for start, end in () if block.cut else block.spans(first=True):
                yield _members(block.data[start:end])
            return


def _members(line: bytes) -> Iterable[tuple[str, Any]]:
    try:
        record = orjson.loads(line)
    except ValueError:
        return ()
    return record.items() if isinstance(record, dict) else ()


def _rows(raw: BinaryIO, name: str) -> Iterator[Iterable[tuple[str, Any]]]:
    """The text columns of the first rows."""
    import pyarrow as pa

    from corpusmill.documents.parquet import open_parquet

    file = open_parquet(raw, name)
    columns = [field.name for field in file.schema_arrow if _is_text(pa, field.type)]
    for batch in file.iter_batches(ROWS, columns=columns, use_threads=False):
        for row in batch.to_pylist():
            yield row.items()
        return


def _is_text(pa: Any, kind: Any) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))
