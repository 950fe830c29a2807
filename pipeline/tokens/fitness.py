"""For which tokenizers gigatoken gives the reference library's ids: a rule, found by a test matrix.

tests/tokens/test_fitness.py runs every construct below through both libraries over tricky text: what the rule lets
through must give equal ids, what it refuses was seen to differ (or is not read at all). What is not listed is refused.

gigatoken with a tokenizer.json (seen with gigatoken 0.10 and tokenizers 0.23):

    exact      byte-level BPE split by ByteLevel's own pattern, after Digits too (digits.py), or by Split patterns that
               gigatoken knows; any normalizer, applied before by tokenizers (the two libraries' tables are of two
               versions of Unicode); SentencePiece BPE with byte fallback, its spaces marked by Prepend and Replace,
               Metaspace, or Split; added tokens (added.py: documents that hold some of them go to tokenizers); ids
               with holes; ignore_merges
    differs    ByteLevel without its pattern and without Split; no pre_tokenizer; Split that removes pieces; an
               end-of-word suffix
    refused    other pre_tokenizers (Punctuation ...), unknown patterns, byte-level vocabularies without some byte,
               Unigram, WordPiece, other normalizers of SentencePiece BPE

gigatoken with a .tiktoken file: the published patterns that it knows, ranks without a hole.

SentencePiece BPE whose every text is one word (no pre_tokenizer, or one that has nothing to cut at) is encoded piece by
piece (pieces.py): where the two sides of no merge meet in two characters, no token covers both. That holds whatever the
merges are; `why_not_pieces` requires what else it needs:

    every byte has a token          an unknown character joins other unknown ones beside it (fuse_unk)
    no merge of byte tokens         they may join across characters, which a merge's sides do not show
    no ignore_merges                a whole text that is a token is that token
    spaces become marks, no more    as pieces.py spells them
"""

from __future__ import annotations

from itertools import chain
from typing import Any

MARK = "\u2581"  # SentencePiece's for a space
MOST_TOKENS = (1 << 21) - 1  # and merges, so that two tokens and a merge's rank fit a word (piece_kernels.py)
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
_PREPEND = {"type": "Prepend", "prepend": MARK}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}

# Patterns with these parts leave no character between two matches: a letter, a number, a space, or none of these.
_LETTERS = (r"\p{L}+", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+")
_NUMBERS, _OTHERS, _SPACES = r"|\p{N}", r"| ?[^\s\p{L}\p{N}]+", r"|\s+(?!\S)|\s+"


def why_not_gigatoken_json(description: dict[str, Any]) -> str:
    """Why gigatoken cannot give the reference's ids for a parsed tokenizer.json, its added tokens aside; "" if it can.

    The description is one that `isolated` wrote out.
    """
    model = description["model"]
    if model["type"] != "BPE":
        return f"its model is {model['type'] or 'of an unnamed type'}, not BPE"
    for key in ("end_of_word_suffix", "continuing_subword_prefix"):
        if model.get(key):
            return f"its model has an {key}: {model[key]!r}"
    return _why_not_sentencepiece(description) if model.get("byte_fallback") else _why_not_byte_level(description)


def why_not_gigatoken_ranks(pattern_name: str, ranks: list[int]) -> str:
    """Why gigatoken cannot read a .tiktoken file; "" if it can."""
    if not pattern_name:
        return "gigatoken does not know its split pattern"
    if sorted(ranks) != list(range(len(ranks))):
        return "its ranks have holes"
    return ""


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
    """The merges of a BPE model, in whichever of the two ways the file writes them."""
    return [tuple(pair if isinstance(pair, list) else pair.split(" ")) for pair in model["merges"]]


def _spelled(byte: int, vocabulary: dict[str, int]) -> bool:
    """Whether a byte of a character that has no token has one, or there is no such character."""
    return BYTE_TOKENS[byte] in vocabulary or (byte < 0x80 and chr(byte) in vocabulary)


def isolated(description: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer, written out: keys that tokenizers does without, Splits that keep matches alone as Isolated.

    A Split is rewritten only where its pattern leaves nothing between two matches.
    """
    model, before = description["model"], description.get("pre_tokenizer")
    if "type" not in model:  # tokenizers tells such a model by its keys
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
    """Whether Digits cuts every number off alone (True) or numbers in a row (False); None where there is no Digits."""
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
