"""Byte strings looked for in data and in files of every kind."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.forgetting import files, finding
from corpusmill.builds.forgetting.files import UnsearchableError, strings_in
from corpusmill.builds.forgetting.finding import WIDTH, Finder
from tests.raising import raises

TEXT = b"The quick brown fox jumps over the lazy dog and is gone."
OTHER = b"Nothing of this sentence stands in any of the files here."

few_letters = st.lists(st.sampled_from(b"ab"), min_size=WIDTH, max_size=WIDTH + 9).map(bytes)


@given(st.lists(few_letters, max_size=6), st.lists(few_letters | st.binary(max_size=40), max_size=8))
def test_strings_are_found_where_they_stand(wanted: list[bytes], pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    expected = {item for item in wanted if item in data}
    assert Finder(wanted).find(np.frombuffer(data, np.uint8)) == expected


def test_more_places_than_one_call_notes_are_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST", 2)
    data = b"a" * 200 + TEXT
    assert Finder([b"a" * WIDTH, TEXT]).find(np.frombuffer(data, np.uint8)) == {b"a" * WIDTH, TEXT}


def test_string_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        Finder([b"x" * (WIDTH - 1)])


def table(data: bytes) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": ["first", data.decode()]}), stream, compression="zstd")
    return stream.getvalue()


def archive(data: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in (("a.json.gz", gzip.compress(b"nothing")), ("b.json.gz", gzip.compress(data))):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


ENDINGS = {"plain": "", "tar of gzip": ".tar", "bzip2": ".bz2", "xz": ".xz", "parquet": ".parquet", "JSON": ".json"}


def name_of(kind: str) -> str:
    """A file's name that states its kind."""
    return f"file{ENDINGS[kind]}" if kind in ENDINGS else f"file.jsonl.{'gz' if 'gzip' in kind else 'zst'}"


WRITTEN = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "gzip, two members": lambda data: gzip.compress(data[:30]) + gzip.compress(data[30:]),
    "zstd": zstandard.compress,
    "zstd, two frames": lambda data: zstandard.compress(data[:30]) + zstandard.compress(data[30:]),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "parquet": table,
    "tar of gzip": archive,
    "JSON": lambda data: json.dumps({"text": data.decode()}).encode(),
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("block_bytes", [7, 8 << 20])
def test_text_is_found_in_files_of_every_kind(
    kind: str, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    path = tmp_path / name_of(kind)
    path.write_bytes(WRITTEN[kind](b"before " + TEXT + b" behind"))
    with path.open("rb") as file:
        assert strings_in(file, Finder([TEXT, OTHER]), where=path) == {TEXT}


class Pipe(io.RawIOBase):
    """Bytes as a store streams them: nobody can go back."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(buffer)


@pytest.mark.parametrize("kind", WRITTEN)
def test_text_is_found_in_streams_of_every_kind_and_damage_is_an_error(kind: str) -> None:
    data = WRITTEN[kind](b"before " * 200 + TEXT + b" behind")
    assert strings_in(io.BufferedReader(Pipe(data)), Finder([TEXT, OTHER]), where=name_of(kind)) == {TEXT}
    for damaged in (data[: len(data) // 2], data[:300] + data[400:]):
        with suppress(UnsearchableError, OSError):  # nothing else; some forms end early without an error
            strings_in(io.BufferedReader(Pipe(damaged)), Finder([TEXT, OTHER]), where=name_of(kind))


@pytest.mark.parametrize("kind", ["gzip", "xz", "parquet"])
def test_file_that_is_cut_off_is_an_error_that_quotes_nothing(kind: str) -> None:
    data = WRITTEN[kind](b"before " + TEXT + b" behind")[:-9]
    with raises("forget.file_not_searchable") as caught:
        strings_in(io.BufferedReader(Pipe(data)), Finder([TEXT]), where=name_of(kind))
    assert "before" not in str(caught.value)


def test_empty_file_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (tmp_path / "file").open("rb") as file:
        assert strings_in(file, Finder([TEXT]), where="") == set()


@pytest.mark.parametrize(
    "start", [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"PAR1", b" " * 257 + b"ustar"]
)
@pytest.mark.parametrize("name", [".blocks", "offset", "x.npy", "tokenized"])
def test_bytes_that_resemble_another_kind_are_searched_as_they_are(start: bytes, name: str) -> None:
    """One step in 65,536 has digests that begin as gzip does: verify and purge failed for good."""
    file = io.BufferedReader(io.BytesIO(start + TEXT))
    assert strings_in(file, Finder([TEXT, OTHER]), where=f"work/index/{name}") == {TEXT}


HARD = 'Größe "in Anführung", 中文 und \\ mehr als genug Zeichen, um gefunden zu werden'.encode()
PLAIN = pa.array([None, b"before " + HARD + b" behind", b"x"], pa.binary())
NUMBERS = np.random.default_rng(1).integers(0, 1 << 16, 60)
COLUMNS = {
    "binary": PLAIN,
    "string": PLAIN.cast(pa.string()),
    "view": PLAIN.cast(pa.string_view()),
    "invalid UTF-8": pa.array([b"\xff" + HARD, None, b"\xff"]),
    "string of invalid UTF-8": pa.array([b"\xff" + HARD, None, b"\xff"]).view(pa.string()),
    "dictionary": PLAIN.cast(pa.string()).dictionary_encode(),
    "struct": pa.StructArray.from_arrays([PLAIN, pa.array([1, 2, 3], pa.timestamp("ns"))], names=["a", "b"]),
    "list": pa.array([[], [HARD], None], pa.list_(pa.binary())),
    "list view": pa.array([[], [HARD.decode()], None], pa.list_view(pa.string())),
    "list of fixed size": pa.array([[HARD, HARD], None, [b"", b""]], pa.list_(pa.binary(), 2)),
    "map": pa.array([[("a", HARD)], None, []], pa.map_(pa.string(), pa.binary())),
    "fixed size": pa.array([HARD, None, bytes(len(HARD))], pa.binary(len(HARD))),
    "runs": pa.RunEndEncodedArray.from_arrays([1, 3], [HARD.decode(), "x"]),
    "sparse union": pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [PLAIN]),
}


@pytest.mark.parametrize("ending", [".arrow", ".parquet"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_text_is_found_in_columns_of_every_type_beside_instants_that_python_cannot_have(kind: str, ending: str) -> None:
    if ending == ".parquet" and kind in {"list view", "runs", "sparse union"}:
        return  # parquet has none of these
    instants = pa.array([1, None, 2], pa.timestamp("ns"))
    tokens = pa.array([NUMBERS.tolist(), None, []], pa.list_(pa.int32()))
    made = pa.table(
        {"at": instants, "held": COLUMNS[kind], "ids": tokens, "far": pa.array([2**62] * 3, pa.timestamp("ms"))}
    )
    sink = io.BytesIO()
    if ending == ".parquet":
        pq.write_table(made, sink)
    else:
        with pa.ipc.new_stream(sink, made.schema) as writer:
            writer.write_table(made)
    ids = ",".join(map(str, NUMBERS)).encode()
    found = strings_in(io.BufferedReader(Pipe(sink.getvalue())), Finder([HARD, ids, OTHER]), where=f"file{ending}")
    assert found == {HARD, ids}


def test_arrow_file_that_is_cut_off_is_not_searchable() -> None:
    sink = io.BytesIO()
    made = pa.table({"held": COLUMNS["string"]})
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    with raises("forget.file_not_searchable"):
        strings_in(io.BufferedReader(Pipe(sink.getvalue()[:-9])), Finder([HARD]), where="file.arrow")


def test_part_of_a_table_is_searched_as_bytes() -> None:
    part = table(b"text")[4:]
    assert strings_in(io.BufferedReader(io.BytesIO(part)), Finder([TEXT]), where="a.part00000.parquet") == set()
