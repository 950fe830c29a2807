"""Outputs that were given back: the receipt stands, and whoever needs the bytes has the step run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.ledger import (
    RECEIPT_NAME,
    Blocks,
    DamagedStepError,
    Outcome,
    Step,
    ask_again,
    give_back,
    held,
    nobody_reading,
    read_receipt,
    reading,
    run_once,
    valid_receipt,
)
from corpusmill.ledger.lock import LOCK_NAME

STEP = Step("stage", 1, "unit", {}, ())


def write(folder: Path) -> Outcome:
    (folder / "tokens").write_bytes(b"many")
    (folder / "rows").write_bytes(b"few")
    return Outcome(counts={"records": 1})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return run_once(STEP, tmp_path, write).parent


def test_given_back_step_keeps_its_receipt_its_time_and_its_other_files(tmp_path: Path, folder: Path) -> None:
    before, at = read_receipt(folder / RECEIPT_NAME), (folder / RECEIPT_NAME).stat().st_mtime_ns
    after = give_back(folder, ("tok*",))
    assert after is not None
    assert after.given_back == ("tokens",)
    assert after.text() == (folder / RECEIPT_NAME).read_bytes()
    for verify in (False, True):
        assert valid_receipt(STEP, tmp_path, verify=verify) == read_receipt(folder / RECEIPT_NAME)
    assert (after.digest, (folder / RECEIPT_NAME).stat().st_mtime_ns) == (before.digest, at)
    assert not (folder / "tokens").exists()
    Blocks(folder, after).require(["rows"])


def test_given_back_output_that_is_opened_is_a_damaged_step_that_says_so(folder: Path) -> None:
    receipt = give_back(folder, ("*",))
    assert receipt is not None
    with pytest.raises(DamagedStepError, match="was freed") as caught:
        Blocks(folder, receipt).require(["tokens"])
    assert (caught.value.stage, caught.value.unit) == ("stage", "unit")


def test_given_back_step_that_runs_again_is_whole(tmp_path: Path, folder: Path) -> None:
    give_back(folder, ("*",))
    receipt = read_receipt(run_once(STEP, tmp_path, write))
    assert receipt.given_back == ()
    Blocks(folder, receipt).require()


def test_given_back_lost_file_of_another_name_is_damage_all_the_same(tmp_path: Path, folder: Path) -> None:
    give_back(folder, ("tokens",))
    (folder / "rows").unlink()
    assert valid_receipt(STEP, tmp_path) is None


def test_give_back_that_was_killed_before_it_deleted_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            give_back(folder, ("tokens",))
    assert read_receipt(folder / RECEIPT_NAME).given_back == ("tokens",)
    assert (folder / "tokens").exists()
    give_back(folder, ("tokens",))
    assert not (folder / "tokens").exists()


def test_give_back_of_a_step_that_is_to_run_again_or_is_locked_does_nothing(folder: Path) -> None:
    with held(folder / LOCK_NAME, wait=False):
        assert give_back(folder, ("*",)) is None
    ask_again(folder)
    assert give_back(folder, ("*",)) is None
    assert (folder / "tokens").exists()


def test_reading_keeps_others_from_being_alone_until_all_have_read(tmp_path: Path) -> None:
    with reading(tmp_path):
        with reading(tmp_path), nobody_reading(tmp_path) as alone:
            assert not alone
        with nobody_reading(tmp_path) as alone:
            assert not alone
    with nobody_reading(tmp_path) as alone:
        assert alone
