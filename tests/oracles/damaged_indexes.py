"""Eight kinds of damage to an index, as known bugs of the field and careless copies leave them; by struct alone."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

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


def read_megatron(data: bytes, index: bytes) -> list[list[int]] | None:
    """The documents that a .bin and its .idx hold; None if the index is not one of this .bin."""
    if len(index) < 34 or index[:17] != b"MMIDIDX\0\0" + struct.pack("<Q", 1) or index[17] not in {4, 8}:
        return None
    sequences, bounds = struct.unpack_from("<QQ", index, 18)
    if len(index) != 34 + 12 * sequences + 8 * bounds or not bounds:
        return None
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    pointers = struct.unpack_from(f"<{sequences}q", index, 34 + 4 * sequences)
    boundaries = struct.unpack_from(f"<{bounds}q", index, 34 + 12 * sequences)
    width = {8: 2, 4: 4}[index[17]]
    starts = [width * sum(lengths[:number]) for number in range(sequences + 1)]
    rises = list(boundaries) == sorted(boundaries) and boundaries[0] == 0 and boundaries[-1] == sequences
    if not rises or min(lengths, default=0) < 0 or [*pointers, len(data)] != starts:
        return None
    return [_ids(data[starts[first] : starts[last]], width) for first, last in pairwise(boundaries)]


def read_ends(data: bytes, index: bytes, width: int, *, empty: bool = False) -> list[list[int]] | None:
    """The documents that tokens and their ends hold, `empty` ones too; None if the ends are not those of the tokens."""
    if len(index) % 8:
        return None
    ends = [0, *struct.unpack(f"<{len(index) // 8}Q", index)]
    if any(last < first + (not empty) for first, last in pairwise(ends)) or ends[-1] * width != len(data):
        return None
    return [_ids(data[first * width : last * width], width) for first, last in pairwise(ends)]


def _ids(data: bytes, width: int) -> list[int]:
    return list(struct.unpack(f"<{len(data) // width}{ {2: 'H', 4: 'I'}[width] }", data))
