"""How far a step is: what one process counts, another reads, in its own slot alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numba.core import event

from corpusmill.builds.local import worker_pool
from corpusmill.kernels import advance
from corpusmill.kernels.advance import NO_SLOT, SLOT_BYTES, Advance
from corpusmill.kernels.shared_bytes import SharedBytes

SLOTS = 4


@pytest.fixture(autouse=True)
def no_slot() -> Iterator[None]:
    yield
    advance.use(NO_SLOT)


def counted(slot: int, whole: int, counts: list[int]) -> None:
    advance.use(slot)
    advance.begin(whole)
    for count in counts:
        advance.note(count)


counts = st.lists(st.integers(0, 1 << 40), max_size=5)


@given(st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 1 << 41), counts), max_size=10))
def test_slots_hold_what_their_last_step_counted_and_a_share_of_at_most_one(
    steps: list[tuple[int, int, list[int]]],
) -> None:
    memory = bytearray(SLOTS * SLOT_BYTES)
    last = dict.fromkeys(range(SLOTS), Advance(0, 0.0, compiling=False))
    with advance.shared(memory):
        for slot, whole, noted in steps:
            advance.clear(memory, slot)
            counted(slot, whole, noted)
            done = sum(noted)
            last[slot] = Advance(done, min(1.0, done / whole) if whole else 0.0, compiling=False)
            assert {number: advance.read(memory, number) for number in range(SLOTS)} == last


def test_steps_without_a_slot_count_into_no_other() -> None:
    memory = bytearray(SLOTS * SLOT_BYTES)
    counted(0, 10, [5])  # nothing is shared
    with advance.shared(memory):
        counted(NO_SLOT, 10, [5])
    counted(1, 10, [5])
    assert not any(memory)


def test_workers_count_where_the_builds_process_reads() -> None:
    slots = SharedBytes(SLOTS * SLOT_BYTES)
    memory = slots.mapped()
    with worker_pool(2, slots) as pool:
        for future in [pool.submit(counted, slot, 100, [slot, 20]) for slot in range(SLOTS)]:
            future.result()
    assert [advance.read(memory, slot)[:2] for slot in range(SLOTS)] == [
        (20 + slot, (20 + slot) / 100) for slot in range(SLOTS)
    ]


def test_compiling_is_seen_while_a_kernel_compiles_and_not_after() -> None:
    memory = bytearray(SLOT_BYTES)
    during = []

    class Watching(event.Listener):  # type: ignore[misc]
        def on_start(self, event: object) -> None:  # noqa: ARG002
            during.append(advance.read(memory, 0).compiling)

        def on_end(self, event: object) -> None:
            pass

    with advance.shared(memory):
        advance.use(0)
        with event.install_listener("numba:compile", Watching()):
            njit(lambda values: values.sum() * 3)(np.arange(3))
        assert during
        assert all(during)
        assert not advance.read(memory, 0).compiling


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the memory is a temporary file")
def test_shared_bytes_lie_in_no_file_system_that_may_be_full() -> None:
    """Touching memory in a full /dev/shm or temporary folder is a SIGBUS."""
    with SharedBytes(1 << 20).file as file:
        assert Path(f"/proc/self/fd/{file.fileno()}").readlink().name.startswith("memfd:")
