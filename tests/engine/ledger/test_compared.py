"""The table of compared blocks: it never says of a block that it was compared if nobody has compared it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.local import worker_pool
from corpusmill.engine.ledger import RECEIPT_NAME, Blocks, Outcome, Step, compared, read_receipt, run_once
from corpusmill.engine.ledger.compared import ENTRY_BYTES, ComparedBlocks

ENTRIES = 16


@pytest.fixture(autouse=True)
def own_table() -> Iterator[None]:
    yield
    compared.forget()


def status(inode: int, size: int, changed: int) -> os.stat_result:
    fields = [0o100644, inode, 0, 1, 0, 0, size, 0, 0, 0]
    return os.stat_result([*fields, 0.0, 0.0, 0.0, 0, 0, changed])


paths = st.sampled_from(["a", "b\udcff", "c\0"])
files = st.tuples(paths, st.integers(0, 2), st.integers(0, ENTRIES + 3), st.integers(0, 1))


@given(st.lists(st.tuples(files, st.lists(st.integers(0, ENTRIES + 2), max_size=3)), max_size=30))
def test_table_of_few_entries_says_only_of_blocks_that_were_added_that_they_were(
    added: list[tuple[tuple[str, int, int, int], list[int]]],
) -> None:
    compared.use(bytearray(ENTRIES * ENTRY_BYTES))
    known: set[tuple[tuple[str, int, int, int], int]] = set()
    for file, wanted in added:
        path, inode, blocks, changed = file
        table = ComparedBlocks(path, status(inode, blocks << 20, changed), blocks)
        numbers = [number for number in wanted if number < blocks]
        table.add(numbers)
        known |= {(file, number) for number in numbers}
        missing = table.missing(0, blocks)
        assert all((file, number) in known for number in {*range(blocks)} - {*missing})
        assert not {*numbers} & {*missing} or blocks > ENTRIES
        assert [*missing] == [number for number in range(blocks) if table.missing(number, number + 1)]


def test_table_of_enough_entries_forgets_none() -> None:
    compared.forget()
    tables = [ComparedBlocks(f"{number}", status(number, 100 << 20, 1), 100) for number in range(20)]
    for table in tables:
        table.add(range(10, 90))
    assert [table.missing(0, 100) for table in tables] == [[*range(10), *range(90, 100)]] * len(tables)


def finished(work: Path) -> Path:
    def body(folder: Path) -> Outcome:
        (folder / "a").write_bytes(b"x" * 3_000_000)
        return Outcome()

    return run_once(Step("stage", 1, "unit", {}, ()), work, body).parent


def open_without_comparing(folder: Path) -> bool:
    """Whether an output can be opened where nothing can be compared: in a worker, by what others have compared."""
    with patch("corpusmill.engine.ledger.blocks._digests_of", None):
        try:
            Blocks(folder, read_receipt(folder / RECEIPT_NAME)).require()
        except TypeError:
            return False
    return True


def test_workers_know_what_others_of_their_build_have_compared(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    with worker_pool(2) as pool:
        assert [pool.submit(open_without_comparing, finished(here)).result() for _ in range(4)] == [True] * 4
        folder = pool.submit(finished, there).result()
        assert open_without_comparing(folder)
        before = (folder / "a").stat().st_ctime_ns
        while (folder / "a").stat().st_ctime_ns == before:  # the clock of a file system may tick slowly
            (folder / "a").touch()
        assert not open_without_comparing(folder)
        assert [pool.submit(open_without_comparing, folder).result() for _ in range(4)] == [False] * 4
    compared.forget()
    assert not open_without_comparing(folder)


@given(st.sets(st.integers(0, ENTRIES - 1)), st.integers(0, ENTRIES))
def test_blocks_of_a_file_that_got_more_of_them_stay_known(known: set[int], blocks: int) -> None:
    compared.forget()
    before, after = (ComparedBlocks("a", status(1, blocks << 20, changed), blocks) for changed in (1, 2))
    before.add(number for number in known if number < blocks)
    after.add_all_of(before)
    assert after.missing(0, blocks) == before.missing(0, blocks) == sorted({*range(blocks)} - known)
