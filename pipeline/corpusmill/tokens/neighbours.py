"""Reads the files beside a tokenizer.json: the token that ends a text, the number of ids with embeddings.

    tokenizer_config.json     "eos_token": "</s>", or {"content": "</s>", ...}
    generation_config.json    "eos_token_id": 2, or [2, 32000]
    config.json               "vocab_size": 32000, or "text_config": {"vocab_size": 32000}

A pinned sha256 covers only the tokenizer.json, so a build keeps the values from these files in its lock.
"""

from __future__ import annotations

import json
from typing import Any

from corpusmill.errors import TokenizerError
from corpusmill.tokens.special import ending_candidates
from corpusmill.tokens.vocabulary import VocabularyFile, path_beside


def stated_eot(file: VocabularyFile, name: str) -> str:
    """The token that ends a text by the files beside a tokenizer.json; "" if its own special tokens determine it, or
    none does.

    `name` is the tokenizer's: a hub id, if the file is from there. Raises TokenizerError for a neighbour that is not
    JSON, HubUnavailableError.
    """
    if file.kind != "tokenizer.json":
        return ""
    try:
        special, ids = _tokens(json.loads(file.content))
    except (LookupError, TypeError, ValueError, AttributeError):
        return ""  # not a tokenizer.json: the reference library raises when it reads it
    candidates = ending_candidates(special)
    if len(candidates) == 1:
        return ""
    stated = _read(file, name, "tokenizer_config.json").get("eos_token")
    named = [stated.get("content") if isinstance(stated, dict) else stated]
    eos = _read(file, name, "generation_config.json").get("eos_token_id")
    named += [ids.get(number) for number in (eos if isinstance(eos, list) else [eos]) if isinstance(number, int)]
    known = {token for token in ids.values() if not candidates or token in candidates}
    return next((token for token in named if isinstance(token, str) and token in known), "")


def embedding_rows(file: VocabularyFile, name: str) -> int | None:
    """The number of ids for which the model beside the tokenizer has embeddings; None if no file states it."""
    config = _read(file, name, "config.json")
    inner = config.get("text_config")
    rows = config.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
    return rows if isinstance(rows, int) else None


def _tokens(description: dict[str, Any]) -> tuple[list[str], dict[int, str]]:
    """(special tokens, {id: token}) of a parsed tokenizer.json."""
    added = description.get("added_tokens") or []
    vocabulary = description["model"]["vocab"]
    pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((row[0], i) for i, row in enumerate(vocabulary))
    ids = {number: token for token, number in pairs} | {token["id"]: token["content"] for token in added}
    return [token["content"] for token in added if token["special"]], ids


def _read(file: VocabularyFile, name: str, neighbour: str) -> dict[str, Any]:
    path = path_beside(file, name, neighbour)
    if path is None:
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TokenizerError(
            "tokenizer.neighbour_malformed: a file next to the tokenizer is malformed",
            where=path,
            expected="JSON",
            got=type(error).__name__,
            next_step="correct it, or name the token that ends a text as tokenizer.eot",
        ) from None
    return content if isinstance(content, dict) else {}
