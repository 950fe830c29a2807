"""What a whole dataset's texts are after deduplication, the obvious way."""

from __future__ import annotations

from bisect import bisect_right

from tests.oracles.dedup import align, cut, remove_ranges, text_of


def deduplicated_texts(texts: list[str], minimum_bytes: int) -> list[str]:
    """Every text without the bytes of windows that occurred earlier in the dataset, cut at whole characters."""
    documents = [text.encode() for text in texts]
    text, offsets = text_of(documents)
    ranges = []
    for start, end in remove_ranges([text], minimum_bytes)[0]:
        number = bisect_right(offsets, start) - 1
        origin = offsets[number] + 1
        aligned = align(documents[number], start - origin, end - origin)
        if aligned:
            ranges.append((aligned[0] + origin, aligned[1] + origin))
    return [kept.decode() for kept in cut(text, offsets, ranges)]
