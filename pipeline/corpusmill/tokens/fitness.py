"""Decides for which tokenizers gigatoken produces the reference library's ids, by a rule found with a test matrix.

tests/tokens/test_fitness.py runs every construct below through both libraries over tricky text: admitted constructs
must give equal ids, refused ones were seen to differ (or are not read at all). Constructs not listed are refused.

gigatoken with a tokenizer.json (tested with gigatoken 0.10 and tokenizers 0.23):

    exact      byte-level BPE split by ByteLevel's own pattern, after Digits too, or by Split patterns that
               gigatoken knows; any normalizer, applied before by tokenizers (the two libraries' tables are of two
               versions of Unicode); SentencePiece BPE with byte fallback, its spaces marked by Prepend and Replace,
               Metaspace, or Split; added tokens (documents that hold some of them go to tokenizers); ids
               with holes; ignore_merges
    differs    ByteLevel without its pattern and without Split; no pre_tokenizer; Split that removes pieces; an
               end-of-word suffix
    refused    other pre_tokenizers (Punctuation ...), unknown patterns, byte-level vocabularies without some byte,
               Unigram, WordPiece, other normalizers of SentencePiece BPE

gigatoken with a .tiktoken file: patterns that it knows, and ranks that a list of merges can say (rank_merges.py).

Patterns cut where letters, numbers and others meet. gigatoken knows Unicode 17; tiktoken and tokenizers know Unicode 16
and cut some 4,700 characters otherwise. A document with one that Python does not know goes to the reference library
(engines.py); all others are cut equally (tests/tokens/test_unicode.py). A Python with a Unicode newer than 16 cannot
identify them, so gigatoken is not used there.

SentencePiece BPE whose every text is one word (no pre_tokenizer, or one that has nothing to cut at) is encoded piece by
piece (pieces.py): where the two sides of no merge meet in two characters, no token covers both. That holds for any
merges; `why_not_pieces` checks the other requirements:

    every byte has a token          an unknown character merges with adjacent unknown ones (fuse_unk)
    no merge of byte tokens         they may join across characters, which a merge's sides do not show
    no ignore_merges                a whole text that is a token is that token
    only spaces become marks        as pieces.py spells them

Added tokens: tokenizers cuts them out of a text in two passes (added_vocabulary.rs): those with `normalized: false` out
of the raw text, then the others out of its normalized form; in each pass the leftmost longest match wins. A special
token that stays text still wins its pass before it is skipped, so it hides tokens that it overlaps. A text without any
of the strings is one piece for both libraries, so only strings matter:

    native    tokens of one pass, found anywhere, without conditions on their surroundings: gigatoken has them
    guarded   all others, and special tokens that overlap a native one: a document with such a string goes to tokenizers
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from corpusmill.lazy import lazily

with lazily:
    from corpusmill.tokens import characters

if TYPE_CHECKING:
    from corpusmill.tokens.characters import StringFinder
    from corpusmill.tokens.references import HuggingFaceReference

REFERENCES_UNICODE = 16
MARK = "\u2581"  # SentencePiece's for a space
MOST_TOKENS = (1 << 21) - 1  # and merges, so that two tokens and a merge's rank fit a word (piece_kernels.py)
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
_PREPEND = {"type": "Prepend", "prepend": MARK}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}

# Patterns with these parts leave no character between two matches: they match letters, numbers, spaces and all others.
_LETTERS = (r"\p{L}+", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+")
_NUMBERS, _OTHERS, _SPACES = r"|\p{N}", r"| ?[^\s\p{L}\p{N}]+", r"|\s+(?!\S)|\s+"


def why_not_gigatoken_json(description: dict[str, Any]) -> str:
    """Why gigatoken cannot produce the reference's ids for a parsed tokenizer.json, added tokens aside; "" if it can.

    The description must come from `isolated`.
    """
    model = description["model"]
    if model["type"] != "BPE":
        return f"its model is {model['type'] or 'of an unnamed type'}, not BPE"
    for key in ("end_of_word_suffix", "continuing_subword_prefix"):
        if model.get(key):
            return f"its model has an {key}: {model[key]!r}"
    return _why_not_sentencepiece(description) if model.get("byte_fallback") else _why_not_byte_level(description)


def why_not_characters() -> str:
    """Why Python's tables cannot identify the characters that the reference libraries lack; "" if they can."""
    version = unicodedata.unidata_version
    newer = int(version.partition(".")[0]) > REFERENCES_UNICODE
    return f"this Python knows Unicode {version}, newer than the libraries that define ids" if newer else ""


def why_not_pieces(description: dict[str, Any]) -> str:
    """Why a tokenizer.json that gigatoken may encode cannot be encoded piece by piece; "" if it can."""
    model, before = description["model"], steps_of(description["pre_tokenizer"])
    if not model.get("byte_fallback"):
        return "its model has no byte_fallback"
    vocabulary, merges = model["vocab"], merges_of(model)
    reasons = {
        "its model has ignore_merges": bool(model.get("ignore_merges")),
        "its normalizer does more than mark spaces": steps_of(description["normalizer"])
        not in ([_REPLACE], [_PREPEND, _REPLACE]),
        "its pre_tokenizer may cut text": any(
            step["type"] != "Split" or step["pattern"] != {"String": " "} for step in before
        ),
        "its vocabulary does not spell every text": MARK not in vocabulary
        or not all(_spelled(byte, vocabulary) for byte in range(256)),
        "it has more than 2,097,151 tokens or merges": max(len(vocabulary), len(merges)) > MOST_TOKENS,
        "two of its tokens have one id": len(set(vocabulary.values())) < len(vocabulary),
        "a merge has an empty side": not all(left and right for left, right in merges),
        "it merges tokens of single bytes": not set(BYTE_TOKENS).isdisjoint(chain.from_iterable(merges)),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def merges_of(model: dict[str, Any]) -> list[tuple[str, str]]:
    """The merges of a BPE model, from either of the two notations."""
    return [tuple(pair if isinstance(pair, list) else pair.split(" ")) for pair in model["merges"]]


def _spelled(byte: int, vocabulary: dict[str, int]) -> bool:
    """Whether a byte has a token for characters without one of their own, or needs none."""
    return BYTE_TOKENS[byte] in vocabulary or (byte < 0x80 and chr(byte) in vocabulary)


def isolated(description: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer in a canonical form: optional keys present, Splits that keep only matches as Isolated.

    A Split is rewritten only if its pattern leaves nothing between two matches.
    """
    model, before = description["model"], description.get("pre_tokenizer")
    if "type" not in model:  # tokenizers recognizes such a model by its keys
        model = {"type": "BPE" if "merges" in model else "", **model}
    if before is not None:
        steps = [
            {**step, "behavior": "Isolated", "invert": False} if _keeps_matches(step) else step
            for step in steps_of(before)
        ]
        before = {"type": "Sequence", "pretokenizers": steps} if before["type"] == "Sequence" else steps[0]
    return {
        **dict.fromkeys(("normalizer", "decoder")),
        **description,
        "added_tokens": description.get("added_tokens") or [],
        "model": model,
        "pre_tokenizer": before,
    }


def cuts_digits(description: dict[str, Any]) -> bool | None:
    """Whether Digits cuts every digit separately (True) or runs of digits (False); None without Digits."""
    steps = steps_of(description["pre_tokenizer"])
    return bool(steps[0]["individual_digits"]) if steps and steps[0]["type"] == "Digits" else None


def steps_of(component: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre_tokenizer, inner Sequences opened."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    inner = component["normalizers"] if "normalizers" in component else component["pretokenizers"]
    return [step for nested in inner for step in steps_of(nested)]


def _keeps_matches(step: dict[str, Any]) -> bool:
    if step["type"] != "Split" or step["behavior"] != "Removed" or not step["invert"]:
        return False
    pattern = step["pattern"].get("Regex", "")
    letters = any(part in pattern for part in _LETTERS)
    return letters and _NUMBERS in pattern and _OTHERS in pattern and pattern.endswith(_SPACES)


def _why_not_byte_level(description: dict[str, Any]) -> str:
    steps = steps_of(description["pre_tokenizer"])
    kinds = [step["type"] for step in steps]
    if kinds in (["ByteLevel"], ["Digits", "ByteLevel"]):
        if not steps[-1].get("use_regex", True):
            return "it does not split text before merging"
        return "it adds a space to every piece" if len(steps) > 1 and steps[-1]["add_prefix_space"] else ""
    if len(kinds) > 1 and kinds[-1] == "ByteLevel" and set(kinds[:-1]) == {"Split"}:
        if any(
            step["behavior"] != "Isolated" or step["invert"] or "Regex" not in step["pattern"] for step in steps[:-1]
        ):
            return "its Split does not keep every piece that its pattern finds"
        return "it splits twice" if steps[-1].get("use_regex", True) else ""
    return f"its pre_tokenizer is {' and '.join(kinds) or 'nothing'}"


def _why_not_sentencepiece(description: dict[str, Any]) -> str:
    if any(" " in token for token in description["model"]["vocab"]):
        return "its vocabulary has tokens with spaces, which its marks of spaces never become"
    kinds = [step["type"] for step in steps_of(description["normalizer"])]
    if any(kind not in {"Prepend", "Replace"} for kind in kinds):
        return f"its normalizer is {' and '.join(kinds)}, and gigatoken has only Prepend and Replace"
    steps = steps_of(description["pre_tokenizer"])
    kinds = [step["type"] for step in steps]
    if kinds not in ([], ["Metaspace"], ["Split"]):
        return f"its pre_tokenizer is {' and '.join(kinds)}"
    if kinds == ["Split"] and (steps[0]["behavior"] != "MergedWithPrevious" or "String" not in steps[0]["pattern"]):
        return "its Split does not keep every piece that its pattern finds"
    return ""


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
    return AddedTokens(native, characters.StringFinder(raw), characters.StringFinder(normalized))


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
