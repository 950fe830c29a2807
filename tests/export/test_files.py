"""Files are whole or absent."""

from __future__ import annotations

import errno
import os

import pytest

from corpusmill.export.files import INCOMPLETE, file_bytes, whole_file, whole_files
from tests.raising import raises


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


def test_nanoset_file_nobody_wrote_to_is_not_kept(tmp_path):
    with whole_file(tmp_path / "x.ds"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_whole_file_full_device_is_a_transient_error(tmp_path, number):
    with raises("export.disk_full"), whole_file(tmp_path / "x"):
        raise OSError(number, "full")


def test_whole_file_other_system_errors_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "absent" / "x"):
        pass


def test_whole_file_two_writers_at_once_second_fails_and_first_keeps_its_bytes(tmp_path):
    path = tmp_path / "x.bin"
    with whole_file(path) as first:
        first.write(b"A" * 10)
        with raises("output.being_written"), whole_file(path) as second:
            second.write(b"B")
    assert path.read_bytes() == b"A" * 10
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.bin"]


def test_whole_file_leftover_of_a_killed_run_is_overwritten(tmp_path):
    (tmp_path / "x.bin.partial").write_bytes(b"of a killed run")
    with whole_file(tmp_path / "x.bin") as file:
        file.write(b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("x.bin", b"new")]


def test_whole_file_file_system_without_locks_is_written_to(tmp_path, monkeypatch):
    def refused(*_arguments):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("corpusmill.export.files.fcntl.flock", refused)
    with whole_file(tmp_path / "x.bin") as file:
        file.write(b"new")
    assert (tmp_path / "x.bin").read_bytes() == b"new"


def test_whole_files_get_their_names_together_and_only_without_an_error(tmp_path):
    (tmp_path / INCOMPLETE / "deep").mkdir(parents=True)
    (tmp_path / INCOMPLETE / "c").write_bytes(b"of a killed run")

    def written(number: int) -> None:
        with whole_files(tmp_path) as inner:
            (inner / "a").write_bytes(b"%d" % (1 // number))
            (inner / "b").write_bytes(b"x")
            assert not (tmp_path / "b").exists()
            with raises("output.being_written"), whole_files(tmp_path):
                pass

    with pytest.raises(ZeroDivisionError):
        written(0)
    assert list(tmp_path.iterdir()) == []
    written(1)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "b"]


def test_file_bytes_of_a_missing_file_names_it(tmp_path):
    with raises("export.file_missing"):
        file_bytes(tmp_path / "x")
