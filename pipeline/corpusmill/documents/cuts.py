"""The result of cutting a source file: its parts, or why it is not cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["lines", "frames", "rows"]
Pieces = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Cut:
    """One part of a file.

    `pieces` are the (offset, size) of the file's bytes that it reads. `own_bytes` (frames): how many bytes of the first
    piece are the part's own frames; the rest is the tail. `row_groups` (rows): [first, last).
    """

    kind: Kind
    pieces: Pieces
    own_bytes: int = 0
    row_groups: tuple[int, int] = (0, 0)

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.pieces)


def next_part_bytes(left_bytes: int, target_bytes: int) -> int:
    """How much of what is left of a file the next part takes: `target_bytes`, but half of less than two parts.

    So no part is much smaller than the others: 35 MB in parts of 32 become two of 17.5. Of a file that has grown the
    last two parts change.
    """
    if left_bytes <= target_bytes:
        return left_bytes
    return target_bytes if left_bytes >= 2 * target_bytes else -(-left_bytes // 2)


@dataclass(frozen=True)
class Uncut:
    """Why a file is not cut, and how to rewrite it so that it can be."""

    why: str
    remedy: str
