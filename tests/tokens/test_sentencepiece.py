"""SentencePiece models: sentencepiece's ids, whatever the pieces, their scores and the text."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as messages

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.tokens.audit import audit_tricky, tricky_texts
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.quick import examples
from tests.raising import raises
from tests.system.corpus import configuration, make_documents, write_corpus

PIECE = messages.ModelProto.SentencePiece
KNOWN = ["▁", "a", "b", ",", "\n", "1", "é", "中"]
PARTS = [*KNOWN, " ", "  ", "     ", " ▁", "\0", "🧑", "<0x41>", "<s>", "ab", "a b", "▁▁", "<x>"]
RUNS = ["▁" * size for size in (2, 3, 4, 6, 8)]
LAST = -1e9


def model(
    pieces: list[tuple[str, float]],
    others: dict[str, int] | None = None,
    *,
    kind: int = messages.TrainerSpec.BPE,
    **changes: Any,
) -> bytes:
    """A model like Llama 2's: control pieces, 256 bytes, KNOWN, `pieces` with their scores, `others` of a type."""
    made = messages.ModelProto()
    listed = [("<unk>", 0.0, PIECE.UNKNOWN), ("<s>", 0.0, PIECE.CONTROL), ("</s>", 0.0, PIECE.CONTROL)]
    listed += [(f"<0x{byte:02X}>", 0.0, PIECE.BYTE) for byte in range(256)]
    listed += [(piece, score, PIECE.NORMAL) for piece, score in {**dict.fromkeys(KNOWN, -1e8), **dict(pieces)}.items()]
    listed += [(piece, 0.0, number) for piece, number in (others or {}).items()]
    for piece, score, number in listed:
        made.pieces.add(piece=piece, score=score, type=number)
    made.trainer_spec.model_type = kind
    made.trainer_spec.byte_fallback = True
    made.trainer_spec.treat_whitespace_as_suffix = changes.pop("treat_whitespace_as_suffix", False)
    settings = {"name": "identity", "add_dummy_prefix": True, "remove_extra_whitespaces": False} | changes
    for key, value in settings.items():
        setattr(made.normalizer_spec, key, value)
    content: bytes = made.SerializeToString()
    return content


def trained(**options: Any) -> bytes:
    """What sentencepiece's own trainer makes of the tests' corpus."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(make_documents(60, seed=3)),
        model_writer=out,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    return out.getvalue()


LIKE_LLAMA = {
    "model_type": "bpe",
    "vocab_size": 380,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
}
TRAINED: dict[str, dict[str, Any]] = {
    "bpe": LIKE_LLAMA,
    "bpe without a prefix": LIKE_LLAMA | {"add_dummy_prefix": False},
    "bpe with symbols": LIKE_LLAMA | {"user_defined_symbols": ["<x>", "stone", "中"]},
    "bpe of nfkc": LIKE_LLAMA | {"normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": True},
    "unigram": {"model_type": "unigram", "vocab_size": 500, "byte_fallback": True},
    "unigram of text as it is": LIKE_LLAMA | {"model_type": "unigram", "vocab_size": 500},
    "unigram without bytes": {"model_type": "unigram", "vocab_size": 100},
    "words": {"model_type": "word", "vocab_size": 40},
    "characters": {"model_type": "char", "vocab_size": 60},
}
FAST = {"bpe", "bpe without a prefix", "bpe with symbols"}


def loaded(content: bytes, folder: Path, **arguments: Any) -> Tokenizer:
    path = folder / "tokenizer.model"
    path.write_bytes(content)
    return load_tokenizer(str(path), **arguments)


def require_ids_of_the_library(tokenizer: Tokenizer, content: bytes, documents: list[str]) -> None:
    library = sentencepiece.SentencePieceProcessor(model_proto=content)
    tokens, ends = tokenizer.encode([document.encode() for document in documents])
    rows = [tokens[first:last].tolist() for first, last in pairwise([0, *ends.astype(int).tolist()])]
    assert rows == library.encode(documents)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_model_gives_the_librarys_ids_and_its_text_back(tmp_path, name: str) -> None:
    content = trained(**TRAINED[name])
    tokenizer = loaded(content, tmp_path)
    assert tokenizer.engine == ("corpusmill" if name in FAST else "sentencepiece")
    assert bool(tokenizer.why_slow) == (name not in FAST)
    assert (tokenizer.eot_id, tokenizer.bos_id) == (2, 1)
    documents = [*make_documents(30, seed=9), *(text.decode() for text in tricky_texts()), "<x>stone 中", ""]
    require_ids_of_the_library(tokenizer, content, documents)
    keeps_text = name in FAST | {"unigram of text as it is"}
    assert (audit_tricky(tokenizer).round_trips > 90) == keeps_text


@st.composite
def scored_pieces(draw: st.DrawFn) -> list[tuple[str, float]]:
    """Pieces of characters and earlier pieces, in any order of scores; runs of marks share the last score."""
    known = list(KNOWN)
    for _ in range(draw(st.integers(0, 14))):
        known.append(draw(st.sampled_from(known)) + draw(st.sampled_from(known)))
    longer = [piece for piece in dict.fromkeys(known) if len(piece) > 1 and piece.strip("▁")]
    scores = draw(st.permutations(range(len(longer))))
    runs = draw(st.lists(st.sampled_from(RUNS), unique=True))
    return [*zip(longer, map(float, scores), strict=True), *((run, LAST) for run in runs)]


@given(scored_pieces(), st.lists(st.lists(st.sampled_from(PARTS), max_size=40).map("".join), max_size=4), st.booleans())
@examples(400)
def test_any_bpe_of_marked_spaces_gives_the_librarys_ids(tmp_path_factory, pieces, documents, prepends) -> None:
    """Overlapping ways to one piece, and runs of spaces, are joined from the left, not in the order of a list."""
    content = model(pieces, add_dummy_prefix=prepends)
    tokenizer = loaded(content, tmp_path_factory.mktemp("model"))
    assert tokenizer.engine == "corpusmill", tokenizer.why_slow
    require_ids_of_the_library(tokenizer, content, documents)


@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=40).map("".join), max_size=4))
@examples(50)
def test_document_with_a_user_defined_piece_goes_to_the_library(tmp_path_factory, documents) -> None:
    content = model([("ab", -1.0), ("▁a", -2.0)], {"<x>": PIECE.USER_DEFINED, "b,": PIECE.USER_DEFINED})
    tokenizer = loaded(content, tmp_path_factory.mktemp("model"))
    held = sum("<x>" in document or "b," in document for document in documents)
    assert tokenizer.engine == "corpusmill"
    assert tokenizer.encode_counted([document.encode() for document in documents])[2] == held
    require_ids_of_the_library(tokenizer, content, documents)


def test_character_of_text_never_becomes_a_control_piece(tmp_path) -> None:
    content = model([("ab", -1.0)], {"ü": PIECE.CONTROL})
    tokenizer = loaded(content, tmp_path)
    assert tokenizer.engine == "corpusmill"
    require_ids_of_the_library(tokenizer, content, ["ü", "ab ü aü"])


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(model([("a", -1.0)], kind=messages.TrainerSpec.WORD), id="words"),
        pytest.param(model([], kind=messages.TrainerSpec.CHAR).replace("▁".encode(), "§x".encode()), id="no mark"),
    ],
)
def test_model_whose_marks_may_become_bytes_promises_no_text(tmp_path, content) -> None:
    tokenizer = loaded(content, tmp_path)
    assert tokenizer.decode(tokenizer.encode([b"q b"])[0]) != b"q b"
    assert not tokenizer.reference.promises_round_trip(b"q b")
    assert tokenizer.table is None


@pytest.mark.parametrize(
    ("reason", "content"),
    [
        ("Unigram", model([], kind=messages.TrainerSpec.UNIGRAM)),
        ("removes spaces", model([], remove_extra_whitespaces=True)),
        ("does not mark", model([], escape_whitespaces=False)),
        ("ends of words", model([], treat_whitespace_as_suffix=True)),
        ("unused", model([("ab", -1.0)], {"ba": PIECE.UNUSED})),
        ("user-defined pieces with spaces", model([], {"▁▁": PIECE.USER_DEFINED})),
        ("characters that are no pieces", model([("ax", -1.0)])),
        ("one score", model([("ab", -1.0), ("ba", -1.0)])),
        ("one score", model([("▁▁", -1.0), ("▁▁▁", -1.0), ("ab", -2.0)])),
        ("no number", model([("ab", float("nan"))])),
    ],
)
def test_model_that_the_piece_engine_would_encode_otherwise_stays_with_its_library(tmp_path, reason, content) -> None:
    tokenizer = loaded(content, tmp_path)
    assert tokenizer.engine == "sentencepiece"
    assert reason in tokenizer.why_slow
    require_ids_of_the_library(tokenizer, content, ["ab ab  ba▁ x", "", " a   b"])


def test_ends_of_tokens_are_those_of_the_bytes_they_stand_for(tmp_path) -> None:
    for name in ("bpe", "unigram", "bpe of nfkc"):
        reference = loaded(trained(**TRAINED[name]), tmp_path).reference
        for text in [*map(str.encode, make_documents(6, seed=4)), *tricky_texts(), b""]:
            ends = reference.token_ends(text)
            assert len(ends) == len(reference.encode(text))
            assert (np.diff(ends) >= 0).all()
            if name == "bpe" and len(ends):
                assert ends[-1] == len(text)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("tokenizer.needs_engine", {"engine": "gigatoken"}),
        ("tokenizer.needs_engine", {"engine": "tiktoken"}),
        ("tokenizer.settings_ignored", {"parse_special": True}),
        ("tokenizer.settings_ignored", {"pattern": "llama3"}),
    ],
)
def test_settings_that_a_model_does_not_have_are_refused(tmp_path, code: str, arguments: dict[str, Any]) -> None:
    with raises(code):
        loaded(model([]), tmp_path, **arguments)


def test_damaged_model_is_refused_or_gives_the_librarys_ids(tmp_path) -> None:
    content = model([("ab", -1.0)])
    with raises("tokenizer.not_sentencepiece", "tokenizer.model"):
        loaded(content[:-40], tmp_path)
    for damaged in (b"\n\x02ab" + bytes(20), content.replace("中".encode(), b"\xff\xfe\xfd")):
        with raises("tokenizer.not_sentencepiece"):
            loaded(damaged, tmp_path)


def test_folder_with_a_model_alone_is_a_tokenizer(tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    assert loaded(model([]), tmp_path / "mine").sha256 == load_tokenizer(str(tmp_path / "mine")).sha256


def test_build_with_a_model_is_audited_locked_and_decodes_to_its_text(tmp_path) -> None:
    texts = write_corpus(tmp_path / "corpus", documents=24)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained(**LIKE_LLAMA))
    values = configuration(tmp_path, dedup={"mode": "none"}, tokenizer={"name": str(path)}, exports={"megatron": {}})
    plan = build_dataset(check_config(values, where="test"), workers=1)
    lock = yaml.safe_load(plan.with_name("config.json").read_text())["lock"]
    assert lock["tokenizer_library"] == "sentencepiece"
    records = open_dataset(tmp_path / "outputs" / "tiny" / "latest")["megatron"]
    held = [records._dataset.tokenizer.decode(ids[:-1]).decode() for ids in records]
    assert sorted(held) == sorted(text for text in texts if text)
