"""What a fuzz target is, and how bytes are changed.

A target draws inputs, most of them almost right, and checks one: its outcome in a word ("read", "refused", ...), or an
exception, which is a fault. An input is bytes that hold all that the check needs, so that a found one can be kept.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

EDGES = (0, 1, 127, 128, 255, 256, 32_767, 65_535, 65_536, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)


@dataclass(frozen=True)
class Target:
    """`aim`: how many inputs make a round; `cases_of`: how many an input counts for."""

    name: str
    draw: Callable[[random.Random], bytes]
    check: Callable[[bytes], str]
    aim: int
    cases_of: Callable[[bytes], int] = lambda _: 1


def changed(rng: random.Random, data: bytes, words: Sequence[bytes] = ()) -> bytes:
    """The data with one to four changes: bits, bytes, stretches, numbers at the edges of their types, words."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = _changed_once(rng, data, words)
    return data


def _changed_once(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    length = min(rng.choice((1, 1, 2, 4, 8, 64, 1 << 20)), len(data) - at)
    taken = data[at : at + length]
    match rng.randrange(9 if words else 8):
        case 0 if taken:
            put = bytes([taken[0] ^ 1 << rng.randrange(8)]) + taken[1:]
        case 1:
            put = rng.randbytes(length)
        case 2:
            put = b""
        case 3:
            put = taken * 2
        case 4:
            put, taken = rng.randbytes(rng.choice((1, 3, 16))), b""
        case 5:
            return data[:at]
        case 6:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(EDGES) + rng.choice((-1, 0, 0, 1))
            put = (number % (1 << 8 * size)).to_bytes(size, rng.choice(("little", "big")))
            taken = data[at : at + size]
        case 7:
            put, taken = data[(start := rng.randrange(len(data) + 1)) : start + 64], b""
        case 8:
            put, taken = rng.choice(words), taken if rng.random() < 0.5 else b""
        case _:
            put = taken
    return data[:at] + put + data[at + len(taken) :]


def packed(value: object) -> bytes:
    """Plain values, bytes among them, as bytes that a person can read."""
    return json.dumps(value, default=lambda raw: {"base64": base64.b64encode(raw).decode()}, indent=1).encode()


def unpacked(data: bytes) -> object:
    """The inverse of `packed`."""

    def bytes_of(pairs: dict[str, object]) -> object:
        return base64.b64decode(str(pairs["base64"])) if pairs.keys() == {"base64"} else pairs

    value: object = json.loads(data, object_hook=bytes_of)
    return value
