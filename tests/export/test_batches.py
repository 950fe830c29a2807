"""Special tokens among documents, and the refusals every exporter shares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.export.framing import Framing, frame, refuse_special_beyond
from corpusmill.tokens.token_shard import LONGEST_TOKENS, document_lengths
from tests.oracles import export as oracle
from tests.raising import raises

documents = st.lists(st.lists(st.integers(0, 999), max_size=6), max_size=12)


@given(documents, st.booleans(), st.sampled_from(["<u2", "<u4", "<i4"]), st.sampled_from(["u2", "u4"]))
def test_special_tokens_any_documents_equal_the_oracle(docs, before, dtype, batch_dtype):
    (batch,) = oracle.batches_of(docs, batch_dtype, [])
    framing = Framing(None, bos_id=999) if before else Framing(999)
    marked = frame(batch, framing, dtype=np.dtype(dtype), vocabulary_size=1000)
    expected = oracle.with_special(docs, 999, before=before)
    assert marked.tokens.tolist() == [token for doc in expected for token in doc]
    assert marked.lengths.tolist() == [len(doc) for doc in expected]
    assert marked.documents_empty == sum(not doc for doc in docs)
    assert marked.tokens.dtype == np.dtype(dtype)


def test_special_tokens_counts_keep_documents_and_specials_apart():
    (batch,) = oracle.batches_of([[1, 2], [], [3]], "u2", [])
    counts = {"documents": 10, "documents_empty": 1, "tokens": 100, "special_tokens": 10, "bytes": 0}
    frame(batch, Framing(9), dtype=np.dtype("u2"), vocabulary_size=10).add_to(counts)
    assert counts == {"documents": 12, "documents_empty": 2, "tokens": 103, "special_tokens": 12, "bytes": 0}


@pytest.mark.parametrize(
    ("tokens", "ends"),
    [
        (np.zeros(3, np.int64), np.array([3], np.uint64)),
        (np.zeros((3, 1), np.uint16), np.array([3], np.uint64)),
        (np.zeros(3, np.uint16), np.array([3], np.int64)),
        (np.zeros(3, np.uint16), np.array([2], np.uint64)),
        (np.zeros(3, np.uint16), np.array([4], np.uint64)),
        (np.zeros(3, np.uint16), np.array([2, 1, 3], np.uint64)),
        (np.zeros(3, np.uint16), np.array([], np.uint64)),
    ],
)
def test_batch_arrays_that_do_not_fit_are_refused(tokens, ends):
    with raises("export.batch_arrays export.batch_ends"):
        document_lengths((tokens, ends))


def test_megatron_document_of_2_to_the_31_tokens_is_refused():
    # A broadcast array has the length without the memory; with its EOD the document would have 2^31 tokens.
    tokens = np.broadcast_to(np.uint16(5), LONGEST_TOKENS + 2)
    ends = np.array([1, LONGEST_TOKENS + 2], np.uint64)
    with raises("export.document_too_long", "document 8", LONGEST_TOKENS + 1):
        document_lengths((tokens, ends), first_document=7)
    longest = np.array([1, LONGEST_TOKENS + 1], np.uint64)
    assert document_lengths((tokens[:-1], longest)).tolist() == [1, LONGEST_TOKENS]


def test_megatron_id_beyond_the_vocabulary_shows_both_values():
    (batch,) = oracle.batches_of([[1, 2], [3, 70_000]], "u4", [])
    with raises("export.id_outside_vocabulary") as caught:
        frame(batch, Framing(9), dtype=np.dtype("<u2"), vocabulary_size=65_536)
    message = str(caught.value)
    assert "70000" in message
    assert "4464" in message  # what uint16 makes of it
    assert "token 3" in message


@pytest.mark.parametrize("special", [-1, 1000])
def test_special_token_outside_the_vocabulary_is_refused(special):
    with raises("export.special_outside_vocabulary"):
        refuse_special_beyond(1000, special)
