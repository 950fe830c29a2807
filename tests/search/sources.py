"""Source files for a search: small texts that repeat one another, in every form that a source may have.

A `Source` is the content of one file; `write` makes the file anew from it, so that an edit is a change of the content
or of its form. Names come from a small set, so that files replace one another, and some look like parts of others.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from hypothesis import strategies as st

from tests.documents.test_splitting import bgzip_block

NAMES = [
    "a.jsonl",
    "big.jsonl",
    "big.part00000.jsonl",
    "big.part00001.jsonl",
    "c10.jsonl.gz",
    "c9.jsonl.zst",
    "c9.part00001.jsonl.zst",
    "deep/d.jsonl.zstd",
    "deep/e.jsonl",
    "z.jsonl.gz",
    "z.parquet",
]
PASSAGES = [
    "the water and the stone ",
    "naïve über λόγος ",
    "中文字日本 ",
    "слово \n\n",
    "0123456789abcdef",
    "aaaaaaaaaaaaaaaaaaaa",
    '</a> "foo()" \\n\t',
    "<|endoftext|>",
    "x",
    "🙂🙃",
]
NO_DOCUMENTS = ["", "{", "[1]", '{"id": 3}', '{"text": 5, "body": 6}', '{"text": "\\ud800"}']

some_text = st.lists(st.sampled_from(PASSAGES), min_size=1, max_size=7).map("".join)
texts = st.integers(0, 7).flatmap(lambda number: some_text if number < 7 else st.just(""))
identities = st.sampled_from(['"doc"', "7", "null", '{"a": [1, 2]}', '"ü"', '""', "true", "7.0"])
noted = st.sampled_from(
    ["", *(f', "meta": {meta}' for meta in ("null", "{}", '{"a": 1}', '{"ranges": null, "a": ""}'))]
)
misnoted = st.sampled_from([f', "meta": {meta}' for meta in ("[]", '"x"', "0", "true", '{"ranges": [[0, 1]]}')])
documents = st.builds(
    lambda text, other, identity, escaped, meta: (
        f'{{"id": {identity}, "text": {json.dumps(text, ensure_ascii=escaped)}, "score": 1.50,'
        f' "body": {json.dumps(other, ensure_ascii=not escaped)}{meta}}}'
    ),
    texts,
    texts,
    identities,
    st.booleans(),
    st.integers(0, 99).flatmap(lambda number: noted if number < 98 else misnoted),  # one refuses the whole corpus
)
lines = st.integers(0, 9).flatmap(lambda number: documents if number < 9 else st.sampled_from(NO_DOCUMENTS))


@dataclass(frozen=True)
class Source:
    """One file: its lines without line ends, bytes of text in a compressed frame (0: one frame), whether it is bgzip,
    whether the last line ends."""

    lines: tuple[str, ...]
    frame_bytes: int = 0
    blocks: bool = False
    ends: bool = True

    def text(self) -> bytes:
        """The bytes of all lines."""
        whole = "\n".join(self.lines) + ("\n" if self.ends and self.lines else "")
        return whole.encode()

    def write(self, path: Path) -> None:
        """The file, in the form that its name's ending says; another file of that name is replaced."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(content for content, _ in self.frames(path.name)))

    def frames(self, name: str) -> list[tuple[bytes, bytes]]:
        """(content, text in it) of every frame of a file of that name; of one without frames all of it."""
        if name.endswith(".parquet"):
            return [(self._table(), b"")]
        text = self.text()
        if name.endswith(".jsonl"):
            return [(text, text)]
        size = self.frame_bytes or max(1, len(text))
        pieces = [text[at : at + size] for at in range(0, len(text), size)] or [b""]
        if name.endswith((".zst", ".zstd")):
            return [(zstandard.compress(piece), piece) for piece in pieces]
        if self.blocks:
            return [(bgzip_block(piece), piece) for piece in [*pieces, b""]]
        return [(gzip.compress(piece, mtime=0), piece) for piece in pieces]

    def rows(self) -> list[str]:
        """The lines that are documents, as those of a table: text, body, id."""
        return [json.dumps(row) for row in map(_parsed, self.lines) if row is not None]

    def _table(self) -> bytes:
        rows = [json.loads(row) for row in self.rows()]
        columns = {key: pa.array([row[key] for row in rows], pa.string()) for key in ("text", "body", "id")}
        file = io.BytesIO()
        groups = max(1, self.frame_bytes // 100) if self.frame_bytes else 1000
        pq.write_table(pa.table(columns), file, row_group_size=groups)
        return file.getvalue()


def _parsed(line: str) -> dict[str, str] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or "\ud800" in row["text"]:
        return None
    return {"text": row["text"], "body": row["body"], "id": json.dumps(row["id"])}


forms = {"frame_bytes": st.sampled_from([0, 0, 90, 200, 700]), "blocks": st.booleans(), "ends": st.booleans()}
sources = st.builds(Source, st.lists(lines, max_size=12).map(tuple), **forms)
filled = st.builds(Source, st.lists(documents, min_size=3, max_size=12).map(tuple), **forms)


class Corpus:
    """A folder of sources that is edited. Beside it lies what its links point to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.aside = folder.with_name("aside")
        self.files: dict[str, Source] = {}
        folder.mkdir()
        self.aside.mkdir()

    def put(self, name: str, source: Source, *, link: bool = False) -> None:
        """Write a source anew under a name, or elsewhere with a link of that name."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        if link:
            place = self.aside / name.replace("/", "_")
            source.write(place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(place)
        else:
            source.write(path)
        self.files[name] = source

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()
        del self.files[name]

    def rename(self, name: str, new_name: str) -> None:
        """The same file, with its times, under another name."""
        (self.folder / new_name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).rename(self.folder / new_name)
        self.files[new_name] = self.files.pop(name)

    def change(self, name: str, source: Source, *, keep_times: bool) -> None:
        """Write into the file that is there; with `keep_times` its times are then as before."""
        path = self.folder / name
        before = path.stat()
        source.write(path)
        if keep_times:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.files[name] = source
