"""A finished step that runs again: its old outputs stay until the new outputs are whole."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from corpusmill.engine.ledger import (
    RECEIPT_NAME,
    Outcome,
    Step,
    read_receipt,
    request_rerun,
    rerun_requested,
    run_once,
    valid_receipt,
)

STEP = Step("index", 1, "00000", {"text_field": "text"}, ())
FILES = {"a.bin": b"abc", "sub/b.bin": b"defg"}


def write(folder: Path, files: dict[str, bytes] = FILES) -> Outcome:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return Outcome(counts={"documents": len(files)})


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """The folder of a finished step that is to run again."""
    folder = run_once(STEP, tmp_path, write).parent
    request_rerun(folder)
    return folder


def test_step_asked_for_again_runs_once_and_its_old_outputs_stay_meanwhile(asked: Path, tmp_path: Path) -> None:
    ran = []

    def body(folder: Path) -> Outcome:
        receipt = valid_receipt(STEP, tmp_path, verify=True)
        assert receipt is not None
        ran.append(receipt.digest)
        assert {name: (asked / name).read_bytes() for name in FILES} == FILES
        assert list(folder.iterdir()) == []
        outcome = write(folder)
        assert valid_receipt(STEP, tmp_path, verify=True) is not None
        return outcome

    inode = (asked / "a.bin").stat().st_ino
    with (asked / "a.bin").open("rb"):  # so that no other file gets its inode
        for _ in range(2):
            assert run_once(STEP, tmp_path, body) == asked / RECEIPT_NAME
        assert (asked / "a.bin").stat().st_ino != inode
    assert ran == [read_receipt(asked / RECEIPT_NAME).digest]
    assert sorted(path.name for path in asked.iterdir()) == [".blocks", ".lock", "a.bin", RECEIPT_NAME, "sub"]


def test_step_that_fails_when_it_runs_again_keeps_its_receipt_and_is_still_asked_for(
    asked: Path, tmp_path: Path
) -> None:
    def fail(folder: Path) -> Outcome:
        (folder / "half").write_bytes(b"x")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_once(STEP, tmp_path, fail)
    assert valid_receipt(STEP, tmp_path, verify=True) is not None
    assert rerun_requested(asked)
    run_once(STEP, tmp_path, write)
    assert not rerun_requested(asked)
    assert not list(asked.rglob("half"))


def test_other_bytes_take_the_places_of_all_that_was_there(asked: Path, tmp_path: Path) -> None:
    (asked / "left.over").write_bytes(b"of an earlier try")
    (asked / "sub" / "deep").mkdir()
    other = {"a.bin/now": b"a folder", "sub/deep": b"a file", "sub/c.bin": b"new"}
    receipt = read_receipt(run_once(STEP, tmp_path, lambda folder: write(folder, other)))
    assert {output.name for output in receipt.outputs} == set(other)
    assert valid_receipt(STEP, tmp_path, verify=True) == receipt
    assert set(files_below(asked)) == {*other, ".blocks", ".lock", RECEIPT_NAME}


def test_mark_that_leads_elsewhere_is_not_followed(asked: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_bytes(b"mine")
    (asked / ".again").rmdir()
    (asked / ".again").symlink_to(elsewhere)
    run_once(STEP, tmp_path, write)
    assert files_below(elsewhere) == {"mine": b"mine"}
    assert valid_receipt(STEP, tmp_path, verify=True) is not None


def test_step_that_has_not_finished_needs_no_asking(tmp_path: Path) -> None:
    folder = STEP.folder(tmp_path)
    folder.mkdir(parents=True)
    request_rerun(folder)
    assert not rerun_requested(folder)
    assert list(folder.iterdir()) == []


def _killed_at(call: int, work: Path) -> None:
    """Run the step in a process that dies at its `call`-th change of a name, or fsync."""
    calls = 0

    def dying(function: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return counted

    Path.replace, Path.unlink, os.fsync, os.rmdir = map(  # type: ignore[method-assign,assignment]
        dying, (Path.replace, Path.unlink, os.fsync, os.rmdir)
    )
    run_once(STEP, work, write)


def test_step_killed_at_any_moment_of_running_again_has_a_valid_receipt_and_runs_once_more(
    asked: Path, tmp_path: Path
) -> None:
    killed = 0
    for call in range(1, 100):
        request_rerun(asked)
        process = multiprocessing.get_context("fork").Process(target=_killed_at, args=(call, tmp_path))
        process.start()
        process.join()
        assert valid_receipt(STEP, tmp_path, verify=True) is not None, call
        if process.exitcode == 0:
            break
        killed += 1
        assert rerun_requested(asked)
    assert killed > 5
    run_once(STEP, tmp_path, write)
    assert not rerun_requested(asked)
    assert {name: (asked / name).read_bytes() for name in FILES} == FILES
