"""Added tokens: which of them gigatoken matches as tokenizers does, and which strings send a document to tokenizers.

tokenizers cuts added tokens out of a text in two passes (added_vocabulary.rs): those with `normalized: false` out of
the raw text, then the others out of its normalized form; in each pass the leftmost longest match wins. A special token
that is to stay text still wins its pass before it is skipped, so it hides tokens that it overlaps.

A text that holds none of the strings is one piece for both libraries, so the rule is about strings alone:

    native    tokens of one pass, found anywhere, without conditions on what stands around them: gigatoken has them
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
    """`native` as they stand in the tokenizer.json; the finders' strings are of raw and of normalized text."""

    native: list[dict[str, Any]]
    raw: StringFinder
    normalized: StringFinder


def sort_added_tokens(
    reference: HuggingFaceReference, normalize: Callable[[str], str] | None, *, parse_special: bool
) -> AddedTokens | str:
    """What to do with each added token of a tokenizer.json; a reason if one cannot be looked for.

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
        else:  # spaces become marks in text and token alike: what lies between two of them stays as it is
            raw.add(max(content.replace(MARK, " ").split(" "), key=len))
    if "" in raw | normalized:
        return "an added token is exactly what its normalizer makes of spaces"
    return AddedTokens(native, StringFinder(raw), StringFinder(normalized))


def _is_plain(token: dict[str, Any], reference: HuggingFaceReference) -> bool:
    """Whether a token is matched anywhere, takes no spaces with it, and has the id that the file says.

    tokenizers gives an added token its model's id, or the next one that is free, whatever the file says.
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
