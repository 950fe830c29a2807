"""Byte-pair encoding, said plainly: split by a pattern, then merge the lowest-ranking neighbours until none is left."""

from __future__ import annotations

from itertools import pairwise

import regex

PATTERNS = {  # as OpenAI published them, without the possessive quantifiers that later versions have
    "r50k_base": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k_base": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
}


def encode(text: str, ranks: dict[bytes, int], pattern: str, special: dict[str, int]) -> list[int]:
    """Ids; the strings of `special` become theirs."""
    pieces = regex.split(f"({'|'.join(map(regex.escape, special))})", text) if special else [text]
    ids: list[int] = []
    for piece in pieces:
        if piece in special:
            ids.append(special[piece])
        else:
            for word in regex.findall(PATTERNS.get(pattern, pattern), piece):
                ids += merged(word.encode(), ranks)
    return ids


def merged(word: bytes, ranks: dict[bytes, int]) -> list[int]:
    parts = [bytes([byte]) for byte in word]
    while True:
        pairs = [(ranks[left + right], at) for at, (left, right) in enumerate(pairwise(parts)) if left + right in ranks]
        if not pairs:
            return [ranks[part] for part in parts]
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
