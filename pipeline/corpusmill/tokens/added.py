"""Decides which added tokens gigatoken matches as tokenizers does, and which strings send a document to tokenizers.

tokenizers cuts added tokens out of a text in two passes (added_vocabulary.rs): those with `normalized: false` out of
the raw text, then the others out of its normalized form; in each pass the leftmost longest match wins. A special token
that stays text still wins its pass before it is skipped, so it hides tokens that it overlaps.

A text without any of the strings is one piece for both libraries, so only strings matter:

    native    tokens of one pass, found anywhere, without conditions on their surroundings: gigatoken has them
    guarded   all others, and special tokens that overlap a native one: a document with such a string goes to tokenizers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corpusmill.tokens.fitness import MARK
from corpusmill.tokens.references import HuggingFaceReference
from corpusmill.tokens.strings import StringFinder


@dataclass(frozen=True)
class AddedTokens:
    """`native`: as in the tokenizer.json; the finders search raw and normalized text."""

    native: list[dict[str, Any]]
    raw: StringFinder
    normalized: StringFinder


def sort_added_tokens(
    reference: HuggingFaceReference, normalize: Callable[[str], str] | None, *, parse_special: bool
) -> AddedTokens | str:
    """The treatment of each added token of a tokenizer.json; a reason (str) if one cannot be searched for.

    `normalize` is the whole normalizer where it is applied before gigatoken, None where there is none or gigatoken
    applies it itself (SentencePiece).
    """
    description = reference.description
    marks_spaces = bool(description["model"].get("byte_fallback"))
    active = [token for token in description["added_tokens"] if parse_special or not token["special"]]
    skipped = [token for token in description["added_tokens"] if token["special"] and not parse_special]
    native = [token for token in active if _is_plain(token, reference)]
    if marks_spaces or normalize:
        native = [token for token in native if token["normalized"] is not marks_spaces]
    if normalize:
        native = [token for token in native if normalize(token["content"]) == token["content"]]
    raw_pass = [token for token in native if not token["normalized"]]
    native = max(raw_pass, [token for token in native if token["normalized"]], key=len)
    kept = {token["content"] for token in native}
    guarded = [token for token in active if token["content"] not in kept]
    hiding = overlapping({token["content"] for token in skipped}, kept)
    guarded += [token for token in skipped if token["content"] in hiding]
    raw, normalized = set(), set()
    for token in guarded:
        content = token["content"]
        if not token["normalized"] or not (normalize or marks_spaces):
            raw.add(content)
        elif normalize:
            normalized.add(normalize(content))
        else:  # spaces become marks in text and token alike; text between them does not change
            raw.add(max(content.replace(MARK, " ").split(" "), key=len))
    if "" in raw | normalized:
        return "an added token is exactly what its normalizer makes of spaces"
    return AddedTokens(native, StringFinder(raw), StringFinder(normalized))


def _is_plain(token: dict[str, Any], reference: HuggingFaceReference) -> bool:
    """Whether a token is matched anywhere, takes no spaces with it, and has the id that the file states.

    tokenizers gives an added token its model's id, or the next free one, whatever id the file states.
    """
    vocabulary = reference.description["model"]["vocab"]
    ids = {token["id"], reference.id_of(token["content"]), vocabulary.get(token["content"], token["id"])}
    return len(ids) == 1 and not (token["single_word"] or token["lstrip"] or token["rstrip"])


def overlapping(strings: set[str], others: set[str]) -> set[str]:
    """Those of `strings` that can share a character with one of `others` in some text."""
    heads = {other[:size] for other in others for size in range(1, len(other))}
    tails = {other[-size:] for other in others for size in range(1, len(other))}
    return {
        string
        for string in strings
        if any(string[:size] in tails or string[-size:] in heads for size in range(1, len(string) + 1))
        or any(other in string or string in other for other in others)
    }
