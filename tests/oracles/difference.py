"""What became of every document of a version, by comparing each with each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Delivered(NamedTuple):
    """A document: its file, its id ("" without one), its text at the source, what was left of it, how many tokens."""

    file: str
    id: str
    text: str
    left: str
    tokens: int


SAME: dict[str, Callable[[Delivered], Any]] = {
    "unchanged": lambda item: (item.file, item.id or item.text, item.text, item.left),
    "cut": lambda item: (item.file, item.id or item.text, item.text),
    "changed": lambda item: (item.file, item.id or item.text),
    "moved": lambda item: (item.id or item.text, item.text),
}


def outcomes_of(old: list[Delivered], new: list[Delivered]) -> dict[str, dict[str, list[list[Delivered]]]]:
    """Source file -> outcome -> [documents of the old version, of the new one]."""
    waiting = [list(old), list(new)]
    became: dict[str, dict[str, list[list[Delivered]]]] = {}

    def note(side: int, document: Delivered, outcome: str) -> None:
        became.setdefault(document.file, {}).setdefault(outcome, [[], []])[side].append(document)

    for outcome, key in SAME.items():
        for document in list(waiting[0]):
            partner = next((item for item in waiting[1] if key(item) == key(document)), None)
            if partner is not None:
                for side, item in enumerate((document, partner)):
                    note(side, item, outcome)
                    waiting[side].remove(item)
    for side, outcome in enumerate(("lost", "gained")):
        for document in waiting[side]:
            note(side, document, outcome)
    return became
