"""Vocabularies for tests: the shared files, a SentencePiece-style tokenizer.json, and changes to them."""

from __future__ import annotations

import base64
import copy
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("CORPUSMILL_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")) / "tokenizers"
GPT2, NEOX = "gpt2.tokenizer.json", "gpt-neox-20b.tokenizer.json"


def shared(name: str) -> Path:
    """A shared vocabulary file; the test is skipped without it."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the shared vocabulary files are not here: {path} (set CORPUSMILL_TEST_DATA)")
    return path


def p50k(folder: Path) -> str:
    """p50k_base.tiktoken, byte for byte: r50k_base, and 2 to 25 spaces as ids 50257 to 50280 (50256 is special)."""
    runs = [base64.b64encode(b" " * spaces) + b" %d\n" % (50255 + spaces) for spaces in range(2, 26)]
    path = folder / "p50k_base.tiktoken"
    path.write_bytes(shared("r50k_base.tiktoken").read_bytes() + b"".join(runs))
    return str(path)


def described(name: str, **changes: Any) -> dict[str, Any]:
    return {**json.loads(shared(name).read_bytes()), **copy.deepcopy(changes)}


@cache
def _gpt2() -> dict[str, Any]:
    return described(GPT2)


def small(**changes: Any) -> dict[str, Any]:
    """GPT-2's first 2,256 tokens, which load in no time, its special token behind them."""
    whole = _gpt2()
    vocabulary = {token: number for token, number in whole["model"]["vocab"].items() if number < 2256}
    model = {**whole["model"], "vocab": vocabulary, "merges": whole["model"]["merges"][:2000]}
    added = [{**token, "id": 2256} for token in whole["added_tokens"]]
    return {**whole, "model": model, "added_tokens": added, **copy.deepcopy(changes)}


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """A small BPE with byte fallback, as Llama-2's tokenizer.json."""
    words = ["▁", *"abthexX1cs'", "▁a", "th", "the", "▁the", "▁x", "▁▁", "▁▁▁▁", "中", "é"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    back = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    made = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": tokens[number], **special} for number in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": back},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [["▁", "a"], ["t", "h"], ["th", "e"], ["▁", "the"], ["▁", "x"], ["▁", "▁"], ["▁▁", "▁▁"]],
        },
    }
    return {**made, **copy.deepcopy(changes)}


def with_added(description: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """One more added token, behind all ids that are there."""
    ids = [*description["model"]["vocab"].values(), *(token["id"] for token in description["added_tokens"])]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    token = {"id": max(ids) + 1, "content": "<mask>", **plain, **changes}
    return {**description, "added_tokens": [*description["added_tokens"], token]}


def with_model(description: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**description, "model": {**description["model"], **changes}}


def written(description: dict[str, Any], folder: Path) -> str:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    return str(path)
