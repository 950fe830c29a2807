"""Digests of blocks: which bytes of an output are compared when it is opened, and that every one of them counts."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from corpusmill.engine.ledger import (
    RECEIPT_NAME,
    Blocks,
    Outcome,
    Step,
    compared,
    read_receipt,
    run_once,
)
from corpusmill.engine.ledger.blocks import BLOCK_BYTES, WINDOW_BLOCKS
from tests.raising import raises

WINDOW_BYTES = BLOCK_BYTES * WINDOW_BLOCKS
SIZES = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, WINDOW_BYTES, 2 * WINDOW_BYTES + BLOCK_BYTES + 7]
EVERY = (1 << 63) - 1


def opened(work: Path, size: int) -> tuple[Path, Blocks]:
    """A finished step's output of `size` bytes, behind another one, and the step's blocks."""

    def body(folder: Path) -> Outcome:
        (folder / "a").write_bytes(b"before it")
        (folder / "b").write_bytes(bytes(place % 251 for place in range(1000)) * (size // 1000 + 1))
        with (folder / "b").open("r+b") as file:
            file.truncate(size)
        return Outcome()

    folder = run_once(Step("stage", 1, "unit", {"size": size}, ()), work, body).parent
    return folder / "b", Blocks(folder, read_receipt(folder / RECEIPT_NAME))


def flip(path: Path, place: int) -> None:
    """And forget which blocks were right: on some systems a file may change twice without another time of change."""
    compared.forget()
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("size", SIZES)
def test_blocks_one_flipped_byte_anywhere_is_damage_of_that_block(tmp_path: Path, size: int) -> None:
    path, blocks = opened(tmp_path, size)
    blocks.require()
    borders = {border + by for border in (0, BLOCK_BYTES, WINDOW_BYTES, 2 * WINDOW_BYTES, size) for by in (-1, 0)}
    for place in sorted(place for place in borders if 0 <= place < size):
        flip(path, place)
        with raises("step.output_damaged", f"block {place // BLOCK_BYTES:,} as written"):
            blocks.open("b", 0, EVERY).close()
        flip(path, place)
        blocks.require()


def test_blocks_of_a_slice_are_compared_and_no_others(tmp_path: Path) -> None:
    path, blocks = opened(tmp_path, SIZES[-1])
    flip(path, WINDOW_BYTES + 5)
    blocks.open("b", 0, WINDOW_BYTES).close()
    blocks.open("b", WINDOW_BYTES + BLOCK_BYTES, EVERY).close()
    with raises("step.output_damaged"):
        blocks.open("b", WINDOW_BYTES + BLOCK_BYTES - 1, WINDOW_BYTES + BLOCK_BYTES).close()


@pytest.mark.parametrize("size", [BLOCK_BYTES - 1, WINDOW_BYTES - 1, WINDOW_BYTES + 1])
def test_blocks_of_a_file_that_was_cut_is_damage(tmp_path: Path, size: int) -> None:
    path, blocks = opened(tmp_path, SIZES[-1])
    with path.open("r+b") as file:
        file.truncate(size)
    with raises("step.output_damaged"):
        blocks.require()


def test_short_slice_of_a_file_that_is_not_cached_is_all_that_is_read_from_the_disk() -> None:
    """The kernel reads ahead of a slice, and behind it: files of sections would be read several times over."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as scratch:  # a temporary folder may be in memory
        path, blocks = opened(Path(scratch), 8 * WINDOW_BYTES)
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = bytes_from_disk()
        blocks.open("b", 3 * WINDOW_BYTES + 5, 3 * WINDOW_BYTES + 2 * BLOCK_BYTES).close()
        read = bytes_from_disk() - before
        if not read:
            pytest.skip("this file system does not count reads, or kept the file in memory")
        assert read <= 3 * BLOCK_BYTES


def bytes_from_disk() -> int:
    """What this process has had read from disks."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["read_bytes"])


def test_output_that_its_own_process_has_just_written_is_not_read_again_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, blocks = opened(tmp_path, 3 * BLOCK_BYTES)
    with monkeypatch.context() as forbidding:
        forbidding.setattr("corpusmill.engine.ledger.blocks._digests_of", None)
        blocks.open("b").close()
    before = path.stat().st_ctime_ns
    with path.open("r+b") as file:
        while path.stat().st_ctime_ns == before:  # the clock of a file system may tick slowly
            file.seek(BLOCK_BYTES)
            file.write(b"!")
            file.flush()
    with raises("step.output_damaged", "block 1 as written"):
        blocks.open("b").close()


@pytest.mark.parametrize("kind", ["gone", "folder", "pipe", "link to itself"])
def test_output_that_is_no_file_any_more_is_damage_and_nobody_waits_for_it(tmp_path: Path, kind: str) -> None:
    path, blocks = opened(tmp_path, 7)
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to itself":
        path.symlink_to(path)
    with raises("step.output_damaged"):
        blocks.open("b").close()


def test_output_that_cannot_be_opened_for_another_reason_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, blocks = opened(tmp_path, 7)

    def refused(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(OSError, match="too many open files"):
        blocks.open("b").close()
