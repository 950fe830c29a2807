"""Outputs that were reclaimed: the receipt stays valid, and whoever needs the bytes has the step run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.engine.ledger import (
    RECEIPT_NAME,
    Blocks,
    Outcome,
    Step,
    locked,
    nobody_reading,
    read_receipt,
    reading,
    reclaim_outputs,
    request_rerun,
    run_once,
    valid_receipt,
)
from corpusmill.engine.ledger.lock import LOCK_NAME
from tests.raising import raises

STEP = Step("stage", 1, "unit", {}, ())


def write(folder: Path) -> Outcome:
    (folder / "tokens").write_bytes(b"many")
    (folder / "rows").write_bytes(b"few")
    return Outcome(counts={"records": 1})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return run_once(STEP, tmp_path, write).parent


def test_reclaimed_step_keeps_its_receipt_its_time_and_its_other_files(tmp_path: Path, folder: Path) -> None:
    before, at = read_receipt(folder / RECEIPT_NAME), (folder / RECEIPT_NAME).stat().st_mtime_ns
    after = reclaim_outputs(folder, ("tok*",))
    assert after is not None
    assert after.reclaimed == ("tokens",)
    assert after.text() == (folder / RECEIPT_NAME).read_bytes()
    for verify in (False, True):
        assert valid_receipt(STEP, tmp_path, verify=verify) == read_receipt(folder / RECEIPT_NAME)
    assert (after.digest, (folder / RECEIPT_NAME).stat().st_mtime_ns) == (before.digest, at)
    assert not (folder / "tokens").exists()
    Blocks(folder, after).require(["rows"])


def test_reclaimed_output_that_is_opened_is_a_damaged_step_that_says_so(folder: Path) -> None:
    receipt = reclaim_outputs(folder, ("*",))
    assert receipt is not None
    with raises("step.output_reclaimed") as caught:
        Blocks(folder, receipt).require(["tokens"])
    assert (caught.value.stage, caught.value.unit) == ("stage", "unit")


def test_reclaimed_lost_file_of_another_name_is_damage_all_the_same(tmp_path: Path, folder: Path) -> None:
    reclaim_outputs(folder, ("tokens",))
    (folder / "rows").unlink()
    assert valid_receipt(STEP, tmp_path) is None


def test_reclaiming_that_was_killed_before_it_deleted_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            reclaim_outputs(folder, ("tokens",))
    assert read_receipt(folder / RECEIPT_NAME).reclaimed == ("tokens",)
    assert (folder / "tokens").exists()
    reclaim_outputs(folder, ("tokens",))
    assert not (folder / "tokens").exists()


def test_reclaiming_of_a_step_that_is_to_run_again_or_is_locked_does_nothing(folder: Path) -> None:
    with locked(folder / LOCK_NAME, wait=False):
        assert reclaim_outputs(folder, ("*",)) is None
    request_rerun(folder)
    assert reclaim_outputs(folder, ("*",)) is None
    assert (folder / "tokens").exists()


def test_reading_keeps_others_from_being_alone_until_all_have_read(tmp_path: Path) -> None:
    with reading(tmp_path):
        with reading(tmp_path), nobody_reading(tmp_path) as alone:
            assert not alone
        with nobody_reading(tmp_path) as alone:
            assert not alone
    with nobody_reading(tmp_path) as alone:
        assert alone
