"""One token file under two names: a Nanoset made from a Megatron part equals one that was written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.export import megatron, nanoset
from tests.oracles import export as oracle

EOD = 50_256
documents = st.lists(st.lists(st.integers(0, 50_000), min_size=1, max_size=9), max_size=12)


def write_both(folder: Path, docs: list[list[int]], vocabulary_size: int) -> tuple[dict[str, int], dict[str, int]]:
    """Counts of a written Nanoset (`written`) and of one linked to a Megatron part (`linked`)."""
    dtype, batches = megatron.token_dtype(vocabulary_size), oracle.batches_of(docs, "u2", [])
    ids = {"vocabulary_size": vocabulary_size}
    written = nanoset.write_file(folder, "written", batches, eos_id=EOD, tokenizer_name="gpt2", **ids)
    if not docs:
        return written, nanoset.no_counts()
    megatron.write_part(folder, "part", oracle.batches_of(docs, "u2", []), dtype=dtype, eod_id=EOD, **ids)
    return written, nanoset.link_file(folder, "linked", megatron.open_part(folder / "part"), tokenizer_name="gpt2")


def files(folder: Path, stem: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob(f"{stem}.*"))]


@given(docs=documents, vocabulary_size=st.sampled_from([50_257, 65_536, 70_000]))
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
