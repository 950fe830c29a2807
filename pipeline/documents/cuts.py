"""The result of cutting a source file: its parts, or why it is not cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["lines", "frames", "rows"]
Pieces = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Cut:
    """One part of a file.

    `pieces` are the stretches (offset, size) of the file that it takes. `own_bytes` (frames): how much of the first
    piece is its own frames; what follows is the tail. `row_groups` (rows): [first, last).
    """

    kind: Kind
    pieces: Pieces
    own_bytes: int = 0
    row_groups: tuple[int, int] = (0, 0)

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.pieces)


@dataclass(frozen=True)
class Uncut:
    """Why a file stays whole, and what would change that."""

    why: str
    remedy: str
