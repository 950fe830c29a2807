"""References: text that counts as having come before; what belongs to which follows from the first place alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.anchors import open_anchors
from corpusmill.dedup.exchange import periods_of
from corpusmill.dedup.ranges import Matches, union_ranges
from corpusmill.dedup.references import referred_bytes, split_by_reference, with_references
from tests.dedup.corpora import (
    LENGTHS,
    boilerplate_shards,
    match_folder,
    random_shards,
    united,
    write_anchor_folders,
)
from tests.oracles import dedup as oracle
from tests.quick import examples, quick

Shards = Sequence[Sequence[bytes]]


def split_ranges(shards: Shards, minimum_bytes: int, references: Sequence[int], **how: int) -> list[list[object]]:
    """Per shard, what of its ranges belongs to each reference, and last to the dataset itself."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_anchor_folders(shards, minimum_bytes, folder)
        actual, _ = match_folder(folder, len(shards), minimum_bytes, references=references, **how)
        return [
            split(actual, shard, minimum_bytes, references, folder / f"anchors{shard}") for shard in range(len(shards))
        ]


def split(
    actual: Sequence[Matches], shard: int, minimum_bytes: int, references: Sequence[int], anchors: Path
) -> list[object]:
    text = np.frombuffer((anchors / "text").read_bytes(), np.uint8)
    periods = [rows.copy() for rows in periods_of(text, open_anchors(anchors).repeats, minimum_bytes)]
    rows = np.concatenate([item.referred[shard] for item in actual])
    ranges = np.array(united(actual, shard, minimum_bytes), np.uint64).reshape(-1, 2)
    parts = split_by_reference(ranges, referred_bytes(rows, periods, minimum_bytes), references[-1])
    return [ranges.tolist(), *(part.tolist() for part in parts)]


def expected(shards: Shards, minimum_bytes: int, references: Sequence[int]) -> list[list[object]]:
    texts = [oracle.text_of(documents)[0] for documents in shards]
    ranges = oracle.remove_ranges(texts, minimum_bytes)
    referred = oracle.referred_bytes(texts, minimum_bytes, references)
    return [
        [
            [list(row) for row in own],
            *(
                [list(row) for row in oracle.merge((at, at + 1) for at, of in known.items() if of == number)]
                for number in range(references[-1])
            ),
            [list(row) for row in oracle.merge((at, at + 1) for item in own for at in range(*item) if at not in known)],
        ]
        for own, known in zip(ranges, referred, strict=True)
    ]


def check(seed: int, make: Callable[[random.Random, int], list[list[bytes]]]) -> None:
    rng = random.Random(seed)
    minimum_bytes = rng.choice(LENGTHS)
    shards = make(rng, minimum_bytes)
    references = sorted(rng.choices(range(4), k=len(shards)))
    if make is boilerplate_shards:  # shards of ten documents, so that each has some of the same text
        shards = [own[half * 10 : half * 10 + 10] for own in shards for half in (0, 1)]
        references = rng.choice([[0, 0, 1, 1], [0, 1, 1, 2], [0, 1, 2, 3]])
    how = {
        "partitions": rng.choice([1, 2, 3, 7]),
        "memory_bytes": rng.choice([500, 1 << 30]),
        "most_paired": rng.choice([0, 2, 32]),
    }
    right = expected(shards, minimum_bytes, references)
    assert split_ranges(shards, minimum_bytes, references, **how) == right, seed


@pytest.mark.parametrize("make", [random_shards, boilerplate_shards])
@pytest.mark.parametrize("block", quick(range(48), 1, slow=4))
def test_references_of_random_corpora_hold_what_the_oracle_says(
    block: int, make: Callable[[random.Random, int], list[list[bytes]]]
) -> None:
    for seed in range(5 * block, 5 * block + 5):
        check(seed, make)


@pytest.mark.parametrize("minimum_bytes", [7, 12, 30])
@pytest.mark.parametrize("block", quick(range(80), 1, slow=3))
def test_references_of_periodic_text_hold_what_the_oracle_says(block: int, minimum_bytes: int) -> None:
    """Runs of a period in every document, runs behind one another, references that hold some of their rotations."""
    for seed in range(10 * block, 10 * block + 10):
        rng = random.Random(seed)

        def runs(rng: random.Random = rng) -> bytes:
            units = [bytes(rng.choices(b"abc", k=rng.randint(1, minimum_bytes))) for _ in range(2)]
            return b"".join(rng.choice(units) * rng.randint(1, 9) for _ in range(rng.randint(1, 5)))

        documents = [runs() for _ in range(4)]
        pieces = [document[rng.randrange(5) :][: minimum_bytes + rng.randrange(4)] for document in documents]
        shards = [pieces[:2], pieces[2:], documents]
        right = expected(shards, minimum_bytes, [0, 1, 2])
        assert split_ranges(shards, minimum_bytes, [0, 1, 2], partitions=rng.choice([1, 3])) == right, seed


documents_lists = st.lists(
    st.lists(st.sampled_from([b"abcde", b"fgh", b"ab", b"abcdefghijklm", "é中😀".encode()]), max_size=8).map(b"".join),
    max_size=8,
)


@examples(30)
@given(documents_lists, documents_lists, documents_lists, st.integers(7, 25))
def test_references_hold_nothing_of_what_only_repeats_within(
    first: list[bytes], second: list[bytes], own: list[bytes], minimum_bytes: int
) -> None:
    """Where a reference holds no window of the dataset, its parts are empty, and ranges those of the dataset alone."""
    alone = split_ranges([own], minimum_bytes, [0], partitions=2)[0][0]
    strange = [document.translate(bytes([*range(97), *range(48, 74), *range(123, 256)])) for document in first]
    ranges, of_strange, within = split_ranges([strange, own], minimum_bytes, [0, 1], partitions=2)[1]
    letters = set(b"".join(own)) & set(range(97, 123))
    if letters and "é" not in b"".join(first).decode():
        assert (ranges, of_strange, within) == (alone, [], alone)
    twice, by_first, by_second, own_of_twice = split_ranges([first, first + second, own], minimum_bytes, [0, 1, 2])[2]
    once, by_one, own_of_once = split_ranges([first + second, own], minimum_bytes, [0, 1])[1]
    assert (twice, own_of_twice) == (once, own_of_once)
    assert union_ranges(np.array([*by_first, *by_second], np.uint64).reshape(-1, 2)).tolist() == by_one


@given(
    st.text(alphabet="aä€😀", min_size=1, max_size=30),
    st.lists(st.integers(0, 60), max_size=8),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2)), max_size=6),
)
def test_with_references_each_character_names_what_holds_its_last_byte(
    letters: str, cuts: list[int], pieces: list[tuple[int, int, int]]
) -> None:
    text = letters.encode()
    borders = [at for at in range(len(text) + 1) if at == len(text) or text[at] & 0xC0 != 0x80]
    edges = sorted({borders[at % len(borders)] for at in cuts})
    cut = np.array(list(zip(edges[::2], edges[1::2], strict=False)), np.uint64).reshape(-1, 2)
    inside = {at for first, end in cut.tolist() for at in range(first, end)}
    owner: dict[int, int] = {}
    for first, end, number in pieces:
        owner.update(dict.fromkeys(inside & set(range(min(first, end), max(first, end))), number))
    rows, at = [], 0
    while at < len(text):
        end = at + 1
        while at in owner and end in owner and owner[end] == owner[at]:
            end += 1
        rows += [(at, end, owner[at])] if at in owner else []
        at = end
    held = np.array(rows, np.uint64).reshape(-1, 3)
    told = with_references(np.frombuffer(text, np.uint8), cut, held).tolist()
    got = {at: number for first, end, number in told for at in range(first, end)}
    last_byte = {at: next(end for end in borders if end > at) - 1 for at in inside}
    assert got == {at: owner.get(last_byte[at], -1) + 1 for at in inside}
    assert all(first in borders and end in borders and first < end for first, end, _ in told)
    assert [row[0] for row in told] == sorted(row[0] for row in told)
