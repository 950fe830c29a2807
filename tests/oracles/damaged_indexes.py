"""Eight kinds of damage to an index, as known bugs of the field and careless copies leave them; by struct alone."""

from __future__ import annotations

import struct
from collections.abc import Callable

Damage = Callable[[bytes, bytes], bytes]
"""An index of at least three documents, and the index of another file -> the damaged index."""


def _changed(layout: str, first: Callable[[bytes], int], count: Callable[[bytes], int], change: object) -> Damage:
    def damaged(index: bytes, _other: bytes) -> bytes:
        at, items = first(index), count(index)
        numbers = list(struct.unpack_from(f"<{items}{layout}", index, at))
        change(numbers)  # type: ignore[operator]
        return index[:at] + struct.pack(f"<{items}{layout}", *numbers) + index[at + items * 8 :]

    return damaged


def _put(place: int, step: int) -> Callable[[list[int]], None]:
    def change(numbers: list[int]) -> None:
        numbers[place] += step

    return change


def _fall(numbers: list[int]) -> None:
    numbers[2] = numbers[1] - 1


def _move(numbers: list[int]) -> None:
    numbers[:] = [number + 2 for number in numbers]


def _swap(numbers: list[int]) -> None:
    numbers[0], numbers[1] = numbers[1], numbers[0]


def _begin_with_nothing(numbers: list[int]) -> None:
    numbers[0] = 0


def _sequences(index: bytes) -> int:
    return int(struct.unpack_from("<Q", index, 18)[0])


def _megatron(part: str, change: Callable[[list[int]], None]) -> Damage:
    """Change the pointers (i64 behind the lengths), or the boundaries (i64 behind the pointers)."""
    if part == "pointers":
        return _changed("q", lambda index: 34 + 4 * _sequences(index), _sequences, change)
    count = lambda index: int(struct.unpack_from("<Q", index, 26)[0])  # noqa: E731
    return _changed("q", lambda index: 34 + 12 * _sequences(index), count, change)


def _nanoset(change: Callable[[list[int]], None]) -> Damage:
    return _changed("Q", lambda _index: 0, lambda index: len(index) // 8, change)


WHOLE: dict[str, Damage] = {
    "cut": lambda index, _other: index[:-8],
    "doubled": lambda index, _other: index + index,
    "of another file": lambda _index, other: other,
}
MEGATRON: dict[str, Damage] = {
    "falling": _megatron("boundaries", _fall),
    "first not 0": _megatron("boundaries", _put(0, 1)),
    "last too small": _megatron("boundaries", _put(-1, -1)),
    "moved": _megatron("pointers", _move),
    "swapped": _megatron("pointers", _swap),
    **WHOLE,
}
NANOSET: dict[str, Damage] = {
    "falling": _nanoset(_fall),
    "first without tokens": _nanoset(_begin_with_nothing),
    "last too small": _nanoset(_put(-1, -1)),
    "moved": _nanoset(_move),
    "swapped": _nanoset(_swap),
    **WHOLE,
}
