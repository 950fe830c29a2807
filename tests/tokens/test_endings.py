"""The token that ends a text: of a known name, stated beside the tokenizer.json, or an error that lists candidates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.tokens.special import embedding_rows, ending_token, stated_eot
from corpusmill.tokens.tokenizer import load_tokenizer
from corpusmill.tokens.vocabulary import find_vocabulary
from tests.raising import raises
from tests.tokens.vocabularies import sentencepiece, with_added, written


def with_special(*contents: str, **changes: Any) -> dict[str, Any]:
    description = sentencepiece(added_tokens=[], **changes)
    for content in contents:
        description = with_added(description, content=content, special=True)
    return description


def beside(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize(
    ("special", "stated", "expected"),
    [
        (["<|endoftext|>", "<|im_end|>"], "<|im_end|>", "<|endoftext|>"),  # Qwen: texts, not turns
        (["<|end_of_text|>", "<|eot_id|>"], "<|eot_id|>", "<|end_of_text|>"),  # Llama-3
        (["<EOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"], "<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>"),  # Command R
        (["<EOT>", "<META>"], "", "<EOT>"),  # Claude
        (["[CLS]", "[SEP]"], "", "[SEP]"),  # BERT
        (["<|odd|>"], "<|odd|>", "<|odd|>"),
        (["<|odd|>"], "", None),
        (["</s>", "<|endoftext|>"], "</s>", "</s>"),
        (["</s>", "<|endoftext|>"], "<|im_end|>", None),
        (["</s>", "<|endoftext|>"], "", None),
    ],
)
def test_ending_token_of_known_names_comes_before_what_chat_models_state(
    special: list[str], stated: str, expected: str | None
) -> None:
    assert ending_token(special, stated) == expected


@pytest.mark.parametrize(
    ("neighbour", "content"),
    [
        ("tokenizer_config.json", {"eos_token": "</s>"}),
        ("tokenizer_config.json", {"eos_token": {"content": "</s>", "lstrip": False}}),
        ("generation_config.json", {"eos_token_id": 2}),
        ("generation_config.json", {"eos_token_id": [2, 5]}),
    ],
)
def test_ending_token_unknown_name_is_that_of_the_files_beside(tmp_path, neighbour: str, content: object) -> None:
    """InternLM2's tokenizer.json has no added tokens at all; its </s> is a token like others."""
    path = written(with_special(), tmp_path)
    beside(tmp_path, neighbour, content)
    assert load_tokenizer(path).eot_id == 2
    assert load_tokenizer(path, eot="<s>").eot_id == 1


@pytest.mark.parametrize("content", [{"eos_token": "<not here>"}, {"eos_token": None}, [], {"eos_token": 7}])
def test_ending_token_that_the_files_beside_do_not_tell_is_asked_for(tmp_path, content: object) -> None:
    path = written(with_special("<|odd_end|>"), tmp_path)
    beside(tmp_path, "tokenizer_config.json", content)
    with raises("tokenizer.no_eot", "set tokenizer.eot: <|odd_end|>"):
        load_tokenizer(path)


def test_ending_token_two_candidates_are_listed_with_the_key_to_set(tmp_path) -> None:
    path = written(with_special("<|endoftext|>", "<eos>"), tmp_path)
    with raises("tokenizer.several_eot", "set tokenizer.eot: <|endoftext|> or <eos>"):
        load_tokenizer(path)
    beside(tmp_path, "tokenizer_config.json", {"eos_token": "<eos>"})
    actual = find_vocabulary(path)
    assert stated_eot(actual, path) == "<eos>"


def test_ending_token_malformed_neighbour_is_an_error_that_quotes_nothing(tmp_path) -> None:
    path = written(with_special(), tmp_path)
    beside(tmp_path, "tokenizer_config.json", '{"secret')
    with raises("tokenizer.neighbour_malformed") as caught:
        load_tokenizer(path)
    assert "secret" not in str(caught.value)


def test_ending_token_of_a_known_name_needs_no_files_beside(tmp_path) -> None:
    path = written(sentencepiece(), tmp_path)
    beside(tmp_path, "tokenizer_config.json", '{"secret')
    assert load_tokenizer(path).eot_id == 2


@pytest.mark.parametrize("config", [{"vocab_size": 285}, {"text_config": {"vocab_size": 285}}])
def test_embeddings_of_the_model_beside_are_counted(tmp_path, config: object) -> None:
    path = written(sentencepiece(), tmp_path)
    assert embedding_rows(find_vocabulary(path), path) is None
    beside(tmp_path, "config.json", config)
    assert embedding_rows(find_vocabulary(path), path) == 285
