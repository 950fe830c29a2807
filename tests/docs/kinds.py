"""The page of the kinds of files that commands read: every cell is a command that was run on a file of that kind."""

from __future__ import annotations

import io
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from corpusmill.direct.reshuffle.lines import shuffle_text
from corpusmill.documents import compression
from corpusmill.engine.plan import SourceFile
from corpusmill.errors import CorpusmillError
from corpusmill.sources.copies import each_file, read_source, streamed_copy
from corpusmill.storage.listing import list_all
from tests.documents.every_kind import COMPRESSORS, arrow_bytes, parquet_bytes

WRITTEN_BY = "<!-- python -m tests.docs.reference writes this page -->\n"
ROWS = [{"text": f"text {number}", "id": f"d{number}"} for number in range(3)]
PAGE = f"""{WRITTEN_BY}# Sources

What commands read. A folder, `data/*` and `data/**` mean the files whose names end as in the first table; the case does
not count. A file or a pattern may also name others, as in the second table; a pattern that matches files with an ending
of these tables takes only those. Files of other kinds are skipped, and counted and named. What a file is comes from its
first bytes: where they are not what its name says, it is refused.

The texts are under `text_field`, ids under `id_field`. Dots reach into objects and structs, `meta.lang`; a key that has
the dots itself wins where it exists. In tables a text is a string, a large or viewed string, binary of any sort, or a
dictionary of these; only the columns that are needed are decoded, and `documents/` has all of them. Blank lines are
skipped and counted; they do not count as malformed, but the quarantine file lists them, as `blank_line`, so that
`locate` finds every line of a source.

"""
END = """
`file:///data` is `/data`. Folders of `datasets`' `save_to_disk` are read as folders of Arrow streams, without
the caches beside them. Of CSV, text and JSON arrays the refusal prints the line that makes JSON lines of them.
"""


def _files() -> dict[str, dict[str, bytes]]:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    table = pa.Table.from_pylist(ROWS)
    arrow = {f".arrow ({kind})": arrow_bytes(random.Random(seed), table) for kind, seed in _arrow_seeds(table)}
    found = {
        f"{ending}{suffix}": pack(lines) for ending in (".jsonl", ".ndjson") for suffix, pack in COMPRESSORS.items()
    }
    named = {f".json{suffix}": pack(lines) for suffix, pack in COMPRESSORS.items()}
    named |= {suffix: pack(lines) for suffix, pack in COMPRESSORS.items() if suffix}
    named["no ending, plain or compressed"] = COMPRESSORS[".xz"](lines)
    return {
        "In folders": {**found, ".parquet": parquet_bytes(random.Random(0), table), **arrow},
        "If a path names them": named,
    }


def _arrow_seeds(table: pa.Table) -> Iterator[tuple[str, int]]:
    for kind, mark in (("file", b"ARROW1"), ("stream", b"\xff\xff\xff\xff")):
        seed = next(n for n in range(99) if arrow_bytes(random.Random(n), table).startswith(mark))
        yield kind, seed


def _planned(path: str) -> int:
    fields: Any = SimpleNamespace(text_field="text", id_field="id")
    (file,) = list_all([path], compression.SOURCE_ENDINGS, named=tuple(compression.NAMED_ENDINGS)).files
    return sum(batch.documents for batch in read_source(streamed_copy(SourceFile.of(file), None), fields))


def _documents(path: str) -> int:
    return sum(batch.documents for file in each_file([path]) for batch in file.documents("text"))


def _lines(path: str) -> int:
    count = 0
    for file in each_file([path]):
        with file.lines(["text"]) as stream:
            count += sum(1 for _ in stream)
    return count


def _shuffled(path: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        return shuffle_text([path], f"{folder}/out.jsonl", seed=1, memory_bytes=1 << 20, scratch=Path(folder)).records


@contextmanager
def _standard_input(path: str) -> Iterator[str]:
    usual = sys.stdin
    sys.stdin = SimpleNamespace(buffer=io.BytesIO(Path(path).read_bytes()))  # type: ignore[assignment]
    try:
        yield "-"
    finally:
        sys.stdin = usual


def _from_standard_input(read: Callable[[str], int]) -> Callable[[str], int]:
    def reading(path: str) -> int:
        with _standard_input(path) as standard:
            return read(standard)

    return reading


COLUMNS: dict[str, Callable[[str], int]] = {
    "build, dedup, infini-gram": _planned,
    "tokenize, decontaminate, step try": _documents,
    "the same from `-`": _from_standard_input(_documents),
    "megatron, nanoset": _lines,
    "the same from `-` ": _from_standard_input(_lines),
    "shuffle-text": _shuffled,
}


def kinds_page() -> str:
    """The page, whose cells are what readers of the commands did with a file of three documents."""
    parts = [PAGE]
    for title, files in _files().items():
        parts.append(f"## {title}\n\n| ending | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}\n")
        for ending, data in files.items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "a" + (ending.split()[0] if ending.startswith(".") else ""))
                path.write_bytes(data)
                cells = ["yes" if _reads(read, str(path)) else "no" for read in COLUMNS.values()]
            parts.append(
                f"| `{ending}` | {' | '.join(cells)} |\n"
                if ending[0] == "."
                else f"| {ending} | {' | '.join(cells)} |\n"
            )
        parts.append("\n")
    return "".join([*parts[:-1], END])


def _reads(read: Callable[[str], int], path: str) -> bool:
    try:
        return read(path) == len(ROWS)
    except CorpusmillError:
        return False
