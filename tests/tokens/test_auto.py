"""Engine auto: the ids of tokenizers for every tokenizer.json that it reads, the fast way where that is proven; a few
texts one by one and many in a batch have the same ids.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from corpusmill.errors import TokenizerError
from corpusmill.tokens import engines
from corpusmill.tokens.engines import FEW_TEXTS
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.quick import examples, quick
from tests.raising import raises
from tests.tokens.test_fitness import digits, split, texts
from tests.tokens.vocabularies import sentencepiece, small, with_added, with_model, written

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def qwen() -> dict[str, Any]:
    """Qwen's steps and added tokens on a part of GPT-2's model."""
    description = small(normalizer={"type": "NFC"}, pre_tokenizer=split(QWEN))
    for content, special in (("<|im_end|>", True), ("<tool_call>", False), ("</tool_call>", False)):
        description = with_added(description, content=content, special=special)
    return description


def require_reference(tokenizer: Tokenizer, documents: list[bytes]) -> int:
    """How many documents went to the reference, after all ids were compared with its."""
    tokens, ends, by_reference = tokenizer.encode_counted(documents)
    rows = [tokenizer.reference.encode(document).tolist() for document in documents]
    assert (
        np.split(tokens, ends[:-1].astype(int))[: len(rows)] == []
        or [row.tolist() for row in np.split(tokens, ends[:-1].astype(int))] == rows
    )
    return by_reference


def test_auto_document_with_an_added_token_alone_goes_to_the_reference(tmp_path) -> None:
    tokenizer = load_tokenizer(written(qwen(), tmp_path))
    assert (tokenizer.engine, tokenizer.why_slow) == ("gigatoken", "")
    documents = [b"plain", b"<tool_call>", b"", b"a</tool_call>b", b"<tool_cal", b"l>", "e\u0301".encode()]
    assert require_reference(tokenizer, documents) == 2
    assert require_reference(tokenizer, [b"<tool_call>"] * 3) == 3
    assert require_reference(tokenizer, []) == 0


@examples(100)
@given(data=st.data())
def test_auto_any_mixture_of_added_tokens_gives_the_references_ids(data: st.DataObject, tmp_path_factory) -> None:
    """Tokens that hold one another, overlap, stand at borders of documents, take spaces, or are normalized."""
    contents = data.draw(
        st.lists(st.sampled_from(["ab", "b<", "<a>", "a>", "É", "e\u0301", "  ", "<ab>"]), unique=True)
    )
    description = data.draw(st.sampled_from([small(normalizer={"type": "NFC"}), small(), sentencepiece()]))
    flags = st.sampled_from(["normalized", "special", "lstrip", "rstrip", "single_word"])
    for content in contents:
        marked = dict.fromkeys(data.draw(st.lists(flags, max_size=2)), True)
        description = with_added(description, content=content, **marked)
    path = written(description, tmp_path_factory.mktemp("mixture"))
    tokenizer = load_tokenizer(path, eot="a", parse_special=data.draw(st.booleans()))
    parts = st.sampled_from([*contents, "a", "b", "<", ">", " ", "e", "\u0301", "É", "the"])
    documents = ["".join(data.draw(st.lists(parts, max_size=12))).encode() for _ in range(4)]
    with suppress(TokenizerError):  # the library itself fails on some, see below
        require_reference(tokenizer, documents)


def test_text_on_which_the_library_itself_fails_is_an_error_in_words(tmp_path) -> None:
    description = with_added(small(), content="  ", lstrip=True, single_word=True)
    tokenizer = load_tokenizer(written(with_added(description, content="b<", rstrip=True), tmp_path), eot="a")
    with raises("tokenizer.text_not_encodable"):
        tokenizer.encode([b"    b<    "])


@pytest.mark.parametrize("engine", ["auto", "gigatoken", "tokenizers"])
def test_special_string_in_text_stays_text_and_its_documents_are_counted(tmp_path, engine: str) -> None:
    tokenizer = load_tokenizer(written(qwen(), tmp_path), engine=engine)
    documents = [b"a<|im_end|>b", b"a<|endoftext|>", b"plain", b"<|im_en", b"d|>"]
    tokens, _ = tokenizer.encode(documents)
    assert not {tokenizer.eot_id, tokenizer.reference.special_tokens["<|im_end|>"]} & set(tokens.tolist())
    assert tokenizer.special_strings.holding(documents).tolist() == [True, True, False, False, False]


def trained(model: Any, trainer: Any, **steps: Any) -> dict[str, Any]:
    """The tokenizer.json of a model that is trained on the test's own texts."""
    tokenizer = tokenizers.Tokenizer(model)
    for name, step in steps.items():
        setattr(tokenizer, name, step)
    tokenizer.train_from_iterator([text.decode() for text in texts()], trainer)
    return json.loads(tokenizer.to_str())


SLOW = {
    "WordPiece": lambda: trained(
        models.WordPiece(unk_token="[UNK]"),  # noqa: S106
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[SEP]"], show_progress=False),
        normalizer=tokenizers.normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    ),
    "Unigram": lambda: trained(
        models.Unigram(),
        trainers.UnigramTrainer(
            vocab_size=30_000,
            special_tokens=["<unk>", "</s>"],
            unk_token="<unk>",  # noqa: S106
            show_progress=False,
        ),
        normalizer=tokenizers.normalizers.NFKC(),
        pre_tokenizer=pre_tokenizers.Metaspace(),
    ),
    "WordLevel": lambda: trained(
        models.WordLevel(unk_token="[UNK]"),  # noqa: S106
        trainers.WordLevelTrainer(special_tokens=["[UNK]", "[SEP]"], show_progress=False),
        pre_tokenizer=pre_tokenizers.Whitespace(),
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_auto_model_that_gigatoken_does_not_have_is_encoded_by_the_reference_and_says_so(tmp_path, name: str) -> None:
    tokenizer = load_tokenizer(written(SLOW[name](), tmp_path))
    assert (tokenizer.engine, tokenizer.why_slow) == ("tokenizers", f"its model is {name}, not BPE")
    assert require_reference(tokenizer, texts()[:100]) == 100


def test_auto_component_that_nobody_knows_is_refused_in_our_words(tmp_path) -> None:
    path = written(small(pre_tokenizer={"type": "Oracle", "secret": "no word of the file"}), tmp_path)
    with raises("tokenizer.not_a_tokenizer_json") as caught:
        load_tokenizer(path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("number", quick([65_535, 65_536, (1 << 24) + 9, 1 << 24], 3))
def test_auto_ids_beyond_16_and_24_bits_come_back_whole(tmp_path, number: int) -> None:
    dtype = "<u2" if number == 65_535 else "<u4"
    vocabulary = small()["model"]["vocab"]
    vocabulary["\u0120their"] = number
    path = written(with_model(small(added_tokens=[]), vocab=vocabulary), tmp_path)
    tokenizer = load_tokenizer(path, eot="!")
    assert (tokenizer.engine, tokenizer.dtype, tokenizer.vocabulary_size) == ("gigatoken", np.dtype(dtype), number + 1)
    assert tokenizer.encode([b" their"])[0].tolist() == [number]
    assert require_reference(tokenizer, [b"to their", b"their"]) == 0


def test_auto_digits_with_characters_of_a_newer_unicode_go_to_the_reference(tmp_path) -> None:
    tokenizer = load_tokenizer(written(small(pre_tokenizer=digits(each=True)), tmp_path))
    assert require_reference(tokenizer, [b"a1b22", "\u3097".encode(), "٣½".encode(), b""]) == 1


TEXTS = ["", " ", "a", "12 and 345", "naïve 中文 ٣٤", "the end.\n\n", "<|endoftext|>"]


@pytest.fixture(params=["ranks", "digits", "digits in a row"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    if request.param == "ranks":
        return load_tokenizer("cl100k_base", engine="gigatoken")
    return load_tokenizer(written(small(pre_tokenizer=digits(each=request.param == "digits")), tmp_path))


@pytest.mark.parametrize("alone_texts", [0, engines.ALONE_TEXTS])
def test_batch_of_many_texts_has_the_ids_of_each_by_itself(
    tokenizer: Tokenizer, alone_texts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_alone", [0])
    monkeypatch.setattr(engines, "ALONE_TEXTS", alone_texts)
    if alone_texts:
        monkeypatch.delitem(sys.modules, "awkward", raising=False)
    texts = [text.encode() for text in TEXTS * FEW_TEXTS]
    assert tokenizer.engine == "gigatoken"
    tokens, ends = tokenizer.encode(texts)
    rows = [tokenizer.encode([text])[0].tolist() for text in texts[: len(TEXTS)]]
    assert tokens.tolist() == [token for row in rows for token in row] * FEW_TEXTS
    assert len(ends) == len(texts)
    assert ("awkward" in sys.modules) == (alone_texts == 0)
