"""Files are whole or absent."""

from __future__ import annotations

import errno

import pytest

from corpusmill.errors import StorageFullError, VerificationError
from corpusmill.export.files import file_bytes, mapped, whole_file


def test_whole_file_appears_only_after_the_block(tmp_path):
    path = tmp_path / "x.bin"
    with whole_file(path) as file:
        file.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.bin"]


def test_whole_file_error_inside_leaves_nothing_not_even_the_older_file(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(b"new %d" % (1 // 0))
    assert list(tmp_path.iterdir()) == []


def test_nanoset_n10_file_nobody_wrote_to_is_not_kept(tmp_path):
    with whole_file(tmp_path / "x.ds"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_whole_file_full_device_is_a_transient_error(tmp_path, number):
    with pytest.raises(StorageFullError) as caught, whole_file(tmp_path / "x"):
        raise OSError(number, "full")
    assert "x" in str(caught.value)


def test_whole_file_other_system_errors_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "absent" / "x"):
        pass


def test_mapped_of_nothing_is_empty(tmp_path):
    (tmp_path / "x").touch()
    assert mapped(tmp_path / "x", "<u2", 0).size == 0


def test_file_bytes_of_a_missing_file_names_it(tmp_path):
    with pytest.raises(VerificationError, match="missing") as caught:
        file_bytes(tmp_path / "x")
    assert "x" in str(caught.value)
