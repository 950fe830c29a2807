"""Special tokens around documents of one sequence and of several, and the three policies for empty documents."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.export import megatron, nanoset
from corpusmill.export.framing import LONGEST_SEQUENCE_TOKENS, Framing, frame, refuse_special_beyond
from corpusmill.export.megatron import verify_part
from corpusmill.export.nanoset import verify_file
from corpusmill.tokens.token_shard import LONGEST_TOKENS, document_lengths
from tests.oracles import export as oracle
from tests.raising import raises

texts = st.lists(st.lists(st.lists(st.integers(0, 97), max_size=5), max_size=4), max_size=10)
eods, boses = st.sampled_from([None, 99]), st.sampled_from([None, 98])
policies = st.sampled_from(["skip", "boundary", "eod"])


def sequence_batch(documents):
    sequences = [sequence for document in documents for sequence in document]
    return (
        np.array([token for sequence in sequences for token in sequence], np.uint16),
        np.array(list(accumulate(map(len, sequences))), np.uint64),
        np.array(list(accumulate(map(len, documents))), np.uint64),
    )


@given(texts, eods, boses, policies)
def test_framing_any_documents_equal_the_oracle(documents, eod, bos, empty):
    framing = Framing(eod, bos, empty)
    actual = frame(sequence_batch(documents), framing, dtype=np.dtype("<u2"), vocabulary_size=100)
    sequences, boundaries = oracle.framed(documents, eod, bos, empty)
    assert actual.tokens.tolist() == [token for sequence in sequences for token in sequence]
    assert actual.lengths.tolist() == [len(sequence) for sequence in sequences]
    assert [0, *np.cumsum(actual.sequences).tolist()] == boundaries
    assert actual.documents_empty == sum(not any(document) for document in documents)
    assert actual.special_tokens == actual.tokens.size - sum(len(item) for doc in documents for item in doc)


def written(folder: Path, documents, *, eod: int | None = 99, bos: int | None = None, empty="skip"):
    megatron.write_part(
        folder,
        "x_text_document",
        [sequence_batch(documents)],
        dtype=megatron.UINT16,
        eod_id=eod,
        bos_id=bos,
        empty_documents=empty,
        vocabulary_size=100,
    )
    return megatron.open_part(folder / "x_text_document")


# Megatron's own golden vectors: documents `1 2 3`, `7`, "" and `10 11 12 13 14`, EOD 99.
GOLDEN = [[[1, 2, 3]], [[7]], [[]], [[10, 11, 12, 13, 14]]]


@pytest.mark.parametrize(
    ("empty", "boundaries"), [("boundary", [0, 1, 2, 2, 3]), ("skip", [0, 1, 2, 3]), ("eod", [0, 1, 2, 3, 4])]
)
def test_megatron_every_policy_for_empty_documents(tmp_path, empty, boundaries):
    part = written(tmp_path, GOLDEN, empty=empty)
    assert part.boundaries.tolist() == boundaries
    assert part.lengths.tolist() == ([4, 2, 1, 6] if empty == "eod" else [4, 2, 6])
    verify_part(tmp_path / "x_text_document", vocabulary_size=100, eod_id=99, empty_documents=empty)


def test_megatron_list_text_is_many_sequences_of_one_document(tmp_path):
    part = written(tmp_path, [[[1, 2], [], [3]], [[4]]])
    assert [part.sequence(i).tolist() for i in range(3)] == [[1, 2], [3, 99], [4, 99]]
    assert part.boundaries.tolist() == [0, 2, 3]
    assert part.document(0).tolist() == [1, 2, 3, 99]
    counted = verify_part(tmp_path / "x_text_document", vocabulary_size=100, eod_id=99, several_sequences=True)
    assert (counted["documents"], counted["tokens"], counted["special_tokens"]) == (2, 4, 2)


def test_megatron_sequence_of_2_to_the_31_tokens_with_both_special_ones_is_refused():
    tokens = np.broadcast_to(np.uint16(5), LONGEST_SEQUENCE_TOKENS - 1)
    batch = (tokens, np.array([tokens.size], np.uint64))
    with raises(
        "export.sequence_too_long", f"at most {LONGEST_SEQUENCE_TOKENS}", LONGEST_SEQUENCE_TOKENS + 1, "document 4"
    ):
        frame(batch, Framing(99, 98), dtype=np.dtype("<u2"), vocabulary_size=100, first_document=4)


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


def test_framing_eod_policy_without_eod_is_refused(tmp_path):
    with raises("framing.empty_document_without_eod"):
        written(tmp_path, GOLDEN, eod=None, empty="eod")


def nanoset_file(folder: Path, documents, **framing):
    nanoset.write_file(folder, "n", [sequence_batch(documents)], tokenizer_name="t", vocabulary_size=100, **framing)
    return nanoset.open_file(folder / "n.ds")


def test_nanoset_bos_stays_beside_eos(tmp_path):
    opened = nanoset_file(tmp_path, GOLDEN, eos_id=99, bos_id=98)
    assert [opened.document(i).tolist() for i in range(2)] == [[98, 1, 2, 3, 99], [98, 7, 99]]
    verify_file(tmp_path / "n.ds", vocabulary_size=100, eos_id=99, bos_id=98, tokenizer_name="t")
    bare = nanoset_file(tmp_path, GOLDEN, eos_id=None)
    assert bare.tokens.tolist() == [1, 2, 3, 7, 10, 11, 12, 13, 14]


def test_nanoset_empty_document_is_its_eos_or_left_out_and_never_of_zero_length(tmp_path):
    opened = nanoset_file(tmp_path, GOLDEN, eos_id=99, empty_documents="eod")
    assert opened.ends.tolist() == [4, 6, 7, 13]
    verify_file(tmp_path / "n.ds", vocabulary_size=100, eos_id=99, tokenizer_name="t", empty_documents="eod")
    assert nanoset_file(tmp_path, GOLDEN, eos_id=99).ends.tolist() == [4, 6, 12]
    with raises("nanoset.empty_document"):
        nanoset_file(tmp_path, GOLDEN, eos_id=99, empty_documents="boundary")


def test_nanoset_loss_is_a_byte_a_token_and_verified(tmp_path):

    nanoset_file(tmp_path, GOLDEN, eos_id=99)
    path = tmp_path / "n.ds"
    assert nanoset.write_loss(path, [np.array([False, False]), np.ones(10, np.bool_)]) == 12
    assert nanoset.loss_path(path).read_bytes() == bytes([0, 0] + [1] * 10)
    known = {"vocabulary_size": 100, "eos_id": 99, "tokenizer_name": "t"}
    verify_file(path, **known)
    for content, at in ((b"\1" * 3, 3), (b"\1" * 13, 12), (b"\1" * 5 + b"\2" * 7, 5)):
        nanoset.loss_path(path).write_bytes(content)
        with raises("nanoset.loss_file_size nanoset.loss_file_values", f"n.ds.loss, byte {at}\n"):
            verify_file(path, **known)
    nanoset.loss_path(path).unlink()
    with raises("export.file_missing"):
        verify_file(path, **known, loss=True)
