from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pipeline.errors import VerificationError
from pipeline.tokens.audit import audit_documents, audit_tricky, sample_ordinals, tricky_texts
from pipeline.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.tokens.vocabularies import GPT2, NEOX, sentencepiece, shared, written


@pytest.fixture(scope="module")
def cl100k() -> Tokenizer:
    return load_tokenizer("cl100k_base", engine="gigatoken")


def test_audit_tricky_strings_pass_for_cl100k_and_all_decode_back(cl100k) -> None:
    audited = audit_tricky(cl100k)
    assert audited.documents == audited.round_trips == len(tricky_texts())


@pytest.mark.parametrize("name", [GPT2, NEOX])
def test_audit_tricky_strings_pass_for_hugging_face_files(name: str) -> None:
    audited = audit_tricky(load_tokenizer(str(shared(name)), engine="gigatoken"))
    assert 0 < audited.round_trips <= audited.documents


def test_audit_tricky_strings_pass_for_sentencepiece(tmp_path) -> None:
    tokenizer = load_tokenizer(written(sentencepiece(), tmp_path), engine="gigatoken")
    assert (tokenizer.eot_id, tokenizer.bos_id, tokenizer.pad_id) == (2, 1, 2)
    assert audit_tricky(tokenizer).round_trips > 50


def test_audit_one_other_id_fails_with_text_ids_and_place(cl100k) -> None:
    text = b"the quick brown fox"
    ids = cl100k.encode([text])[0].copy()
    expected = ids.tolist()
    ids[2] += 1
    with pytest.raises(VerificationError, match="engine gigatoken gave other ids than tiktoken") as caught:
        audit_documents([("a.jsonl, line 7", text, ids)], cl100k)
    for said in (
        "a.jsonl, line 7",
        "' brown fox' from byte 9",
        str(expected[2:]),
        str(ids[2:].tolist()),
        "token 2 of 4",
    ):
        assert said in str(caught.value)


def test_audit_lost_token_at_the_end_fails(cl100k) -> None:
    ids = cl100k.encode([b"one two three"])[0]
    with pytest.raises(VerificationError, match="other ids"):
        audit_documents([("x", b"one two three", ids[:-1])], cl100k)


def test_audit_id_beyond_the_width_of_a_token_fails(cl100k) -> None:
    narrow = dataclasses.replace(cl100k, vocabulary_size=60_000)  # as if 2 bytes were enough
    big = cl100k.reference.decode(np.array([99_999]))
    with pytest.raises(VerificationError, match="does not fit"):
        audit_documents([("x", big, cl100k.reference.encode(big))], narrow)


@pytest.mark.parametrize(("documents", "wanted"), [(0, 0), (1, 1), (1000, 10), (1000, 1000)])
def test_sample_ordinals_are_distinct_ascending_and_repeatable(documents: int, wanted: int) -> None:
    first = sample_ordinals(3, documents, wanted)
    assert len(set(first.tolist())) == wanted
    assert first.tolist() == sorted(first.tolist()) == sample_ordinals(3, documents, wanted).tolist()
    assert not wanted or 0 <= first[0] <= first[-1] < documents


def test_sample_ordinals_every_document_is_drawn_equally_often() -> None:
    drawn = np.bincount(np.concatenate([sample_ordinals(shard, 20, 5) for shard in range(2000)]), minlength=20)
    # 2,000 draws of probability 1/4: mean 500, standard deviation 19.4; 6 of them leave 1 in 10^8 to chance.
    assert abs(drawn - 500).max() < 117
