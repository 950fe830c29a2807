"""A power cut takes what the device had not written yet: receipts are there, and their outputs empty, zeros or gone."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from corpusmill.engine.ledger import RECEIPT_NAME, read_receipt
from tests.system.reclaimed import build, outputs, write_files


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


LOSSES: dict[str, Callable[[Path], None]] = {"emptied": emptied, "zeros": zeros, "gone": Path.unlink}


def lose(work: Path, losses: list[Callable[[Path], None]], seed: int) -> int:
    """Take outputs of finished steps, their block digests among them; returns how many files changed."""
    drawn, lost = random.Random(seed), 0
    for place in sorted(work.rglob(RECEIPT_NAME)):
        outputs_of = (place.parent / output.name for output in read_receipt(place).outputs)
        for path in [place.parent / ".blocks", *outputs_of]:
            if path.stat().st_size and drawn.random() < 0.8:
                drawn.choice(losses)(path)
                lost += 1
    return lost


@pytest.mark.parametrize("kind", [*LOSSES, "mixed"])
@pytest.mark.parametrize("delivered", [True, False])
def test_build_after_a_power_cut_delivers_the_same_bytes(tmp_path: Path, kind: str, delivered: bool) -> None:
    write_files(tmp_path / "corpus", 1, 2, 3)
    built = build(tmp_path, "keep")
    before = outputs(tmp_path)
    if not delivered:
        shutil.rmtree(tmp_path / "outputs")
    losses = list(LOSSES.values()) if kind == "mixed" else [LOSSES[kind]]
    assert lose(built.work, losses, seed=len(kind) + delivered) > 50
    build(tmp_path, "keep")
    assert outputs(tmp_path) == before
