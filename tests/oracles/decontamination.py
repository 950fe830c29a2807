"""What decontamination must find, said slowly."""

from __future__ import annotations

import re

from corpusmill.decontamination.text_words import IGNORED, MARK, fold, kind_of

KINDS = "OSEHANLDCM"  # other, space, newline, hyphen, apostrophe, number mark, letter, digit, character, mark
_UNIT = "(?:LM*|DM*(?:NDM*)*)"
_WORD = re.compile(f"CM*|{_UNIT}(?:(?:HS*E[SE]*|[HA])?{_UNIT})*")


def words_of(text: str) -> list[tuple[str, int, int]]:
    """(what makes the word, its first byte, one past its last) of every word."""
    parts = []  # (kind, what is left of a character, its bytes)
    at = 0
    for character in text:
        end = at + len(character.encode())
        stays = kind_of(character) in (3, 4, 5)
        parts += [(kind_of(part), part, at, end) for part in (character if stays else fold(character))]
        at = end
    parts = [part for part in parts if part[0] != IGNORED]
    kinds = "".join(KINDS[kind] for kind, *_ in parts)
    return [
        (_spelled(parts[actual.start() : actual.end()]), parts[actual.start()][2], parts[actual.end() - 1][3])
        for actual in _WORD.finditer(kinds)
    ]


def _spelled(parts: list[tuple[int, str, int, int]]) -> str:
    """Letters in order, each with its marks in one order."""
    letters: list[str] = []
    for kind, part, *_ in parts:
        if KINDS[kind] in "LDC":
            letters.append(part)
        elif kind == MARK:
            letters[-1] = letters[-1][0] + "".join(sorted(letters[-1][1:] + part))
    return "".join(letters)
