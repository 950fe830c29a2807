"""OLMo-core's files: golden bytes, identity of write and read, every fault."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.config.exports import ExportsConfig
from corpusmill.errors import VerificationError
from corpusmill.export import olmo
from corpusmill.export.formats import FORMATS
from corpusmill.export.framing import Framing
from tests.oracles import export as oracle
from tests.raising import raises

EOS = 50_256
FRAMING = Framing(EOS)
GOLDEN = [[1, 2, 3], [7], [10, 11, 12, 13, 14]]
U16 = np.dtype("<u2")
documents = st.lists(st.lists(st.integers(0, 50_000), min_size=1, max_size=9), max_size=12)


def write(folder: Path, docs: list[list[int]], at: tuple[int, ...] = (), cuts: tuple[int, ...] = ()) -> Path:
    """part.npy and what is beside it; `at`: bounds between batches, `cuts`: between blocks of the index."""
    path = folder / "part.npy"
    batches = oracle.batches_of(docs, "u4", list(at))
    olmo.write_tokens(path, batches, FRAMING, dtype=U16, vocabulary_size=50_257)
    lengths = np.array([len(doc) + 1 for doc in docs], np.uint64)
    ordinals = np.arange(len(docs), dtype=np.uint64) * np.uint64(10)
    columns = (lengths, np.full(len(docs), 3, np.uint64), ordinals)
    blocks = [tuple(part) for part in zip(*(np.split(column, list(cuts)) for column in columns), strict=True)]
    ends = olmo.write_index(folder / "part.csv.gz", blocks)
    olmo.write_offsets(folder / "part.offsets", ends)
    return path


def verify(path: Path) -> dict[str, int]:
    return olmo.verify_file(path, dtype=U16, vocabulary_size=50_257, framing=FRAMING, offsets=True)


def test_olmo_golden_bytes_match(tmp_path):
    path = write(tmp_path, GOLDEN)
    assert path.read_bytes() == oracle.nanoset(GOLDEN, EOS, 2)[0]
    packed = (tmp_path / "part.csv.gz").read_bytes()
    assert gzip.decompress(packed).decode() == (
        "0,4,00003-000000000,00003,1\n4,6,00003-000000010,00003,11\n6,12,00003-000000020,00003,21\n"
    )
    assert packed[:10].hex() == "1f8b08000000000004ff"
    assert np.load(tmp_path / "part.offsets").tolist() == [0, 4, 6, 12]
    assert verify(path) == {"documents": 3, "tokens": 9, "special_tokens": 3}


@given(docs=documents, seed=st.integers(0, 2**32))
def test_olmo_documents_come_back_and_batches_change_no_byte(tmp_path_factory, docs, seed):
    rng = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("olmo")
    bounds = tuple(sorted(rng.integers(0, len(docs) + 1, 2).tolist()))
    path = write(folder, docs, bounds, bounds)
    if not docs:
        assert list(folder.iterdir()) == []
        return
    opened = olmo.open_file(path, U16)
    assert [opened.document(number).tolist() for number in range(len(opened))] == [[*doc, EOS] for doc in docs]
    assert verify(path)["documents"] == len(docs)
    written = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    write(folder, docs)
    assert {file.name: file.read_bytes() for file in sorted(folder.iterdir())} == written


def test_olmo_index_of_several_members_does_not_depend_on_its_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(olmo, "MEMBER_LINES", 4)
    docs = [[number] for number in range(11)]
    write(tmp_path, docs, cuts=(1, 2, 9))
    packed = (tmp_path / "part.csv.gz").read_bytes()
    write(tmp_path, docs)
    assert packed == (tmp_path / "part.csv.gz").read_bytes()
    assert packed.count(bytes.fromhex("1f8b08000000000004ff")) == 3
    assert len(gzip.decompress(packed).splitlines()) == 11


LINES = b"0,4,00003-000000000,00003,1\n4,6,00003-000000010,00003,11\n6,12,00003-000000020,00003,21\n"


@pytest.mark.parametrize(
    "lines",
    [
        b"start,end,id,src,loc\n" + LINES,
        LINES[:-1],
        LINES.replace(b"4,6,", b"5,6,"),
        LINES.replace(b"4,6,", b"4,4,"),
        LINES.replace(b"4,6,", b"4,06,"),
        LINES.replace(b",11\n", b",12\n"),
        LINES.replace(b"00003-000000010,00003", b"00004-000000010,00003"),
        LINES.replace(b",00003,1\n", b",00003,1,\n"),
        LINES.replace(b"4,6,00003-000000010", b'4,6,"00003\n000000010"'),
        LINES + b"12,13,00003-000000030,00003,31\n",
        LINES[:-28],
    ],
)
def test_olmo_index_that_differs_from_what_is_written_is_refused(tmp_path, lines):
    path = write(tmp_path, GOLDEN)
    (tmp_path / "part.csv.gz").write_bytes(gzip.compress(lines, mtime=0))
    with pytest.raises(VerificationError):
        olmo.open_file(path, U16)


def test_olmo_index_cut_anywhere_is_refused(tmp_path):
    path = write(tmp_path, GOLDEN)
    packed = (tmp_path / "part.csv.gz").read_bytes()
    for size in range(len(packed)):
        (tmp_path / "part.csv.gz").write_bytes(packed[:size])
        with raises("olmo.index_not_readable export.token_file_size"):
            olmo.open_file(path, U16)


@pytest.mark.parametrize(
    ("name", "at", "byte", "code"),
    [
        ("part.npy", 3, 0xFF, "export.id_not_in_vocabulary"),
        ("part.npy", 6, 0x01, "export.special_token_missing"),
        ("part.offsets", 0, 0x00, "olmo.offsets_differ"),
        ("part.offsets", 130, 0x07, "olmo.offsets_differ"),
    ],
)
def test_olmo_byte_that_is_changed_is_named(tmp_path, name, at, byte, code):
    path = write(tmp_path, GOLDEN)
    data = bytearray((tmp_path / name).read_bytes())
    data[at] = byte
    (tmp_path / name).write_bytes(data)
    with raises(code):
        verify(path)


@pytest.mark.parametrize("framing", [Framing(None), Framing(None, 1), Framing(EOS, None, "boundary")])
def test_olmo_framing_without_an_eos_at_every_end_is_refused(tmp_path, framing):
    with raises("olmo.no_eos"):
        olmo.write_tokens(tmp_path / "part.npy", [], framing, dtype=U16, vocabulary_size=50_257)


U32_POSITIONS = 1 << 32


def test_olmo_file_of_more_tokens_than_readers_count_is_refused_by_writer_and_verifier(tmp_path):
    """A sparse file: nothing of it is read."""
    lengths = [U32_POSITIONS // 2, U32_POSITIONS // 2 - 1, 1]
    columns = (np.array(lengths, np.uint64), np.zeros(3, np.uint64), np.arange(3, dtype=np.uint64))
    with raises("olmo.file_too_large"):
        olmo.write_index(tmp_path / "part.csv.gz", [columns])
    assert list(tmp_path.iterdir()) == []
    ends = olmo.write_index(tmp_path / "part.csv.gz", [tuple(column[:2] for column in columns)])
    assert ends.tolist() == [U32_POSITIONS // 2, U32_POSITIONS - 1]
    text = gzip.decompress((tmp_path / "part.csv.gz").read_bytes())
    added = b"%d,%d,00000-000000002,00000,3\n" % (U32_POSITIONS - 1, U32_POSITIONS)
    (tmp_path / "part.csv.gz").write_bytes(gzip.compress(text + added, mtime=0))
    with (tmp_path / "part.npy").open("wb") as file:
        file.truncate(2 * U32_POSITIONS)
    with raises("olmo.file_too_large", f"part.npy, byte {2 * U32_POSITIONS}\n"):
        verify(tmp_path / "part.npy")


@pytest.mark.parametrize("token_bytes", [2, 4])
@pytest.mark.parametrize(
    ("exports", "shared"),
    [
        ({"olmo": {}, "megatron": {}}, ["megatron", "olmo"]),
        ({"olmo": {}, "nanoset": {}}, ["nanoset", "olmo"]),
        ({"olmo": {}, "nanoset": {}, "megatron": {}}, ["megatron", "nanoset", "olmo"]),
        ({"olmo": {}, "nanoset": {"file_bytes": "11GB"}, "megatron": {}}, ["megatron", "olmo"]),
        ({"olmo": {"file_tokens": 1 << 30}, "nanoset": {}, "megatron": {}}, []),
    ],
)
def test_olmo_files_that_share_tokens_are_below_what_readers_count_and_others_keep_their_size(
    exports, shared, token_bytes
):
    wanted = ExportsConfig.model_validate(exports)
    sizes = {name: FORMATS[name].output_bytes(wanted, token_bytes) for name in wanted.formats()}
    own = {"megatron": 10 * 10**9, "nanoset": 10 * 10**9, "olmo": token_bytes << 30}
    own["nanoset"] += 10**9 * ("file_bytes" in exports.get("nanoset", {}))
    most = 3 * 2**30 * token_bytes
    assert sizes == {name: min(10 * 10**9, most) if name in shared else own[name] for name in sizes}
    assert sizes["olmo"] < U32_POSITIONS * token_bytes
