"""The order's quality, said plainly."""

from __future__ import annotations

from itertools import combinations, pairwise

Context = tuple[int, int, frozenset[int]]  # shard, ordinal, the documents it holds parts of


def share_a_document(item: Context, other: Context) -> bool:
    return item[0] == other[0] and bool(item[2] & other[2])


def neighbours_and_pairs(order: list[Context]) -> tuple[int, int]:
    """Pairs side by side that share a document, and all pairs that do."""
    return sum(share_a_document(*pair) for pair in pairwise(order)), sum(
        share_a_document(*pair) for pair in combinations(order, 2)
    )


def correlation(source: list[int]) -> float:
    """Pearson's, of source positions in final order with 0, 1, 2, ..."""
    n = len(source)
    x, y = [value - sum(source) / n for value in source], [place - (n - 1) / 2 for place in range(n)]
    spread = sum(a * a for a in x) * sum(b * b for b in y)
    return sum(a * b for a, b in zip(x, y, strict=True)) / spread**0.5


def documents_in_contexts(lengths: list[int], context_tokens: int) -> list[frozenset[int]]:
    """For each context of a stream of documents with EOT, which of the documents with tokens it holds parts of."""
    stream = [number for number, length in enumerate(length for length in lengths if length) for _ in range(length + 1)]
    return [frozenset(stream[at : at + context_tokens]) for at in range(0, len(stream), context_tokens)]
