"""Checkpoints: what a second try may keep, and what it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.ledger import Outcome, Step, checkpoints_in, current_checkpoint, run_once


class Memory:
    """Checkpoints as a scheduler keeps them: JSON in, JSON out."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self.saves = 0

    def load(self) -> dict[str, Any] | None:
        return self.state

    def save(self, state: dict[str, Any]) -> None:
        self.state = state
        self.saves += 1


class CutOffError(Exception):
    """The worker dies here."""


def step(seed: int = 1) -> Step:
    return Step("tokenize", 1, "00000", {"seed": seed}, ())


def writing(stop: int | None) -> Any:
    """A body that appends a line for each of ten batches behind what is kept, and dies before batch `stop`."""

    def body(folder: Path) -> Outcome:
        checkpoint = current_checkpoint()
        done = checkpoint.kept.get("lines", 0) // 8
        with (folder / "lines").open("r+b" if done else "wb") as file:
            file.truncate(done * 8)
            file.seek(done * 8)
            for number in range(done, 10):
                if number == stop:
                    raise CutOffError
                file.write(b"%07d\n" % number)
                file.flush()
                checkpoint.save(number + 1, 10, ("lines",))
        return Outcome(counts={"begun_at": done})

    return body


@pytest.fixture(autouse=True)
def _save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.ledger.checkpoint.SAVE_SECONDS", 0.0)


def cut_off(work: Path, memory: Memory, stop: int = 6) -> Path:
    """Run until batch `stop`; returns the step's folder."""
    with checkpoints_in(memory), pytest.raises(CutOffError):
        run_once(step(), work, writing(stop))
    return step().folder(work)


def begun_at(work: Path, memory: Memory, one: Step | None = None) -> int:
    """Where the second try began; its file must be whole in any case."""
    from pipeline.ledger import read_receipt

    with checkpoints_in(memory):
        receipt = read_receipt(run_once(one or step(), work, writing(None)))
    lines = ((one or step()).folder(work) / "lines").read_bytes()
    assert lines == b"".join(b"%07d\n" % number for number in range(10))
    return receipt.counts["begun_at"]


def test_second_try_goes_on_where_the_first_one_was_cut_off(tmp_path: Path) -> None:
    memory = Memory()
    cut_off(tmp_path, memory)
    assert memory.state is not None
    assert (memory.state["done_bytes"], memory.state["total_bytes"], memory.state["unit"]) == (6, 10, "00000")
    assert begun_at(tmp_path, memory) == 6


def test_bytes_behind_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    memory = Memory()
    with (cut_off(tmp_path, memory) / "lines").open("ab") as file:
        file.write(b"half a ba")
    assert begun_at(tmp_path, memory) == 6


@pytest.mark.parametrize("harm", ["changed", "shorter", "gone"])
def test_file_that_is_not_what_the_checkpoint_says_starts_from_clean(tmp_path: Path, harm: str) -> None:
    memory = Memory()
    path = cut_off(tmp_path, memory) / "lines"
    data = path.read_bytes()
    path.unlink()
    if harm != "gone":
        path.write_bytes(b"x" + data[1:] if harm == "changed" else data[:-1])
    assert begun_at(tmp_path, memory) == 0


def test_checkpoint_of_another_configuration_is_not_followed(tmp_path: Path) -> None:
    memory = Memory()
    cut_off(tmp_path, memory)
    assert begun_at(tmp_path, memory, step(seed=2)) == 0


def test_without_a_scheduler_nothing_is_kept(tmp_path: Path) -> None:
    with pytest.raises(CutOffError):
        run_once(step(), tmp_path, writing(6))
    run_once(step(), tmp_path, writing(None))
    assert (step().folder(tmp_path) / "lines").stat().st_size == 80


def test_saves_are_no_more_frequent_than_their_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.ledger.checkpoint.SAVE_SECONDS", 3600.0)
    memory = Memory()
    with checkpoints_in(memory):
        run_once(step(), tmp_path, writing(None))
    assert memory.saves == 0
