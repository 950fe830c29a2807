"""Our gzip members against the standard library's reader: the text of every context, whatever repeats in it."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.export.context_gzip import write_members
from corpusmill.export.context_json import TABLE_IDS
from tests.oracles import export as oracle


def texts(contexts, vocabulary_size):
    return [gzip.decompress(member) for member in write_members(np.array(contexts, np.uint32), vocabulary_size)]


@given(
    st.integers(1, 60), st.integers(1, 130), st.sampled_from([2, 12, 1000, TABLE_IDS, TABLE_IDS + 1, 2**32]),
    st.integers(1, 9), st.randoms(),
)  # fmt: skip
def test_context_gzip_standard_library_reads_every_text(width, rows, below, phrases, random):
    """Rows of phrases that come again, whole or in parts."""
    known = [[random.randrange(below) for _ in range(random.randint(1, 9))] for _ in range(phrases)]
    table = [[number for _ in range(width) for number in random.choice(known)][:width] for _ in range(rows)]
    assert texts(table, below) == [oracle.compact_json(row) for row in table]


@pytest.mark.parametrize("period", [1, 2, 3, 700, 5_400, 5_500, 9_000])
def test_context_gzip_copies_of_any_length_and_distance_are_read(period):
    """The window of deflate, 32 KiB, ends between 5,400 and 5,500 numbers of five digits."""
    row = [10_000 + place % period for place in range(20_000)]
    assert texts([row, row[::-1]], 65_536) == [oracle.compact_json(row), oracle.compact_json(row[::-1])]


def test_context_gzip_every_number_of_the_table_is_read():
    numbers = np.arange(TABLE_IDS, dtype=np.uint32).reshape(-1, 4096)
    assert texts(numbers, TABLE_IDS) == [oracle.compact_json(row) for row in numbers.tolist()]


def test_context_gzip_a_member_depends_on_its_context_alone():
    contexts = (np.arange(200 * 33) ** 2 % 977).astype(np.uint16).reshape(200, 33)
    together = list(write_members(contexts, 1000))
    assert together == [next(write_members(row[None].astype(np.uint32), 9000)) for row in contexts]
