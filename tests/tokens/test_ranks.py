"""Ranks and spellings as plain Python reads them; the kernel finds the first document whose ids are not its text."""

from __future__ import annotations

import base64
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.tokens.decoding import AHEAD_TOKENS, ENTRY_BYTES, Decoder, first_difference, token_table
from corpusmill.tokens.ranks import (
    Spelling,
    ranks_of,
    read_ids,
    read_ranks,
    read_spelling,
    refuse_other_content,
    token_lengths,
)
from tests.oracles.spelling import words_of
from tests.raising import raises


@given(words=st.dictionaries(st.integers(0, 300), st.binary(min_size=1, max_size=9), min_size=1), data=st.data())
def test_token_lengths_of_ids_in_any_order_are_those_of_the_words(words: dict[int, bytes], data: st.DataObject) -> None:
    words = {number: word for word, number in {word: number for number, word in words.items()}.items()}  # each once
    order = data.draw(st.permutations(sorted(words)))
    content = b"".join(b"%s %d\n" % (base64.b64encode(words[item]), item) for item in order)
    ids = data.draw(st.lists(st.sampled_from(order)))
    lengths = token_lengths(content, np.array(ids, np.uint32), where=Path("own.tiktoken"))
    assert lengths.tolist() == [len(words[token]) for token in ids]


words_and_ids = st.lists(st.tuples(st.binary(min_size=1, max_size=2) | st.binary(max_size=9), st.integers(0, 10**12)))
edits = st.lists(st.tuples(st.integers(0, 90), st.sampled_from([b"", *(bytes([byte]) for byte in b"\n\r =A/-0\xff")])))


@given(words_and_ids, st.sampled_from([b"\n", b" \n"]), edits)
def test_read_spelling_of_any_edited_file_is_what_python_reads_line_by_line(
    tokens: list[tuple[bytes, int]], ending: bytes, edited: list[tuple[int, bytes]]
) -> None:
    content = b"".join(b"%s %d" % (base64.b64encode(token), number) + ending for token, number in tokens)
    for place, other in edited:
        content = content[:place] + other + content[place + 1 :]
    try:
        expected = read_ranks(content)
    except ValueError:
        with pytest.raises(ValueError, match="malformed"):
            read_spelling(content)
    else:
        spelling = read_spelling(content)
        assert [*zip(words_of(spelling), spelling.ids.tolist(), strict=True)] == [*expected.items()]
        assert ranks_of(content) == expected
        assert read_ids(content) == [int(line.split()[1]) for line in content.splitlines() if line]


def test_table_of_a_token_on_two_lines_has_it_under_the_later_id_alone() -> None:
    lines = b"YQ== 0\nYg== 1\neHl6 1\neHl6 2\n"  # a, b, xyz as 1, xyz as 2
    for content in (lines, lines.replace(b"\n", b"\r\n"), lines[:-1], lines.replace(b"eHl6 2", b"eHl6 2\n")):
        table = token_table(read_spelling(content), 3)
        assert table.decode(np.array([0, 1, 2])) == b"abxyz"
        assert read_ids(content) == [0, 1, 1, 2]
    twice = b"YQ== 0\nYR== 1\n"  # the two spare bits of the second are not 0
    assert read_spelling(twice).ids.tolist() == [1]
    assert read_ids(twice) == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 99), st.binary(max_size=9))), st.lists(st.tuples(st.integers(), st.binary())))
def test_spelling_of_tokens_and_then_of_others_has_all_of_them(
    first: list[tuple[int, bytes]], then: list[tuple[int, bytes]]
) -> None:
    parts = [[(number % 2**40, word) for number, word in part] for part in (first, then)]
    both = Spelling.of(*split(parts[0])).and_then(Spelling.of(*split(parts[1])))
    assert list(zip(both.ids.tolist(), words_of(both), strict=True)) == [*parts[0], *parts[1]]


def split(tokens: list[tuple[int, bytes]]) -> tuple[list[int], list[bytes]]:
    return [number for number, _ in tokens], [word for _, word in tokens]


def test_token_lengths_of_an_unknown_id_are_refused() -> None:
    with raises("tokenizer.no_such_id"):
        token_lengths(b"YQ== 0\nYmI= 2\n", np.array([0, 1]), where=Path("own.tiktoken"))


def test_read_ranks_malformed_line_is_named_by_its_number_and_not_quoted() -> None:
    with pytest.raises(ValueError, match="line 3 is malformed") as caught:
        read_ranks(b"YQ== 0\n\nPASSWORD=secret\n")
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("rank", [-1, 1 << 32, 1 << 63, 1 << 70])
def test_rank_file_with_an_id_beyond_32_bits_is_refused(rank: int) -> None:
    with raises("tokenizer.not_ranks"):
        refuse_other_content(Path("own.tiktoken"), b"YQ== 0\nYg== %d\n" % rank)


def test_trace_imports_neither_numba_nor_a_tokenizer() -> None:
    """They take longer than everything else of `corpusmill trace`."""
    modules = (
        "inspect.lineage",
        "training",
        "documents.text_shard",
        "tokens.records",
        "tokens.ranks",
        "tokens.token_shard",
    )
    shown = f"import sys, {', '.join(f'corpusmill.{name}' for name in modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True, text=True)
    assert not {"numba", "tiktoken", "tokenizers", "gigatoken", "awkward"} & set(done.stdout.split())


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
