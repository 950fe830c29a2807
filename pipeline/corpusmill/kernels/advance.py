"""How far the step is that this process runs: counted in memory that the build's process may share and read.

    slot 0 | slot 1 | ...      32 B each, four uint64: bytes read | done | whole | kernels being compiled

The build gives every running step a slot, to which only the process that runs it writes. `done` of `whole` is how much
of the step's input is behind it, in a measure of which the step knows the whole beforehand: bytes of text, or stored
bytes where the text is not known yet. It is for people alone: no byte depends on it, and a step that counts nothing is
seen when it ends.

Price: 1 us a batch; a page of memory for every 128 steps that wait or run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

SLOTS = 1 << 16
SLOT_BYTES = 32
READ, DONE, WHOLE, COMPILING = range(4)
NO_SLOT = -1  # of a step that is seen when it ends

_shared: list[Any] = []
"""At most one: the memory that holds all slots."""
_slot = [memoryview(bytearray(SLOT_BYTES)).cast("Q")]
"""One: the slot in use."""


class Advance(NamedTuple):
    """How far a step is: the bytes that it has read, the share of its input, whether a kernel is being compiled."""

    bytes_read: int
    share: float
    compiling: bool


def share(memory: Any) -> None:
    """From now on slots lie in this memory, of SLOTS * SLOT_BYTES bytes."""
    _shared[:] = [memory]


@contextmanager
def shared(memory: Any) -> Iterator[None]:
    """The same during the `with`."""
    before = _shared[:]
    share(memory)
    try:
        yield
    finally:
        _shared[:] = before
        use(NO_SLOT)


def use(slot: int) -> None:
    """The step that begins has this slot."""
    hidden = slot == NO_SLOT or not _shared
    _slot[:] = [memoryview(bytearray(SLOT_BYTES)).cast("Q") if hidden else _words(_shared[0], slot)]


def begin(whole: int) -> None:
    """The step has an input of this size."""
    [own] = _slot
    own[DONE], own[WHOLE] = 0, whole


def note(bytes_read: int, done: int | None = None) -> None:
    """The step has read these bytes, which are as much of its input, unless `done` is something else."""
    [own] = _slot
    own[READ] += bytes_read
    own[DONE] += bytes_read if done is None else done


def note_done(done: int) -> None:
    """So much more of the input is behind the step, such as compressed bytes, whatever was read."""
    note(0, done)


def note_compiling(change: int) -> None:
    """The compiler has begun (1) or ended (-1) a kernel."""
    [own] = _slot
    own[COMPILING] = max(0, own[COMPILING] + change)


def clear(memory: Any, slot: int) -> None:
    """Nothing is done of the step that will have this slot."""
    _words(memory, slot)[:] = memoryview(bytes(SLOT_BYTES)).cast("Q")


def read(memory: Any, slot: int) -> Advance:
    """What the step with this slot has counted so far."""
    own = _words(memory, slot)
    done, whole = own[DONE], own[WHOLE]
    return Advance(own[READ], min(1.0, done / whole) if whole else 0.0, own[COMPILING] > 0)


def _words(memory: Any, slot: int) -> memoryview:
    return memoryview(memory)[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES].cast("Q")
