"""Every character is cut as the reference library cuts it, although each library has tables of another Unicode."""

from __future__ import annotations

import base64
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.tokens.ranks import pattern_of
from corpusmill.tokens.references import BYTE_OF_CHARACTER
from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.tokens.test_auto import QWEN
from tests.tokens.test_fitness import DEEPSEEK, LEVEL, LLAMA3, split, splits
from tests.tokens.vocabularies import small, with_model, written

NEWEST = "\u088f\u0c5c\ua7ce\ua7f1\ufbc3\U00010940\U00011de0\U00016ea0\U0001faea\U000323b0\U00033479"  # Unicode 17
PRIVATE = range(0xF0000, 0x110000, 97)
ASSIGNED = [*range(0x80, 0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000), *PRIVATE]
TOGETHER = 512


def showing_cuts() -> dict[str, int]:
    """Tokens: every byte, and a letter, a digit or a mark with every byte behind it, if no cut is between them."""
    spelled = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
    pairs = [first + spelled[byte] for first in "a1!" for byte in range(256)]
    return {token: number for number, token in enumerate([*map(spelled.__getitem__, range(256)), *pairs])}


def of_pattern(pre_tokenizer: dict[str, Any], folder: Path) -> Tokenizer:
    vocabulary = showing_cuts()
    merges = [list(token) for token in vocabulary if len(token) == 2]
    description = small(pre_tokenizer=pre_tokenizer, added_tokens=[])
    return load_tokenizer(written(with_model(description, vocab=vocabulary, merges=merges), folder), eot="a")


def of_ranks(pattern: str, folder: Path) -> Tokenizer:
    path = folder / "cuts.tiktoken"
    tokens = [(bytes(map(BYTE_OF_CHARACTER.__getitem__, token)), rank) for token, rank in showing_cuts().items()]
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in tokens))
    return load_tokenizer(str(path), pattern=pattern, eot="<end>", special_tokens=(("<end>", len(tokens)),))


PATTERNS: dict[str, Any] = {
    "gpt2": LEVEL,
    "Llama 3": split(LLAMA3),
    "Qwen": split(QWEN),
    "GPT-4o": split(pattern_of("o200k_base")),
    "DeepSeek": splits(*DEEPSEEK),
}


RANKS = ["r50k_base", "cl100k_base", "o200k_base"]
EVERY = [*RANKS, "DeepSeek"]  # the patterns of the others name no other properties of characters


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *((name, 61) for name in (*PATTERNS, *RANKS)),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in EVERY),
    ],
)
def test_every_character_is_cut_as_the_reference_cuts_it(name: str, step: int, tmp_path: Path) -> None:
    tokenizer = of_pattern(PATTERNS[name], tmp_path) if name in PATTERNS else of_ranks(name, tmp_path)
    assert tokenizer.engine == "gigatoken"
    characters = [*map(chr, ASSIGNED[::step]), *NEWEST]
    for known in (True, False):
        own = [character for character in characters if (unicodedata.category(character) != "Cn") is known]
        probes = [f"a{character}\n1{character}\n!{character}a\n {character}\n" for character in own]
        documents = ["".join(probes[first : first + TOGETHER]).encode() for first in range(0, len(probes), TOGETHER)]
        tokens, ends, by_reference = tokenizer.encode_counted(documents)
        assert by_reference == (0 if known else len(documents))
        for document, row in zip(documents, np.split(tokens, ends[:-1].astype(int)), strict=True):
            assert np.array_equal(row, tokenizer.reference.encode(document)), document.decode()[:20]


def test_characters_that_python_knows_are_encoded_fast(tmp_path: Path) -> None:
    tokenizer = of_ranks("cl100k_base", tmp_path)
    documents = ["plain", "é — 中文 🧑 \ue000 \U000f0001 \U00020000", "", "x" * 30 + "ไทย" * 9]
    assert tokenizer.encode_counted([text.encode() for text in documents])[2] == 0
    assert tokenizer.encode_counted([text.encode() for text in [*documents, "x" * 7 + NEWEST[0], "x"]])[2] == 1


@pytest.mark.parametrize(("version", "engine"), [("16.0.0", "gigatoken"), ("17.0.0", None)])
def test_python_that_knows_more_characters_than_the_references_uses_no_gigatoken(
    version: str, engine: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unicodedata, "unidata_version", version)
    assert of_ranks("cl100k_base", tmp_path).engine == (engine or "tiktoken")
    assert of_pattern(LEVEL, tmp_path).engine == (engine or "tokenizers")
