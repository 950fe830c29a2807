"""The stretches of a text to search for, in every form in which files of a build hold text."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from corpusmill.tokens.tokenizer import Tokenizer

STRETCH_BYTES = 48  # of text, at least
STRETCH_TOKENS = 12  # at least: 24 bytes as ids of two bytes each
STRETCH_CHANGES = 12  # of one byte to the next, at least: the padding of files has runs of one byte, too
PLACES = 8  # stretches of a text, evenly spaced, and one at its end


@dataclass(frozen=True)
class Stretch:
    """A piece of the text of forgotten document number `document`: its bytes, and their forms in files."""

    document: int
    text: bytes
    forms: tuple[bytes, ...]


def stretches_of(document: int, text: bytes, tokenizer: Tokenizer) -> Iterator[Stretch]:
    """The stretches of a text, and of its tokens, from its beginning to its end; none if it is too short."""
    for at in _places(len(text), STRETCH_BYTES):
        whole = text[at : at + 2 * STRETCH_BYTES].decode(errors="ignore").encode()[: 2 * STRETCH_BYTES]
        if len(whole) >= STRETCH_BYTES and whole in text and _is_distinctive(whole):
            yield Stretch(document, whole, _as_text(whole))
    ids, _ = tokenizer.encode([text])
    for at in _places(len(ids), STRETCH_TOKENS):
        last = at + STRETCH_TOKENS
        while len(piece := tokenizer.decode(ids[at:last])) < STRETCH_BYTES and last < len(ids):
            last += 1
        if len(piece) >= STRETCH_BYTES and piece in text and _is_distinctive(piece):
            yield Stretch(document, piece, _as_tokens(ids[at:last].astype(np.uint32)))


def _is_distinctive(piece: bytes) -> bool:
    """Whether a piece is more than some runs of one byte, such as the spaces that end the header of a .npy file."""
    changes = (True for before, after in pairwise(piece) if before != after)
    return any(islice(changes, STRETCH_CHANGES - 1, None))


def _places(length: int, least: int) -> list[int]:
    last = length - least
    return sorted({last * place // PLACES for place in range(PLACES + 1)}) if last >= 0 else []


def _as_text(text: bytes) -> tuple[bytes, ...]:
    words = text.decode()
    escaped = (json.dumps(words, ensure_ascii=ascii_only)[1:-1].encode() for ascii_only in (True, False))
    return tuple(dict.fromkeys([text, *escaped, html.escape(words).encode(), html.escape(words, quote=False).encode()]))


def _as_tokens(ids: np.ndarray) -> tuple[bytes, ...]:
    forms = [ids.astype("<u4").tobytes(), *(sign.join(map(str, ids.tolist())).encode() for sign in (",", ", "))]
    return (*forms, ids.astype("<u2").tobytes()) if int(ids.max(initial=0)) < 1 << 16 else tuple(forms)
