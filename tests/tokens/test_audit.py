from __future__ import annotations

import dataclasses

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.tokens.audit import (
    WINDOW_BYTES,
    _window,
    audit_documents,
    audit_tricky,
    sample_ordinals,
    tricky_texts,
)
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.raising import raises
from tests.tokens.vocabularies import GPT2, NEOX, sentencepiece, shared, small, with_added, with_model, written


@pytest.fixture(scope="module")
def cl100k() -> Tokenizer:
    return load_tokenizer("cl100k_base", engine="gigatoken")


def test_audit_tricky_strings_pass_for_cl100k_compared_whole_and_all_decode_back(cl100k) -> None:
    audited, texts = audit_tricky(cl100k), tricky_texts()
    assert audited.documents == audited.round_trips == len(texts)
    assert audited.compared_bytes == sum(map(len, texts))
    assert max(map(len, texts)) > WINDOW_BYTES  # or the line before would say nothing


@pytest.mark.parametrize("name", [GPT2, NEOX])
def test_audit_tricky_strings_pass_for_hugging_face_files(name: str) -> None:
    audited = audit_tricky(load_tokenizer(str(shared(name)), engine="gigatoken"))
    assert 0 < audited.round_trips <= audited.documents


def test_audit_one_other_id_fails_with_text_ids_and_place(cl100k) -> None:
    text = b"the quick brown fox"
    ids = cl100k.encode([text])[0].copy()
    expected = ids.tolist()
    ids[2] += 1
    with raises("audit.engines_disagree", "gigatoken", "tiktoken") as caught:
        audit_documents([("a.jsonl, line 7", text, ids)], cl100k)
    for printed in (
        "a.jsonl, line 7",
        "' brown fox' from byte 9",
        str(expected[2:]),
        str(ids[2:].tolist()),
        "token 2 of 4",
    ):
        assert printed in str(caught.value)


def test_audit_lost_token_at_the_end_fails(cl100k) -> None:
    ids = cl100k.encode([b"one two three"])[0]
    with raises("audit.engines_disagree"):
        audit_documents([("x", b"one two three", ids[:-1])], cl100k)


def test_audit_id_beyond_the_width_of_a_token_fails(cl100k) -> None:
    narrow = dataclasses.replace(cl100k, vocabulary_size=60_000)  # as if 2 bytes were enough
    big = cl100k.reference.decode(np.array([99_999]))
    with raises("audit.id_does_not_fit"):
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


def long_text(sentences: int = 400) -> bytes:
    return "".join(f"Line {number} says: naïve cafés serve 中文 and 🧑‍🚀.\n" for number in range(sentences)).encode()


def written_by(tokenizer: Tokenizer, text: bytes, documents: int) -> list[tuple[str, bytes, np.ndarray]]:
    ids = tokenizer.encode([text])[0]
    return [(f"a.jsonl, line {line}", text, ids.copy()) for line in range(1, documents + 1)]


def test_audit_long_documents_are_compared_whole_once_in_64_and_else_in_a_window(cl100k) -> None:
    text = long_text(100)
    audited = audit_documents(written_by(cl100k, text, 129), cl100k)
    assert (audited.documents, audited.text_bytes, audited.round_trips) == (129, 129 * len(text), 129)
    windows = audited.compared_bytes - 3 * len(text)
    assert 126 * (WINDOW_BYTES - 6) <= windows <= 126 * WINDOW_BYTES


def test_audit_document_over_1_mib_is_never_compared_whole(cl100k) -> None:
    text = long_text(30_000)
    assert len(text) > 1 << 20
    assert audit_documents(written_by(cl100k, text, 1), cl100k).compared_bytes <= WINDOW_BYTES


@pytest.mark.parametrize("place", [0, 5_000, -1])
def test_audit_long_document_whose_written_ids_changed_fails_anywhere(cl100k, place: int) -> None:
    documents = written_by(cl100k, long_text(), 2)
    documents[1][2][place] ^= 1
    with raises("audit.ids_changed", "gigatoken", "a.jsonl, line 2"):
        audit_documents(documents, cl100k)


def test_audit_engine_that_is_wrong_about_one_word_fails_in_a_window(cl100k) -> None:
    [word] = cl100k.encode([b" says"])[0].tolist()

    def wrong(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray, int]:
        tokens, ends = cl100k.encode(texts)
        return np.where(tokens == word, word + 1, tokens), np.diff(ends, prepend=np.uint64(0)), 0

    broken = dataclasses.replace(cl100k, _encode=wrong)
    short, long = b"No such word. ", long_text()
    documents = [(f"line {line}", text, broken.encode([text])[0]) for line, text in enumerate([short, long])]
    assert audit_documents(documents[:1], broken).documents == 1
    with raises("audit.engines_disagree", "gigatoken", "tiktoken", "line 1, from byte", "' says:"):
        audit_documents(documents, broken)


@given(st.text(st.characters(codec="utf-8"), min_size=800, max_size=900), st.integers(0, 99))
def test_window_any_long_text_is_whole_characters_of_it(text: str, line: int) -> None:
    whole = (text * 10).encode()
    hypothesis.assume(len(whole) > WINDOW_BYTES)
    where, actual = _window(f"x, line {line}", whole)
    assert WINDOW_BYTES - 6 <= len(actual) <= WINDOW_BYTES
    first = int(where.rpartition(" ")[2].replace(",", ""))
    assert whole[first : first + len(actual)] == actual
    actual.decode()


@pytest.fixture
def perturbed(tmp_path):
    """An engine made from a changed description, held to the reference of the right one."""

    def make(right: dict, wrong: dict, engine: str, **arguments) -> Tokenizer:
        (tmp_path / "right").mkdir()
        (tmp_path / "wrong").mkdir()
        good, bad = (
            load_tokenizer(written(description, tmp_path / name), engine=engine, eot="a", **arguments)
            for name, description in (("right", right), ("wrong", wrong))
        )
        assert audit_tricky(good).documents == len(tricky_texts())
        return dataclasses.replace(good, _encode=bad._encode)

    return make


def wrong_merge(description: dict) -> dict:
    """The third merge is gone, as if a line of the file had been lost."""
    return with_model(description, merges=description["model"]["merges"][:2] + description["model"]["merges"][3:])


def shifted(description: dict) -> dict:
    """The last two added tokens have each other's id: no two share one, which would send the text to another engine."""
    *others, before, last = description["added_tokens"]
    exchanged = [{**before, "id": last["id"]}, {**last, "id": before["id"]}]
    vocabulary = {**description["model"]["vocab"], **{token["content"]: token["id"] for token in exchanged}}
    return with_model({**description, "added_tokens": [*others, *exchanged]}, vocab=vocabulary)


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ("corpusmill", "SentencePiece"),
        ("gigatoken", "byte-level"),
        ("gigatoken", "SentencePiece"),
        ("tokenizers", "byte-level"),
    ],
)
@pytest.mark.parametrize("fault", ["merge", "normalizer", "special id"])
def test_audit_fault_of_any_engine_is_caught(perturbed, engine: str, kind: str, fault: str) -> None:
    right = with_added(small() if kind == "byte-level" else sentencepiece(), special=True)
    if fault == "normalizer":
        marks = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        wrong = {**right, "normalizer": {"type": "NFKC"} if kind == "byte-level" else marks}
    else:
        wrong = wrong_merge(right) if fault == "merge" else shifted(right)
    asked = "auto" if engine == "corpusmill" else engine
    broken = perturbed(right, wrong, asked, parse_special=fault == "special id")
    assert broken.engine == engine
    texts = [*tricky_texts(), b"a <mask> b"]
    rows = [broken.encode([text])[0] for text in texts]
    with raises("audit.engines_disagree"):
        audit_documents(
            [(f"line {line}", text, ids) for line, (text, ids) in enumerate(zip(texts, rows, strict=True))], broken
        )


@pytest.mark.parametrize(
    ("engine", "fault"), [("gigatoken", "merge"), ("gigatoken", "pattern"), ("tiktoken", "special id")]
)
def test_audit_fault_with_a_rank_file_is_caught(tmp_path, engine: str, fault: str) -> None:
    """A rank file has no normalizer: in its place the split pattern is another one."""
    ranks = shared("r50k_base.tiktoken").read_bytes()
    pairs = [line.split() for line in ranks.splitlines()]
    (merged,) = (rank for rank, (token, _) in enumerate(pairs) if token == b"IGFuZA==")  # " and"
    pairs[merged][0], pairs[merged + 1][0] = pairs[merged + 1][0], pairs[merged][0]
    paths = [tmp_path / f"{name}.tiktoken" for name in ("right", "wrong")]
    paths[0].write_bytes(ranks)
    paths[1].write_bytes(b"".join(b"%s %s\n" % (token, rank) for token, rank in pairs) if fault == "merge" else ranks)
    good, bad = (
        load_tokenizer(
            str(path),
            engine=engine,
            eot="<end>",
            pattern="cl100k_base" if wrong and fault == "pattern" else "r50k_base",
            special_tokens=(("<end>", 50_256), ("<mask>", 50_258 if wrong and fault == "special id" else 50_257)),
            parse_special=fault == "special id",
        )
        for path, wrong in zip(paths, (False, True), strict=True)
    )
    assert audit_tricky(good).documents == len(tricky_texts())
    broken = dataclasses.replace(good, _encode=bad._encode, vocabulary_size=bad.vocabulary_size)
    assert broken.engine == engine
    texts = [*tricky_texts(), b"a <mask> b the and"]
    rows = [broken.encode([text])[0] for text in texts]
    with raises("audit.engines_disagree"):
        audit_documents(
            [(f"line {line}", text, ids) for line, (text, ids) in enumerate(zip(texts, rows, strict=True))], broken
        )
