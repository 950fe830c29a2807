from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.kernels.slices import runs
from corpusmill.shuffle.carried import text_records
from corpusmill.tokens.records import Packing, RecordsContent, context_records, document_records
from corpusmill.tokens.token_shard import (
    TokenShard,
    open_record_shard,
    open_token_shard,
    write_provenance,
    write_token_shard,
)
from corpusmill.tokens.tokenizer import Tokenizer
from tests.oracles.content import records as content_records
from tests.oracles.content import texts as content_texts
from tests.oracles.tokens import runs_of
from tests.quick import examples
from tests.raising import raises

EOT = 9
DOCUMENTS = st.lists(st.lists(st.integers(0, 8), max_size=12), max_size=20)


def tokenizer(vocabulary_size: int = 10) -> Tokenizer:
    return Tokenizer("test", "0" * 64, vocabulary_size, EOT, EOT, "none", None, None)  # type: ignore[arg-type]


def shard_of(documents: list[list[int]], dtype: str = "<u2") -> TokenShard:
    tokens = np.array([token for document in documents for token in document], dtype)
    ends = np.cumsum([len(document) for document in documents], dtype=np.uint64)
    return TokenShard(tokens, ends, "test", "0" * 64, 10, EOT, pad_id=EOT)


@given(DOCUMENTS, st.randoms(use_true_random=False))
def test_document_records_in_any_order_are_the_documents(documents: list[list[int]], random) -> None:
    records = document_records(shard_of(documents))
    kept = [document for document in documents if document]
    order = list(range(len(kept)))
    random.shuffle(order)
    expected = [token for position in order for token in kept[position]]
    assert records.copy(np.array(order, np.int64)).tolist() == expected
    assert [documents[ordinal] for ordinal in records.ordinals.tolist()] == kept


@given(
    documents=st.lists(st.lists(st.integers(0, 60000), max_size=9), max_size=12),
    width=st.integers(2, 9),
    packing=st.sampled_from(
        [
            Packing(),
            Packing(eot="around", bos=True),
            Packing(eot="before", overlap_tokens=1),
            Packing(fit="best_fit"),
            Packing(tail="always_pad", empty_documents="keep"),
        ]
    ),
    random=st.randoms(use_true_random=False),
)
@example(documents=[[0], [0, 0]], width=3, packing=Packing(eot="around", bos=True), random=Random(1))
def test_records_content_pieces_of_documents_add_up_however_they_are_packed(documents, width, packing, random) -> None:
    """The documents' content of all contexts, less what overlaps, is that of the documents."""
    shard = replace(shard_of(documents), pad_id=10, bos_id=11)
    records = context_records(shard, width, packing)
    order = random.sample(range(len(records.ordinals)), len(records.ordinals))
    content = RecordsContent()
    for half in (order[: len(order) // 2], order[len(order) // 2 :]):  # batches in any order
        chosen = np.array(half, np.int64)
        content += records.content(chosen, records.copy(chosen), 3)
    wanted = content_records((3, ordinal, tokens) for ordinal, tokens in enumerate(documents))
    assert content.documents - records.repeated_content(3) == wanted
    assert content.document_tokens + content.special_tokens == len(order) * width


@given(st.lists(st.integers(0, 20), max_size=30), st.integers(1, 40))
def test_runs_any_sizes_equal_the_oracle(sizes: list[int], budget: int) -> None:
    ends = np.cumsum(sizes, dtype=np.uint64)
    assert [list(range(first, last)) for first, last in runs(ends, budget)] == runs_of(sizes, budget)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 40), st.data())
def test_runs_inner_interval_is_covered_once_without_gaps(sizes: list[int], budget: int, data) -> None:
    first = data.draw(st.integers(0, len(sizes)))
    last = data.draw(st.integers(first, len(sizes)))
    actual = list(runs(np.cumsum(sizes, dtype=np.uint64), budget, first, last))
    edges = [first, *[stop for _, stop in actual]]
    assert actual == list(pairwise(edges))
    assert edges[-1] == last


@pytest.mark.parametrize(("vocabulary_size", "dtype"), [(1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
@examples(20)
@given(batches=st.lists(DOCUMENTS, max_size=4))
def test_token_shard_written_batches_read_back_equal(batches, vocabulary_size: int, dtype: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        arrays = [(shard_of(batch).tokens, shard_of(batch).ends) for batch in batches]
        written = write_token_shard(iter(arrays), tokenizer(vocabulary_size), Path(folder))
        shard = open_token_shard(Path(folder))
        documents = [document for batch in batches for document in batch]
        assert written == sum(map(len, documents))
        assert shard.tokens.dtype == dtype
        assert [shard.document(ordinal).tolist() for ordinal in range(shard.documents)] == documents


def test_token_shard_truncated_tokens_are_noticed(tmp_path) -> None:
    shard = shard_of([[1, 2, 3]])
    write_token_shard([(shard.tokens, shard.ends)], tokenizer(), tmp_path)
    (tmp_path / "tokens").write_bytes((tmp_path / "tokens").read_bytes()[:-2])
    with raises("token_shard.files_disagree"):
        open_token_shard(tmp_path)


def test_record_shard_slices_are_counted_from_their_own_start(tmp_path) -> None:
    lengths = np.array([2, 1, 3], np.uint64)
    tokens = np.arange(6, dtype=np.uint16)
    (tmp_path / "tokens").write_bytes(tokens.data)
    write_provenance(np.array([0, 1, 1], np.uint64), np.array([5, 6, 7], np.uint64), lengths, tokens.dtype, tmp_path)
    shard = open_record_shard(tmp_path)
    part, ends = shard.slice(1, 3)
    assert part.tolist() == [2, 3, 4, 5]
    assert ends.tolist() == [1, 4]
    assert (shard.shards.tolist(), shard.ordinals.tolist()) == ([0, 1, 1], [5, 6, 7])


def test_record_shard_missing_tokens_are_noticed(tmp_path) -> None:
    ones = np.array([1], np.uint64)
    (tmp_path / "tokens").write_bytes(b"")
    write_provenance(ones, ones, ones, np.dtype(np.uint16), tmp_path)
    with raises("record_shard.files_disagree"):
        open_record_shard(tmp_path)


@given(
    st.lists(st.text(max_size=9), max_size=12),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_texts_are_those_of_the_documents_with_tokens_without_what_was_cut(texts, keep_empty, random) -> None:
    """Cuts of whole characters, anywhere; records in any order, in two batches, and as a budget shows them."""
    stored, bounds, cuts, kept = b"", [], [], []
    for text in texts:
        bounds.append(len(stored))
        stored += b"\xff"
        places = sorted(random.sample(range(len(text) + 1), min(len(text) + 1, random.choice([0, 2, 4])) // 2 * 2))
        pairs = list(zip(places[::2], places[1::2], strict=True))
        cuts += [tuple(len(stored) + len(text[:place].encode()) for place in pair) for pair in pairs]
        kept.append("".join(c for n, c in enumerate(text) if not any(a <= n < b for a, b in pairs)).encode())
        stored += text.encode()
    with_tokens = [bool(text) and random.random() < 0.8 for text in kept]
    shard = shard_of([[1] * has for has in with_tokens])
    arrays = (np.frombuffer(stored, np.uint8), np.array([*bounds, len(stored)], np.uint64))
    ranges = np.array(cuts, np.uint64).reshape(-1, 2)
    records = text_records(shard, *arrays, ranges, keep_empty=keep_empty)
    expected = [n for n in range(len(texts)) if keep_empty or with_tokens[n]]
    assert records.ordinals.tolist() == expected
    order, content = random.sample(range(len(expected)), len(expected)), RecordsContent()
    for half in (order[: len(order) // 2], order[len(order) // 2 :]):
        chosen = np.array(half, np.int64)
        copied = records.copy(chosen)
        assert copied.tobytes() == b"".join(kept[expected[place]] for place in half)
        content += records.content(chosen, copied, 3)
    assert content.records == content_records((3, n, kept[n]) for n in expected)
    assert content.documents + records.content_of_others(3) == content_texts(3, kept)

    shown = np.array(random.choices(range(len(texts)), k=5) if texts else [], np.uint64)
    showings = text_records(shard.as_shown(shown, shown), *arrays, ranges, keep_empty=True)
    assert showings.copy(np.arange(len(shown))).tobytes() == b"".join(kept[n] for n in shown.tolist())
