"""Content sums: what a set of documents, records or tokens holds, as one value that adds up.

Counts cannot see that one document was lost while another was duplicated. A content sum can: it is a sum over parts, so
shards, cells and files add up in any order, and each part is weighted by its place, so two swapped parts do not cancel.
content_kernels.py computes the sums and documents the arithmetic; this file is cheap to import.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HEX_DIGITS = 32
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class ContentSum:
    """Two 64-bit lanes that add and subtract; text: 32 hex digits, the low lane first."""

    low: int = 0
    high: int = 0

    def __add__(self, other: ContentSum) -> ContentSum:
        return ContentSum((self.low + other.low) & _MASK, (self.high + other.high) & _MASK)

    def __sub__(self, other: ContentSum) -> ContentSum:
        return ContentSum((self.low - other.low) & _MASK, (self.high - other.high) & _MASK)

    def __bool__(self) -> bool:
        return bool(self.low or self.high)

    def __str__(self) -> str:
        return f"{self.low:016x}{self.high:016x}"

    @classmethod
    def parse(cls, text: str) -> ContentSum:
        """The sum that `str` wrote; ValueError for any other text."""
        if len(text) != HEX_DIGITS:
            raise ValueError(f"a content sum has {HEX_DIGITS} hex digits, not {len(text)}")
        return cls(int(text[:16], 16), int(text[16:], 16))


NOTHING = ContentSum()


def add_up(sums: Iterable[ContentSum | str]) -> ContentSum:
    """The sum of content sums, or of their texts."""
    total = NOTHING
    for part in sums:
        total += ContentSum.parse(part) if isinstance(part, str) else part
    return total
