from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import TokenizerError
from pipeline.tokens.encode import encode_documents
from pipeline.tokens.tokenizer import load_tokenizer

CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
VOCABULARIES = (
    Path(os.environ.get("CORPUSMILL_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")) / "tokenizers"
)

TRICKY = [
    "",
    " ",
    "\n",
    " " * 300,
    "\t\t\n\r\n  \u00a0\u3000x",
    "<|endoftext|> and <|fim_prefix|>",
    "naïve café e\u0301 中文 日本語 한국어 العربية हिन्दी 🧑‍🚀👩🏽‍🔬",
    "\x00\x01\x7f",
    "a" * 5000,
    "0123456789" * 50,
    "don't I'll we've HE'S",
    "def f(x):\n    return  x  \n",
    "\U0010ffff\ue000\ufeff",
]


@pytest.fixture(scope="module")
def engines():
    return {engine: load_tokenizer("cl100k_base", engine=engine) for engine in ("gigatoken", "tiktoken")}


def test_tokenizer_cl100k_facts_are_those_of_its_authors(engines) -> None:
    tokenizer = engines["gigatoken"]
    assert (tokenizer.vocabulary_size, tokenizer.eot_id, tokenizer.sha256) == (100277, 100257, CL100K_SHA256)
    assert tokenizer.dtype == np.dtype("<u4")


@pytest.mark.parametrize("text", TRICKY)
def test_tokenizer_engines_give_the_same_ids_for_tricky_text(engines, text: str) -> None:
    fast, ends = engines["gigatoken"].encode([text.encode()])
    slow, _ = engines["tiktoken"].encode([text.encode()])
    assert fast.tolist() == slow.tolist()
    assert ends.tolist() == [len(slow)]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=4))
def test_tokenizer_engines_give_the_same_ids_for_any_text(engines, texts: list[str]) -> None:
    encoded = [text.encode() for text in texts]
    fast, fast_ends = engines["gigatoken"].encode(encoded)
    slow, slow_ends = engines["tiktoken"].encode(encoded)
    assert fast.tolist() == slow.tolist()
    assert fast_ends.tolist() == slow_ends.tolist()
    assert engines["gigatoken"].decode(fast) == b"".join(encoded)


def test_tokenizer_literal_special_string_stays_text(engines) -> None:
    for tokenizer in engines.values():
        tokens, _ = tokenizer.encode([b"<|endoftext|>"])
        assert tokenizer.eot_id not in tokens
        assert tokenizer.decode(tokens) == b"<|endoftext|>"


def test_encode_documents_batches_keep_documents_apart(engines) -> None:
    text = np.frombuffer(b"onetwothree", np.uint8)
    boundaries = np.array([0, 3, 3, 6, 11], np.uint64)
    [(tokens, ends)] = encode_documents([(text, boundaries)], engines["gigatoken"])
    starts = [0, *ends.tolist()]
    decoded = [engines["gigatoken"].decode(tokens[a:b]) for a, b in zip(starts, ends.tolist(), strict=False)]
    assert decoded == [b"one", b"", b"two", b"three"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "gpt5"}, ["unknown tokenizer", "cl100k_base, o200k_base, p50k_base, r50k_base"]),
        ({"name": "cl100k_base", "engine": "abacus"}, ["unknown engine", "gigatoken, tiktoken"]),
        ({"name": "cl100k_base", "sha256": "0" * 64}, ["tokenizer.sha256", "0" * 64, CL100K_SHA256]),
        ({"name": "cl100k_base", "file": "/no/such/file"}, ["does not exist", "/no/such/file"]),
    ],
)
def test_tokenizer_that_cannot_be_used_says_why(arguments: dict, said: list[str]) -> None:
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(**{"engine": "gigatoken", **arguments})
    for words in said:
        assert words in str(caught.value)


def test_tokenizer_file_that_is_not_the_expected_one_is_refused(tmp_path) -> None:
    path = tmp_path / "cl100k_base.tiktoken"
    path.write_bytes(b"YQ== 0\n")
    with pytest.raises(TokenizerError, match="not the one that tiktoken's cl100k_base names") as caught:
        load_tokenizer("cl100k_base", file=str(path), engine="gigatoken")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("name", "dtype", "size"), [("r50k_base", "<u2", 50257), ("o200k_base", "<u4", 200019)])
def test_tokenizer_from_a_vocabulary_file_equals_tiktoken(name: str, dtype: str, size: int) -> None:
    path = VOCABULARIES / f"{name}.tiktoken"
    if not path.exists():
        pytest.skip(f"the shared vocabulary files are not here: {path}")
    fast, slow = (load_tokenizer(name, file=str(path), engine=engine) for engine in ("gigatoken", "tiktoken"))
    assert (fast.dtype, fast.vocabulary_size) == (np.dtype(dtype), size)
    for text in TRICKY:
        assert fast.encode([text.encode()])[0].tolist() == slow.encode([text.encode()])[0].tolist()
