"""Decoding as plain Python does it: the kernel finds the first document whose ids are not its text."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.tokens.decoding import AHEAD_TOKENS, ENTRY_BYTES, Decoder, first_difference, token_table
from corpusmill.tokens.ranks import Spelling
from tests.raising import raises

LENGTHS = [1, 7, 8, 9, ENTRY_BYTES - 2, ENTRY_BYTES - 1, ENTRY_BYTES, ENTRY_BYTES + 1, 3 * ENTRY_BYTES]
TOKENS = {number: bytes(97 + (number + place) % 3 for place in range(size)) for number, size in enumerate(LENGTHS)}
TOKENS[len(LENGTHS) + 1] = b"\xff\x00"  # the id before it is nobody's
VOCABULARY = len(LENGTHS) + 3  # nor is the last one

some = st.lists(st.sampled_from([*TOKENS] * 3 + [len(LENGTHS), VOCABULARY - 1]), max_size=12)
again = st.lists(st.sampled_from([*TOKENS]), min_size=1, max_size=3).map(lambda own: own * AHEAD_TOKENS)
ids = st.one_of(some, some, st.builds(list.__add__, again, some))  # few, and more than are asked for ahead


def arrays(documents: list[tuple[bytes, list[int]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The text, and nothing behind it; bounds, tokens, ends."""
    text = np.frombuffer(b"".join(text for text, _ in documents) or b"\0", np.uint8)
    bounds = np.array(list(accumulate((len(text) for text, _ in documents), initial=0)), np.int64)
    tokens = np.array([item for _, own in documents for item in own], np.uint16)
    return text, bounds, tokens, np.array(list(accumulate(len(own) for _, own in documents)), np.int64)


@given(
    st.lists(
        st.tuples(ids, st.integers(0, 40) | st.integers(0, 9000), st.sampled_from([b"", b"a", b"\0", b"\xff"])),
        max_size=5,
    )
)
def test_first_difference_is_the_first_document_that_plain_decoding_gives_another_text(
    wanted: list[tuple[list[int], int, bytes]],
) -> None:
    documents = []
    for own, place, other in wanted:  # at `place`, if the text goes so far, stands `other`
        text = b"".join(TOKENS.get(item, b"") for item in own)
        documents.append((text[:place] + other + text[place + 1 :] if other and place < len(text) else text, own))
    text, bounds, tokens, ends = arrays(documents)
    table = token_table(Spelling.of([*TOKENS], [*TOKENS.values()]), VOCABULARY)
    actual = first_difference(table, text, bounds, tokens, ends, 0)
    known = [all(item in TOKENS for item in own) for _, own in documents]
    equal = [b"".join(TOKENS.get(item, b"") for item in own) == text for text, own in documents]
    wrong = [number for number, (a, b) in enumerate(zip(known, equal, strict=True)) if not (a and b)]
    assert actual == (wrong[0] if wrong else -1)


def test_table_decodes_every_id() -> None:
    table = token_table(Spelling.of([*TOKENS], [*TOKENS.values()]), VOCABULARY)
    for number in range(VOCABULARY):
        assert table.decode(np.array([number])) == TOKENS.get(number, b"")


class OtherIds:
    """A reference library that would give other ids for every text."""

    def normalized(self, text: bytes) -> bytes:
        return text

    def encode(self, text: bytes) -> np.ndarray:  # noqa: ARG002
        return np.array([], np.uint32)


@pytest.mark.parametrize("size", LENGTHS)
def test_one_wrong_byte_of_a_token_of_any_length_is_an_error(size: int) -> None:
    table = token_table(Spelling.of([0, 1], [b"x" * size, b"yz"]), 2)
    for behind in (b"", b"yz" * ENTRY_BYTES):  # at the end of the text, and far from it
        for place in range(size):
            text = bytearray(b"x" * size + behind)
            text[place] ^= 1
            given = [(bytes(text), [0] + [1] * (len(behind) // 2))]
            with raises("tokens.not_decodable"):
                Decoder(OtherIds(), table).compare(*arrays(given))  # type: ignore[arg-type]
