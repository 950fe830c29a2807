"""A budget the plain way: all documents of a source in a list, sorted by draw."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple


class Drawn(NamedTuple):
    """A document: its draw, its tokens, and whatever names it."""

    draw: int
    tokens: int
    name: object = None


def times_shown(documents: Sequence[Drawn], amount: str) -> dict[object, int]:
    """How often each document of one source is shown; the source has tokens. `amount`: 7 tokens, 2.5 epochs."""
    number, unit = amount.split()
    there = sum(document.tokens for document in documents)
    wanted = int(number) if unit.startswith("token") else ceil(Fraction(number) * there)
    times = {document.name: wanted // there for document in documents}
    left = wanted % there
    for document in sorted(documents):
        if left <= 0:
            break
        times[document.name] += 1
        left -= document.tokens
    return times
