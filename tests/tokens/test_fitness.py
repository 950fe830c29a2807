"""The test matrix behind corpusmill/tokens/fitness.py: what the rule lets through is equal, what it refuses differs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.tokens.audit import tricky_texts
from corpusmill.tokens.fitness import isolated, why_not_gigatoken_json
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.quick import quick
from tests.raising import raises
from tests.tokens.vocabularies import (
    GPT2,
    NEOX,
    described,
    sentencepiece,
    shared,
    small,
    with_added,
    with_model,
    written,
)

LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PIECES = [
    "a", "b", "the", " ", "  ", "\n", "é", "e\u0301", "中", "<s>", "1", "'s", "🧑", "\u00a0", "\t", "X", " x", "ﬁ",
    "—", "…", "\u200d", "\u2028", "a b", "<tool>", "<MASK>", "text", "½", "٣", "Ⅷ", "\u3097", "각", "\u1100\u1161", "Ⅳ",
    "\u0338", "ア・", "\u212b", "\0", "\u3000", "123", "İ", "\r\n", "▁", " <s> ", "<mask>", " <mask> ", "a<mask>",
    "<|endoftext|>",
]  # fmt: skip


DEEPSEEK = (
    r"\p{N}{1,3}",
    rb"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+".decode("unicode_escape"),
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


def split(pattern: str, behavior: str = "Isolated", *, invert: bool = False) -> dict[str, Any]:
    return splits(pattern, behavior=behavior, invert=invert)


def splits(*patterns: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    printed = {"behavior": behavior, "invert": invert}
    steps = [{"type": "Split", "pattern": {"Regex": pattern}, **printed} for pattern in patterns]
    return {"type": "Sequence", "pretokenizers": [*steps, {**LEVEL, "use_regex": False}]}


def digits(*, each: bool) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": each}, LEVEL]}


def with_many(description: dict[str, Any], contents: list[str]) -> dict[str, Any]:
    for content in contents:
        description = with_added(description, content=content)
    return description


def metaspace(scheme: str, cut: bool) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def spelled_twice() -> dict[str, Any]:
    """Command R's odd tokens: characters as they are, beside the same characters spelled in bytes."""
    vocabulary = small()["model"]["vocab"]
    odd = {token: 2_256 + i for i, token in enumerate(["\u3000", "中", "—", "…", "\u2028", "\u200d"])}
    return with_model(small(added_tokens=[]), vocab={**odd, **vocabulary})


EXACT = {
    "gpt2": lambda: described(GPT2),
    "neox": lambda: described(NEOX),
    "nfc": lambda: small(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]}),
    "prefix space": lambda: small(pre_tokenizer={**LEVEL, "add_prefix_space": True}),
    "llama-3 pattern": lambda: small(pre_tokenizer=split(LLAMA3)),
    "added": lambda: with_added(small()),
    "added normalized": lambda: with_added(described(NEOX), normalized=True),
    "added rstrip": lambda: with_added(small(), rstrip=True),
    "ignore_merges": lambda: with_model(small(), ignore_merges=True),
    "holes": lambda: with_model(
        small(added_tokens=[]),
        vocab={token: number + 7 * (number > 300) for token, number in small()["model"]["vocab"].items()},
    ),
    "sentencepiece": sentencepiece,
    "sentencepiece without prepend": lambda: sentencepiece(normalizer=MARK),
    "metaspace first": lambda: sentencepiece(normalizer=None, pre_tokenizer=metaspace("first", False)),
    "metaspace always": lambda: sentencepiece(normalizer=None, pre_tokenizer=metaspace("always", True)),
    "sentencepiece added": lambda: with_added(sentencepiece(), content="▁▁▁"),
    "sentencepiece added normalized": lambda: with_added(sentencepiece(), content="a b", normalized=True),
    "no normalizer in a sequence": lambda: small(normalizer={"type": "Sequence", "normalizers": []}),
    "nfkc": lambda: small(normalizer={"type": "NFKC"}),
    "nfd": lambda: small(normalizer={"type": "NFD"}),
    "lower case": lambda: small(normalizer={"type": "Lowercase"}),
    "lower case and nfc": lambda: small(
        normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFC"}]}
    ),
    "digits": lambda: small(pre_tokenizer=digits(each=True)),
    "digits in a row": lambda: small(normalizer={"type": "NFKC"}, pre_tokenizer=digits(each=False)),
    "split that keeps matches": lambda: small(pre_tokenizer=split(LLAMA3, "Removed", invert=True)),
    "three splits": lambda: small(pre_tokenizer=splits(*DEEPSEEK)),
    "added beside nfc": lambda: with_added(described(NEOX), content="<tool>"),
    "added and lower case": lambda: with_added(
        small(normalizer={"type": "Lowercase"}), content="<MASK>", normalized=True
    ),
    "whole word": lambda: with_added(small(), single_word=True),
    "space before": lambda: with_added(described(NEOX), lstrip=True),
    "two ids": lambda: with_added(small(), content="a"),
    "added in one another": lambda: with_many(small(), ["<s", "<s>", "s> ", "<mask><s>", "ask", "<"]),
    "added in special": lambda: with_many(small(), ["text", "|>a", "<|", "end"]),
    "added of both passes": lambda: with_added(with_many(small(), ["<mask>", "a<"]), content="k>a", normalized=True),
    "tokens that are not spelled in bytes": spelled_twice,
    "nothing that tokenizers does without": lambda: {
        key: value for key, value in small().items() if key in {"version", "model", "pre_tokenizer"}
    },
}
DIFFERS = {
    "no pattern": lambda: small(pre_tokenizer={**LEVEL, "use_regex": False}),
    "no pre_tokenizer": lambda: small(pre_tokenizer=None),
    "split that removes": lambda: small(pre_tokenizer=split(LLAMA3, "Removed")),
    "end of word": lambda: with_model(small(), end_of_word_suffix="</w>"),
}
UNREAD = {
    "punctuation": lambda: described(
        GPT2,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Isolated"}, LEVEL]},
    ),
    "sentencepiece token with a space": lambda: with_model(
        sentencepiece(), vocab={**sentencepiece()["model"]["vocab"], "a b": 290}
    ),
    "sentencepiece nfkc": lambda: sentencepiece(normalizer={"type": "NFKC"}),
    "sentencepiece added spaces": lambda: with_added(sentencepiece(), content="  ", normalized=True),
    "whitespace": lambda: described(GPT2, pre_tokenizer={"type": "Whitespace"}),
    "unknown pattern": lambda: described(GPT2, pre_tokenizer=split(r"\w+|\s+|[^\w\s]")),
    "unigram": lambda: described(GPT2, model={"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]}),
}


def texts() -> list[bytes]:
    rng = random.Random(1)
    return tricky_texts() + ["".join(rng.choices(PIECES, k=rng.randrange(1, 30))).encode() for _ in range(100)]


@pytest.mark.parametrize("special", quick([False, True], 1), ids=["special as text", "special parsed"])
@pytest.mark.parametrize("name", quick(EXACT, 8))
def test_gigatoken_construct_that_the_rule_lets_through_gives_equal_ids(name: str, special: bool, tmp_path) -> None:
    path = written(EXACT[name](), tmp_path)
    eot = "a"  # some token that all have
    fast, slow = (
        load_tokenizer(path, engine=engine, eot=eot, parse_special=special) for engine in ("gigatoken", "tokenizers")
    )
    for text in texts():
        assert fast.encode([text])[0].tolist() == slow.encode([text])[0].tolist(), text
    assert all(np.array_equal(*arrays) for arrays in zip(fast.encode(texts()), slow.encode(texts()), strict=True))


@pytest.mark.parametrize("name", [*DIFFERS, *UNREAD])
def test_gigatoken_construct_that_the_rule_refuses_names_the_engine_and_the_reason(name: str, tmp_path) -> None:
    path = written({**DIFFERS, **UNREAD}[name](), tmp_path)
    with raises("tokenizer.needs_engine", "tokenizers"):
        load_tokenizer(path, engine="gigatoken", eot="a")
    assert load_tokenizer(path, engine="tokenizers", eot="a").why_slow == ""
    auto = load_tokenizer(path, eot="a")
    assert auto.engine == "tokenizers"
    assert auto.why_slow
    assert auto.encode_counted([b"a", b"b a"])[2] == 2


@pytest.mark.parametrize("name", DIFFERS)
def test_gigatoken_construct_that_the_rule_refuses_was_seen_to_differ(name: str) -> None:
    """Not refused for nothing: when this fails, a newer gigatoken has learned the construct."""
    import gigatoken
    import tokenizers

    description = DIFFERS[name]()
    assert why_not_gigatoken_json(isolated(description))
    fast = gigatoken.Tokenizer.from_json(json.dumps(description))
    slow = tokenizers.Tokenizer.from_str(json.dumps(description))
    assert any(
        fast.encode(text).tolist() != slow.encode(text.decode(), add_special_tokens=False).ids for text in texts()
    )


def test_tiktoken_file_with_holes_has_the_same_ids_in_both_engines(tmp_path: Path) -> None:
    lines = shared("r50k_base.tiktoken").read_text().splitlines()
    path = tmp_path / "holes.tiktoken"
    path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1].split()[0] + " 50300\n")
    arguments = {"pattern": "r50k_base", "special_tokens": (("<|endoftext|>", 50290),)}
    fast = load_tokenizer(str(path), engine="gigatoken", **arguments)
    tokenizer = load_tokenizer(str(path), engine="tiktoken", **arguments)
    assert (tokenizer.vocabulary_size, tokenizer.eot_id) == (50301, 50290)
    for text in tricky_texts():
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text
        assert tokenizer.encode([text])[0].tolist() == fast.encode([text])[0].tolist()


def test_tiktoken_file_does_not_open_with_engine_tokenizers() -> None:
    with raises("tokenizer.needs_engine", "tiktoken", "tokenizers does not read tiktoken files"):
        load_tokenizer("cl100k_base", engine="tokenizers")
