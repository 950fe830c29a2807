"""Which engine gives the reference library's ids for which tokenizer: a rule, found by a test matrix.

tests/tokens/test_fitness.py runs every construct below through both libraries over tricky text: what the rule lets
through must give equal ids, what it refuses was seen to differ (or is not read at all). What is not listed is refused.

gigatoken with a tokenizer.json (seen with gigatoken 0.10 and tokenizers 0.23):

    exact      byte-level BPE split by ByteLevel's own pattern, or by one Split pattern that gigatoken knows;
               normalizer none, or NFC done for it by tokenizers (the two libraries' tables are of two versions of
               Unicode), if no added token is matched before normalization; SentencePiece BPE with byte fallback, its
               spaces marked by Prepend and Replace, Metaspace, or Split; added tokens matched anywhere; ids with
               holes; ignore_merges
    differs    ByteLevel without its pattern and without Split; no pre_tokenizer; Split that removes what it matches;
               an end-of-word suffix; added tokens that stand for whole words only or take a space with them; added
               tokens that the model has under another id
    refused    other normalizers (NFKC, Lowercase ...), other pre_tokenizers (Digits, Punctuation ...), unknown
               patterns, byte-level vocabularies without some byte, Unigram, WordPiece

gigatoken with a .tiktoken file: the four published patterns that it knows, ranks without a hole.
"""

from __future__ import annotations

from typing import Any


def why_not_gigatoken_json(description: dict[str, Any], *, parse_special: bool) -> str:
    """Why gigatoken cannot give the reference's ids for a parsed tokenizer.json; "" if it can."""
    model = description["model"]
    if model["type"] != "BPE":
        return f"its model is {model['type']}, not BPE"
    for key in ("end_of_word_suffix", "continuing_subword_prefix"):
        if model.get(key):
            return f"its model has an {key}: {model[key]!r}"
    steps = _why_not_sentencepiece(description) if model.get("byte_fallback") else _why_not_byte_level(description)
    return steps or _why_not_added(description, parse_special=parse_special)


def why_not_gigatoken_ranks(pattern_name: str, ranks: list[int]) -> str:
    """Why gigatoken cannot read a .tiktoken file; "" if it can."""
    if not pattern_name:
        return "gigatoken does not know its split pattern"
    if sorted(ranks) != list(range(len(ranks))):
        return "its ranks have holes"
    return ""


def _why_not_byte_level(description: dict[str, Any]) -> str:
    kinds = [step["type"] for step in _steps(description["normalizer"], "normalizers")]
    if any(kind != "NFC" for kind in kinds):
        return f"its normalizer is {' and '.join(kinds)}, and gigatoken has only NFC"
    steps = _steps(description["pre_tokenizer"], "pretokenizers")
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return "" if steps[0].get("use_regex", True) else "it does not split text before merging"
    if kinds == ["Split", "ByteLevel"]:
        split, level = steps
        if split["behavior"] != "Isolated" or split["invert"] or "Regex" not in split["pattern"]:
            return "its Split does not keep every piece that its pattern finds"
        return "it splits twice" if level.get("use_regex", True) else ""
    return f"its pre_tokenizer is {' and '.join(kinds) or 'nothing'}"


def _why_not_sentencepiece(description: dict[str, Any]) -> str:
    kinds = [step["type"] for step in _steps(description["normalizer"], "normalizers")]
    if any(kind not in {"Prepend", "Replace"} for kind in kinds):
        return f"its normalizer is {' and '.join(kinds)}, and gigatoken has only Prepend and Replace"
    steps = _steps(description["pre_tokenizer"], "pretokenizers")
    kinds = [step["type"] for step in steps]
    if kinds not in ([], ["Metaspace"], ["Split"]):
        return f"its pre_tokenizer is {' and '.join(kinds)}"
    if kinds == ["Split"] and (steps[0]["behavior"] != "MergedWithPrevious" or "String" not in steps[0]["pattern"]):
        return "its Split does not keep every piece that its pattern finds"
    return ""


def _why_not_added(description: dict[str, Any], *, parse_special: bool) -> str:
    model = description["model"]
    vocabulary = model["vocab"]
    for token in description["added_tokens"]:
        if token["special"] and not parse_special:
            continue  # special tokens in text are text: no engine is told of them
        if description["normalizer"] and not model.get("byte_fallback") and not token["normalized"]:
            return f"its added token {token['content']!r} is matched before normalization"
        name = repr(token["content"])
        if token["single_word"]:
            return f"its added token {name} stands for whole words only"
        if token["lstrip"]:
            return f"its added token {name} takes the space before it"
        if vocabulary.get(token["content"], token["id"]) != token["id"]:
            return f"its added token {name} has another id in the model"
    return ""


def _steps(one: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if one is None:
        return []
    steps: list[dict[str, Any]] = one[inner] if one["type"] == "Sequence" else [one]
    return steps
