from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.batch import batch_of
from corpusmill.documents.jsonl import read_documents
from corpusmill.documents.text_shard import TEXT_SHARD_FILES, TextShard, TextShardWriter, open_text_shard
from tests.documents.json_lines import files
from tests.oracles.documents import documents_of, ids_of, lines_of, text_shard_of
from tests.raising import raises

FIELDS = {"text_field": "text", "id_field": "id"}


def write(folder: Path, sources: dict[str, bytes], block_bytes: int = 8 << 20) -> TextShard:
    with TextShardWriter(folder) as shard:
        for path, data in sources.items():
            shard.start_source(path)
            for batch in read_documents(io.BytesIO(data), source=path, **FIELDS, block_bytes=block_bytes):
                shard.append(batch)
    return open_text_shard(folder)


@given(sources=st.lists(files(), max_size=4), block_bytes=st.sampled_from([1, 30, 8 << 20]))
def test_text_shard_any_files_equal_the_oracle(sources: list[bytes], block_bytes: int) -> None:
    expected = [documents_of(data, "text") for data in sources]
    documents = [pair for kept, _ in expected for pair in kept]
    tokenized, offsets = text_shard_of([text for _, text in documents])
    with TemporaryDirectory() as folder:
        shard = write(Path(folder), {str(place): data for place, data in enumerate(sources)}, block_bytes)
        assert Path(folder, "tokenized").read_bytes() == tokenized == shard.text.tobytes()
        assert Path(folder, "offset").read_bytes() == np.array(offsets, "<u8").tobytes() == shard.offsets.tobytes()
        assert shard.line_numbers.tolist() == [line for line, _ in documents]
        assert shard.documents == len(documents)
        assert shard.text_bytes == sum(len(text) for _, text in documents)
        assert [shard.document_bytes(i) for i in range(shard.documents)] == [text for _, text in documents]
        origins = [(str(place), line) for place, (kept, _) in enumerate(expected) for line, _ in kept]
        ids = [item for data in sources for item in ids_of(data, "text", "id")]
        actual = shard.document_ids()
        assert [actual[i].encode() for i in range(shard.documents)] == ids
        assert Path(folder, "ids").read_bytes() == b"".join(ids)
        assert actual.ends.tolist() == [sum(map(len, ids[: i + 1])) for i in range(len(ids))]
        assert [shard.source_of(i) for i in range(shard.documents)] == origins
        for source, data, (kept, rejected) in zip(shard.sources, sources, expected, strict=True):
            assert (source.documents, source.lines, source.line_bytes) == (len(kept), len(lines_of(data)), len(data))
            reasons = [reason for _, reason in rejected]
            assert source.rejected == {reason: reasons.count(reason) for reason in reasons}
            bounds = shard.bounds(source.first_document, source.documents).tolist()
            assert bounds == [*offsets, len(tokenized)][source.first_document :][: source.documents + 1]


def test_text_shard_worked_example_of_the_format(tmp_path: Path) -> None:
    texts = ["abcab", "", "héllo abcab\n", "zz中文zz", "abcab"]
    with TextShardWriter(tmp_path) as shard:
        shard.start_source("a.jsonl")
        numbers = np.arange(5, dtype=np.uint64)
        ids = [b"doc-1", b"", b"7", b"", "é".encode()]
        shard.append(batch_of("a.jsonl", [text.encode() for text in texts], ids, numbers, 0, []))
    expected = "ff 6162636162 ff ff 68c3a96c6c6f2061626361620a ff 7a7ae4b8ade696877a7a ff 6162636162"
    assert (tmp_path / "tokenized").read_bytes() == bytes.fromhex(expected)
    assert (tmp_path / "ids").read_bytes() == "doc-17é".encode()
    opened = open_text_shard(tmp_path)
    assert opened.offsets.tolist() == [0, 6, 7, 21, 32]
    assert opened.document_ids().ends.tolist() == [5, 5, 6, 6, 8]


def test_text_shard_does_not_depend_on_block_size(tmp_path: Path) -> None:
    data = b"".join(b'{"text": "document %d"}\nnot json\n\n' % number for number in range(300))
    for block_bytes in (17, 1000, 8 << 20):
        write(tmp_path / str(block_bytes), {"a": data, "b": b"", "c": data}, block_bytes)
    for name in TEXT_SHARD_FILES:
        assert len({(tmp_path / str(size) / name).read_bytes() for size in (17, 1000, 8 << 20)}) == 1


@pytest.mark.parametrize("sources", [{}, {"a": b""}, {"a": b"\n", "b": b"{}"}])
def test_empty_text_shard_opens(tmp_path: Path, sources: dict[str, bytes]) -> None:
    shard = write(tmp_path, sources)
    assert (shard.documents, shard.text_bytes, len(shard.sources)) == (0, 0, len(sources))
    assert shard.bounds(0, 0).tolist() == [0]
    assert (shard.text.dtype, shard.offsets.dtype) == (np.uint8, np.uint64)


@pytest.mark.parametrize("ordinal", [-1, 2])
def test_document_that_is_not_there_is_an_index_error(tmp_path: Path, ordinal: int) -> None:
    shard = write(tmp_path, {"a": b'{"text": "a"}\n{"text": "b"}\n'})
    with pytest.raises(IndexError, match="2 documents"):
        shard.document_bytes(ordinal)
    with pytest.raises(IndexError, match="2 documents"):
        shard.source_of(ordinal)


def test_open_arrays_are_read_only(tmp_path: Path) -> None:
    shard = write(tmp_path, {"a": b'{"text": "a", "id": "x"}'})
    ids = shard.document_ids()
    arrays = (shard.text, shard.offsets, shard.line_numbers, shard.line_hashes, ids.data, ids.ends)
    assert not any(array.flags.writeable for array in arrays)


def test_writer_refuses_batches_of_other_sources(tmp_path: Path) -> None:
    with TextShardWriter(tmp_path) as shard:
        shard.start_source("a")
        with pytest.raises(ValueError, match="'b'"):
            shard.append(batch_of("b", [b"text"], [b""], np.zeros(1, np.uint64), 0, []))


def test_writer_left_by_an_exception_leaves_no_text_shard(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with TextShardWriter(tmp_path) as shard:
            shard.start_source("a")
            raise KeyError

    write(tmp_path, {"a": b'{"text": "whole"}'})
    with pytest.raises(KeyError):
        write_and_fail()
    with raises("text_shard.incomplete"):
        open_text_shard(tmp_path)


@pytest.mark.parametrize("name", TEXT_SHARD_FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "grown", "entry_lost"])
def test_open_damaged_file_is_an_error(tmp_path: Path, name: str, damage: str) -> None:
    write(tmp_path, {"a": b'{"text": "a", "id": "x"}\n' * 3, "b": b'{"text": "", "id": 12345}\n' * 2})
    path = tmp_path / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": data[:-3], "grown": data + b"]", "entry_lost": data[:-8]}[damage])
    if name == "tokenized" and damage == "grown":  # the text of the last document; only a digest can tell
        assert open_text_shard(tmp_path).document_bytes(4) == b"]"
    else:
        with raises("text_shard.incomplete"):
            open_text_shard(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"lines": 2', '"lines": 3'), ('"first_document": 1', '"first_document": 0'), ("blank_line", 'x": 1, "y')],
)
def test_open_sources_that_do_not_add_up_are_an_error(tmp_path: Path, old: str, new: str) -> None:
    write(tmp_path, {"a": b'{"text": "a"}\n\n', "b": b'{"text": ""}\n'})
    sources = (tmp_path / "sources.json").read_text()
    assert sources.count(old) == 1
    (tmp_path / "sources.json").write_text(sources.replace(old, new))
    with raises("text_shard.incomplete"):
        open_text_shard(tmp_path)
