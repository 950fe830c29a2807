"""Nanoset files: golden bytes, identity of write and read, every fault; one token file under two names."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import VerificationError
from corpusmill.export import megatron
from corpusmill.export.checks import BLOCK_DOCUMENTS
from corpusmill.export.framing import no_counts
from corpusmill.export.nanoset import link_file, open_file, token_bytes, verify_file, write_file
from tests.oracles import export as oracle
from tests.oracles.export import Damage, append, keep, put, put_number
from tests.raising import raises

GOLDEN = [[1, 2, 3], [7], [10, 11, 12, 13, 14]]
EOS = 50_256
VOCABULARY = {2: 50_257, 4: 100_277}
STEM = "00000_00000_doc_shuffled"
documents = st.lists(st.lists(st.integers(0, 50_000), max_size=9), max_size=12)


def write(folder: Path, docs: list[list[int]], width: int, at: tuple[int, ...] = ()) -> dict[str, int]:
    batches = oracle.batches_of(docs, "u4", list(at))
    return write_file(folder, STEM, batches, eos_id=EOS, tokenizer_name="gpt2", vocabulary_size=VOCABULARY[width])


def verify(folder: Path, width: int) -> dict[str, int]:
    return verify_file(folder / f"{STEM}.ds", vocabulary_size=VOCABULARY[width], eos_id=EOS, tokenizer_name="gpt2")


def three(folder: Path) -> list[bytes]:
    return [(folder / f"{STEM}.ds{suffix}").read_bytes() for suffix in ("", ".index", ".metadata")]


@pytest.mark.parametrize(
    ("width", "sha256"),
    [
        (2, "406d949090f5e6978ef4e6aab05ad8700b7c5c74470a44a5d6eef0ad1185942e"),
        (4, "892b7919db9007c28247aac0956419559a1c7667c4e144464ae82dba6f69e2b1"),
    ],
)
def test_nanoset_golden_bytes_match(tmp_path, width, sha256):
    counts = write(tmp_path, GOLDEN, width)
    data, index, metadata = three(tmp_path)
    assert hashlib.sha256(data).hexdigest() == sha256
    assert index.hex() == "040000000000000006000000000000000c00000000000000"
    assert metadata == b"gpt2|%d\n12\n12.0 T" % width
    assert counts == {
        "documents": 3,
        "documents_empty": 0,
        "tokens": 9,
        "special_tokens": 3,
        "bytes": 12 * width + 24 + 16,
    }


@pytest.mark.parametrize("width", [2, 4])
@given(docs=documents, at=st.lists(st.integers(0, 12), max_size=4))
def test_nanoset_any_documents_equal_the_oracle_and_read_back(tmp_path_factory, docs, at, width):
    folder = tmp_path_factory.mktemp("nanoset")
    counts = write(folder, docs, width, tuple(at))
    kept = [[*doc, EOS] for doc in docs if doc]
    if not kept:
        assert list(folder.iterdir()) == []  # no file of zero bytes
        return
    assert tuple(three(folder)[:2]) == oracle.nanoset(docs, EOS, width)
    opened = open_file(folder / f"{STEM}.ds")
    assert [opened.document(ordinal).tolist() for ordinal in range(len(opened))] == kept
    actual = verify(folder, width)
    assert actual == {name: counts[name] for name in actual}


@pytest.mark.parametrize(("vocabulary_size", "width"), [(50_257, 2), (65_536, 2), (65_537, 4), (100_277, 4)])
def test_nanoset_width_follows_the_vocabulary(vocabulary_size, width):
    assert token_bytes(vocabulary_size) == width


@pytest.mark.parametrize(
    ("tokens", "line"),
    [(12, "12.0 T"), (999, "999 T"), (1000, "1.00 kT"), (12_345, "12.3 kT"), (999_999, "1.00 MT")],
)
def test_nanoset_metadata_counts_for_people(tmp_path, tokens, line):
    write(tmp_path, [[1] * (tokens - 1)], 2)
    assert three(tmp_path)[2] == f"gpt2|2\n{tokens}\n{line}".encode()


@pytest.mark.parametrize("name", ["", "a|b", "a\nb"])
def test_nanoset_name_the_metadata_cannot_hold_is_refused(tmp_path, name):
    with raises("nanoset.tokenizer_name"):
        write_file(tmp_path, "x", [], eos_id=0, tokenizer_name=name, vocabulary_size=10)


def test_nanoset_index_of_several_blocks_verifies(tmp_path):
    count = 2 * BLOCK_DOCUMENTS + 3
    batch = (np.arange(count, dtype=np.uint16) % 1000, np.arange(1, count + 1, dtype=np.uint64))
    write_file(tmp_path, "x", [batch], eos_id=1000, tokenizer_name="n", vocabulary_size=1001)
    actual = verify_file(tmp_path / "x.ds", vocabulary_size=1001, eos_id=1000, tokenizer_name="n")
    assert actual["documents"] == count
    path = tmp_path / "x.ds"
    wrong_at = 2 * (2 * (BLOCK_DOCUMENTS + 5) + 1)  # the EOS of a document in the second block
    path.write_bytes(put_number(wrong_at, "<H", 3)(path.read_bytes()))
    with raises("export.special_token_missing", f"document {BLOCK_DOCUMENTS + 5} ", f"byte {wrong_at}\n"):
        verify_file(path, vocabulary_size=1001, eos_id=1000, tokenizer_name="n")


def faults(width: int) -> dict[str, tuple[str, Damage, str, int]]:
    """Name of the fault -> file, damage, file and byte the verifier must name; 12 tokens, ends 4 6 12."""

    def token(place: int, value: int) -> tuple[str, Damage, str, int]:
        return "", put_number(place * width, {2: "<H", 4: "<I"}[width], value), "", place * width

    other = b"gpt2|4" if width == 2 else b"gpt2|2"
    return {
        "tokens truncated": ("", keep(-width), "", 11 * width),
        "tokens truncated within one": ("", keep(-1), "", 12 * width - 1),
        "no tokens left": ("", keep(0), "", 0),
        "junk behind the tokens": ("", append(bytes(width)), "", 12 * width),
        "id beyond the vocabulary": token(1, {2: 65_535, 4: 100_277}[width]),
        "first document without EOS": token(3, 9),
        "last document without EOS": token(11, 9),
        "first end of zero": (".index", put_number(0, "<Q", 0), ".index", 0),
        "document of zero length": (".index", put_number(8, "<Q", 4), ".index", 8),
        "document of EOS alone": (".index", put_number(8, "<Q", 5), ".index", 8),
        "end that falls": (".index", put_number(8, "<Q", 3), ".index", 8),
        "end beyond 2^63": (".index", put_number(8, "<Q", 1 << 63), ".index", 8),
        "index cut within an item": (".index", keep(-1), ".index", 16),
        "last document not in the index": (".index", keep(-8), ".metadata", 7),
        "last end too large": (".index", put_number(16, "<Q", 13), ".metadata", 7),
        "no index left": (".index", keep(0), ".metadata", 7),
        "count in the metadata": (".metadata", put(7, b"13\n13.0 T"), ".metadata", 7),
        "width in the metadata": (".metadata", put(0, other), ".metadata", 0),
        "width of 3": (".metadata", put(5, b"3"), ".metadata", 0),
        "tokenizer in the metadata": (".metadata", put(0, b"gptx"), ".metadata", 0),
        "no tokenizer in the metadata": (".metadata", lambda data: data[4:], ".metadata", 0),
        "size written twice": (".metadata", lambda data: b"gpt2|2" + data[4:], ".metadata", 0),
        "final newline in the metadata": (".metadata", append(b"\n"), ".metadata", 7),
        "third line missing": (".metadata", keep(-7), ".metadata", 7),
        "no metadata left": (".metadata", keep(0), ".metadata", 0),
    }


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("fault", faults(2))
def test_nanoset_verify_names_file_and_byte_of(tmp_path, width, fault):
    write(tmp_path, GOLDEN, width)
    damaged, damage, named, at = faults(width)[fault]
    path = tmp_path / f"{STEM}.ds{damaged}"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(VerificationError) as caught:
        verify(tmp_path, width)
    assert f"{STEM}.ds{named}, byte {at}\n" in str(caught.value)


@pytest.mark.parametrize("suffix", ["", ".index", ".metadata"])
def test_nanoset_verify_names_the_missing_file(tmp_path, suffix):
    write(tmp_path, GOLDEN, 2)
    (tmp_path / f"{STEM}.ds{suffix}").unlink()
    with raises("export.file_missing", f"{STEM}.ds{suffix}\n"):
        verify(tmp_path, 2)


filled = st.lists(st.lists(st.integers(0, 50_000), min_size=1, max_size=9), max_size=12)


def write_both(folder: Path, docs: list[list[int]], vocabulary_size: int) -> tuple[dict[str, int], dict[str, int]]:
    """Counts of a written Nanoset (`written`) and of one linked to a Megatron part (`linked`)."""
    dtype, batches = megatron.token_dtype(vocabulary_size), oracle.batches_of(docs, "u2", [])
    ids = {"vocabulary_size": vocabulary_size}
    written = write_file(folder, "written", batches, eos_id=EOS, tokenizer_name="gpt2", **ids)
    if not docs:
        return written, no_counts()
    megatron.write_part(folder, "part", oracle.batches_of(docs, "u2", []), dtype=dtype, eod_id=EOS, **ids)
    return written, link_file(folder, "linked", megatron.open_part(folder / "part"), tokenizer_name="gpt2")


def files(folder: Path, stem: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob(f"{stem}.*"))]


@given(docs=filled, vocabulary_size=st.sampled_from([50_257, 65_536, 70_000]))
def test_nanoset_linked_to_a_megatron_part_equals_one_that_was_written(tmp_path_factory, docs, vocabulary_size):
    folder = tmp_path_factory.mktemp("shared")
    written, linked = write_both(folder, docs, vocabulary_size)
    assert linked == written
    assert files(folder, "linked") == files(folder, "written")
    if docs:
        assert (folder / "linked.ds").stat().st_ino == (folder / "part.bin").stat().st_ino


def test_nanoset_file_system_without_hard_links_gets_a_copy(tmp_path, monkeypatch) -> None:
    def refuse(_self: Path, _target: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    write_both(tmp_path, [[1, 2], [3]], 50_257)
    assert files(tmp_path, "linked") == files(tmp_path, "written")
    assert (tmp_path / "linked.ds").stat().st_ino != (tmp_path / "part.bin").stat().st_ino


def test_nanoset_other_error_of_a_link_passes(tmp_path, monkeypatch) -> None:
    def refuse(_self: Path, _target: Path) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(OSError, match="broken"):
        write_both(tmp_path, [[1, 2], [3]], 50_257)
