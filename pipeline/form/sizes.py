"""Sizes as text in forms."""

from __future__ import annotations

SIZE_UNITS = (
    *((f"{letter}iB", 1 << (10 * power)) for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K"))),
    *((f"{letter}B", 1000**power) for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K"))),
)


def size_text(size_bytes: int) -> str:
    """A size as text that reads back exactly: the largest unit that divides it, else plain bytes."""
    fits = [(unit_bytes, name) for name, unit_bytes in SIZE_UNITS if size_bytes and size_bytes % unit_bytes == 0]
    if not fits:
        return str(int(size_bytes))
    unit_bytes, name = max(fits)
    return f"{size_bytes // unit_bytes}{name}"
