"""gigatoken gives a few texts one by one and many in a batch: the ids are the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from corpusmill.tokens import engines
from corpusmill.tokens.engines import FEW_TEXTS
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.tokens.test_fitness import digits
from tests.tokens.vocabularies import small, written

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
