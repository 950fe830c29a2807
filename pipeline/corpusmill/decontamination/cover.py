"""How many words of a sequence one place of a text covers.

From every seed in a window of the text, words are compared in both directions as long as they agree, and past up to
`MOST_SKIPPED` differing words on either side if `SHORT_RUN` words agree after them. A word of the sequence counts once,
with the weight of the rarest matching run of `seed_words` words (of SHORT_RUN, where no more agree) that holds it.

The window begins at a seed and has 1.5 times as many words as the sequence, plus ten. Both the question alone and the
question with its answer are looked at; an answer counts near words of its question, or if it covers `LONG_ANSWER`
words by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.decontamination.seeds import SHORT_RUN
from corpusmill.kernels.compiled import inlined, kernel

MOST_SKIPPED = 3
ALONE, RAREST, SEED, SHORT = range(4)  # columns of weights
LONG_ANSWER = 10


@kernel
def _agrees(words: Any, low: Any, high: Any, item: Any, stop: Any, t: Any, j: Any, step: Any) -> Any:
    """Whether a short run begins at word `t` of the text and `j` of the sequence, in the direction `step`."""
    last_t, last_j = t + step * (SHORT_RUN - 1), j + step * (SHORT_RUN - 1)
    if min(t, last_t) < low or max(t, last_t) >= high or min(j, last_j) < 0 or max(j, last_j) >= stop:
        return False
    same = 0
    while same < SHORT_RUN and words[t + step * same] == item[j + step * same]:
        same += 1
    return same == SHORT_RUN


@inlined
def _run_length(words: Any, low: Any, high: Any, item: Any, stop: Any, t: Any, j: Any, step: Any) -> Any:
    length = 0
    while low <= t < high and 0 <= j < stop and words[t] == item[j]:
        t, j, length = t + step, j + step, length + 1
    return length


@inlined
def _mark(cover: Any, weights: Any, first: Any, end: Any, seed_words: Any) -> None:
    """Mark the words [first, end) of the sequence, which the text holds in a row, as covered."""
    column, size = (SEED, seed_words) if end - first >= seed_words else (SHORT, SHORT_RUN)
    for begin in range(first, end - size + 1):
        for j in range(begin, begin + size):
            cover[j] = max(cover[j], weights[begin, column])


@kernel
def _walk(
    words: Any, low: Any, high: Any, item: Any, stop: Any, t: Any, j: Any, step: Any, seed_words: Any,
    weights: Any, cover: Any,
) -> Any:  # fmt: skip
    """Continue a run from the next words (t, j); returns the last word of the text that agreed."""
    last = t - step
    going = True
    while going:
        going = False
        for skipped in range(1, MOST_SKIPPED + 1):
            for other in range(skipped, -1, -1):
                for side in range(2):
                    a, b = (skipped, other) if side == 0 else (other, skipped)
                    if not going and _agrees(words, low, high, item, stop, t + step * a, j + step * b, step):
                        going = True
                        t, j = t + step * a, j + step * b
                        length = _run_length(words, low, high, item, stop, t, j, step)
                        first = j if step > 0 else j - length + 1
                        _mark(cover, weights, first, first + length, seed_words)
                        t, j = t + step * length, j + step * length
                        last = t - step
    return last


@kernel
def cover_window(
    words: Any, low: Any, high: Any, item: Any, stop: Any, weights: Any, seed_words: Any, matches: Any, first: Any,
    end: Any, window: Any, cover: Any,
) -> Any:  # fmt: skip
    """(first, one past the last word of the text) that the matches from `first` on cover in a window."""
    cover[:stop] = 0
    begin, behind = high, low
    for m in range(first, end):
        t, j = np.int64(matches[m, 2]), np.int64(matches[m, 3])
        if t + seed_words > np.int64(matches[first, 2]) + window:
            break
        if j + seed_words > stop or (cover[j] > 0 and cover[j + seed_words - 1] > 0):
            continue
        right = _run_length(words, low, high, item, stop, t, j, 1)
        left = _run_length(words, low, high, item, stop, t - 1, j - 1, -1)
        _mark(cover, weights, j - left, j + right, seed_words)
        arguments = (seed_words, weights, cover)
        last = _walk(words, low, high, item, stop, t + right, j + right, 1, *arguments)
        earliest = _walk(words, low, high, item, stop, t - left - 1, j - left - 1, -1, *arguments)
        begin, behind = min(begin, earliest), max(behind, last + 1)
    return begin, behind
