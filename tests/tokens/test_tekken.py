"""tekken.json: tiktoken's ids, moved behind the special tokens."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.tokens.audit import audit_tricky, tricky_texts
from corpusmill.tokens.ranks import read_ranks
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.quick import examples
from tests.raising import raises
from tests.tokens.vocabularies import shared

PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL, ORDINARY, LISTED = 40, 3000, 3200


def tokens() -> list[bytes]:
    """The bytes in order, as Mistral has them, and what GPT-2's first merges make."""
    words = list(read_ranks(shared("r50k_base.tiktoken").read_bytes()))[:LISTED]
    return [*(bytes([byte]) for byte in range(256)), *(word for word in words if len(word) > 1)]


def described(**changes: Any) -> dict[str, Any]:
    """As Mistral's files: more tokens than are used, and special tokens without names of their own."""
    listed = [
        {"rank": rank, "token_bytes": base64.b64encode(word).decode(), "token_str": None}
        for rank, word in enumerate(tokens())
    ]
    config = {
        "pattern": PATTERN,
        "num_vocab_tokens": len(listed),
        "default_vocab_size": SPECIAL + ORDINARY,
        "default_num_special_tokens": SPECIAL,
        "version": "v3",
    }
    return {"config": config | changes.pop("config", {}), "vocab": listed} | changes


def loaded(folder: Path, description: dict[str, Any], **arguments: Any) -> Tokenizer:
    path = folder / "tekken.json"
    path.write_text(json.dumps(description))
    return load_tokenizer(str(path), **arguments)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return loaded(tmp_path_factory.mktemp("tekken"), described())


@pytest.fixture(scope="module")
def library() -> tiktoken.Encoding:
    ranks = {word: rank for rank, word in enumerate(tokens()[:ORDINARY])}
    return tiktoken.Encoding("oracle", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def test_special_tokens_come_first_and_have_mistrals_names(tokenizer) -> None:
    assert tokenizer.engine == "gigatoken", tokenizer.why_slow
    assert (tokenizer.bos_id, tokenizer.eot_id, tokenizer.pad_id) == (1, 2, 11)
    assert tokenizer.vocabulary_size == SPECIAL + ORDINARY
    special = tokenizer.reference.special_tokens
    assert (special["[INST]"], special["<SPECIAL_20>"], special["<SPECIAL_39>"]) == (3, 20, 39)
    assert len(special) == SPECIAL
    assert audit_tricky(tokenizer).round_trips == len(tricky_texts())


@given(st.lists(st.text(max_size=60) | st.sampled_from(["</s>", " a  b\r\n\n/", "½٣", "Aa'S don't"]), max_size=4))
@examples(200)
def test_ids_are_tiktokens_moved_behind_the_special_tokens(tokenizer, library, documents: list[str]) -> None:
    documents = [document.encode("utf-8", "ignore").decode() for document in documents]
    ids, ends = tokenizer.encode([document.encode() for document in documents])
    expected = library.encode_ordinary_batch(documents)
    assert ids.tolist() == [number + SPECIAL for row in expected for number in row]
    assert ends.tolist() == np.cumsum([len(row) for row in expected]).tolist()


def test_named_special_tokens_have_the_ids_that_the_file_states(tmp_path) -> None:
    names = ["<unk>", "</s>", "<s>", "[THINK]"]
    listed = [{"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)]
    tokenizer = loaded(tmp_path, described(special_tokens=listed))
    assert (tokenizer.bos_id, tokenizer.eot_id) == (2, 1)
    assert tokenizer.reference.special_tokens["<SPECIAL_4>"] == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"default_vocab_size": SPECIAL + 10**6}},
        {"config": {"default_vocab_size": SPECIAL}},
        {"config": {"default_num_special_tokens": -1}},
        {"config": {"default_num_special_tokens": 2**40, "default_vocab_size": 2**40 + ORDINARY}},
        {"config": {"pattern": None}},
        {"vocab": [{"rank": 1, "token_bytes": "AA=="}], "config": {"default_vocab_size": SPECIAL + 1}},
        {"vocab": {}},
        {"special_tokens": [{"rank": 5, "token_str": "<s>"}]},
        {"special_tokens": [{"rank": 0, "token_str": "<s>"}, {"rank": 1, "token_str": "<s>"}]},
    ],
)
def test_file_that_contradicts_itself_is_refused(tmp_path, changes: dict[str, Any]) -> None:
    with raises("tokenizer.not_tekken", "tekken.json"):
        loaded(tmp_path, described(**changes))


def other_token(rank: int, encoded: str) -> list[dict[str, Any]]:
    """The tokens, one of them another."""
    listed = described()["vocab"]
    listed[rank]["token_bytes"] = encoded
    return list(listed)


@pytest.mark.parametrize(
    "vocab",
    [
        pytest.param(other_token(65, "Qg=="), id="a byte twice"),
        pytest.param(other_token(65, "QUE="), id="a byte that no token has"),
        pytest.param(other_token(300, base64.b64encode(tokens()[301]).decode()), id="a token twice"),
        pytest.param(other_token(300, "enp6 7\nenp6eg=="), id="two lines of ranks"),
        pytest.param(other_token(300, ""), id="no bytes"),
    ],
)
def test_vocabulary_that_mistral_common_refuses_is_refused(tmp_path, vocab) -> None:
    with raises("tokenizer.not_tekken", "tekken.json"):
        loaded(tmp_path, described(vocab=vocab))


def test_text_that_is_not_utf8_is_refused(tmp_path) -> None:
    path = tmp_path / "tekken.json"
    path.write_bytes(json.dumps(described()).encode().replace(b"v3", b"\xff", 1).replace(b'"AA=="', b'"\xff"', 1))
    with raises("tokenizer.not_tekken", "tekken.json"):
        load_tokenizer(str(path))


def test_settings_that_a_tekken_file_has_itself_are_refused(tmp_path) -> None:
    with raises("tokenizer.settings_ignored", "pattern"):
        loaded(tmp_path, described(), pattern="llama3")


def test_folder_with_a_tekken_file_alone_is_a_tokenizer(tmp_path) -> None:
    assert loaded(tmp_path, described()).sha256 == load_tokenizer(str(tmp_path)).sha256
