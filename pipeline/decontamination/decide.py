"""From seeds that were met to hits: the places of a text that cover enough of an item."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.decontamination.cover import ALONE, LONG_ANSWER, WHOLE, cover_window
from corpusmill.decontamination.seeds import Seeds
from corpusmill.decontamination.text_words import Words
from corpusmill.errors import ConfigError
from corpusmill.kernels import inlined, kernel

LEAST_WORDS = 5
LEAST_TELLING = 2.5
VARIANTS = 8  # sequences that may share a word before it tells less that one of them is there
RULES = {
    "default": ((1.8, 0.95), (LEAST_TELLING, 0.8), (3.8, 0.45), (6.0, 0.4), (11.0, 0.3)),
    "strict": ((LEAST_TELLING, 0.8),),
}
"""(how much the covered words tell by themselves, share of the sequence), each pair of which is enough. Chosen on one
half of a labelled set and reported on the other: benchmarks/decontamination.py."""

HIT = np.dtype(
    [
        ("text", "<i8"),
        ("sequence", "<i8"),
        ("first_word", "<i8"),
        ("end_word", "<i8"),
        ("words", "<i8"),
        ("telling", "<f8"),
        ("share", "<f8"),
    ]
)
"""A hit: which text, which sequence, [first, end) of the words, how many words of the sequence are covered, how much
of its weight."""


def threshold_of(text: str) -> str | float:
    """A threshold as people write it; ConfigError for another."""
    try:
        threshold = text if text in RULES else float(text)
    except ValueError:
        threshold = 0.0
    if isinstance(threshold, float) and not 0 < threshold <= 1:
        raise ConfigError(
            "a threshold is not one of decontamination",
            where="threshold",
            expected=f"{', '.join(RULES)}, or the share of an item's words that one place covers, such as 0.6",
            got=text,
        )
    return threshold


def rules_of(threshold: str | float) -> NDArray[np.float64]:
    """float64 (n, 2): a threshold as pairs like those of RULES."""
    return np.array(((LEAST_TELLING, threshold),) if isinstance(threshold, float) else RULES[threshold])


def too_little(seeds: Seeds) -> NDArray[np.bool_]:
    """bool (sequences,): those that not even a copy is a hit of, as they are too short or tell too little."""
    telling = np.minimum(seeds.weights[:, ALONE], VARIANTS * seeds.weights[:, WHOLE]).astype(np.float64)
    ends = np.concatenate([np.zeros(1), np.cumsum(telling)])
    words = np.concatenate([np.zeros(1, np.int64), np.cumsum(seeds.weights[:, WHOLE] > 0)])
    first, end = seeds.bounds[:-1].astype(np.int64), seeds.bounds[1:].astype(np.int64)
    little: NDArray[np.bool_] = (ends[end] - ends[first] < RULES["default"][0][0]) | (
        words[end] - words[first] < LEAST_WORDS
    )
    return little


def decide(seeds: Seeds, words: Words, met: NDArray[np.int64], rules: NDArray[np.float64]) -> NDArray[np.void]:
    """The hits (HIT), by text, then sequence, then place.

    `met` int64 (n, 4): text, sequence, word of the text, word of the sequence; in the order of the text's words.
    """
    order = np.lexsort((met[:, 1], met[:, 0]))
    met = met[order]
    new = np.any(met[1:, :2] != met[:-1, :2], axis=1)
    groups = np.concatenate([[0], np.flatnonzero(new) + 1, [len(met)]]) if len(met) else np.zeros(1, np.int64)
    hits = np.empty(len(met), HIT)
    longest = int(np.diff(seeds.bounds).max(initial=0))
    arrays = (seeds.words, seeds.weights, seeds.bounds, seeds.questions)
    found = _decide(
        words.hashes, words.first, met, groups, *arrays, seeds.seed_words, rules, np.zeros(longest, np.float32), hits
    )
    return hits[:found]


@inlined
def _enough(count: Any, share: Any, rules: Any) -> Any:
    enough = False
    for i in range(len(rules)):
        enough = enough or (count >= rules[i, 0] and share >= rules[i, 1])
    return enough


@kernel
def _window(size: Any) -> Any:
    return size + size // 2 + 10


@kernel
def _covered(cover: Any, weights: Any, first: Any, end: Any) -> Any:
    """(words, how much they tell, their weights as covered)."""
    count, telling, weight = 0, 0.0, 0.0
    for j in range(first, end):
        if cover[j] > 0:
            count += 1
            telling += min(weights[j, ALONE], VARIANTS * cover[j])
            weight += cover[j]
    return count, telling, weight


@kernel
def _best_at(
    words: Any, low: Any, high: Any, item: Any, weights: Any, asked: Any, seed_words: Any, met: Any, first: Any,
    end: Any, rules: Any, cover: Any,
) -> Any:  # fmt: skip
    """(share, words, first, end) of what the window from one match on covers, of the question or with the answer;
    a share of 0 if that is not enough."""
    best = (0.0, 0, 0.0, low, low)
    for part in range(2):
        stop = asked if part == 0 else len(item)
        if stop == 0 or (part == 1 and stop == asked):
            continue
        begin, behind = cover_window(
            words, low, high, item, stop, weights, seed_words, met, first, end, _window(stop), cover
        )
        of_question, telling, weight = _covered(cover, weights, 0, min(asked, stop))
        of_answer, more_telling, more = _covered(cover, weights, asked, stop)
        if of_question + of_answer < LEAST_WORDS or (of_question == 0 and of_answer < LONG_ANSWER):
            continue
        whole = 0.0
        for j in range(stop):
            whole += weights[j, WHOLE]
        share = min((weight + more) / whole, 1.0) if whole > 0 else 0.0
        if _enough(telling + more_telling, share, rules):
            if best[0] > 0:
                begin, behind, share = min(begin, best[3]), max(behind, best[4]), max(share, best[0])
            best = (share, of_question + of_answer, telling + more_telling, begin, behind)
    return best


@kernel
def _decide(
    words: Any, texts: Any, met: Any, groups: Any, item_words: Any, item_weights: Any, bounds: Any, questions: Any,
    seed_words: Any, rules: Any, cover: Any, hits: Any,
) -> Any:  # fmt: skip
    found = 0
    for group in range(len(groups) - 1):
        match, end = groups[group], groups[group + 1]
        text, sequence = met[match, 0], met[match, 1]
        low, high = texts[text], texts[text + 1]
        begin, stop = np.int64(bounds[sequence]), np.int64(bounds[sequence + 1])
        item, weights, asked = item_words[begin:stop], item_weights[begin:stop], np.int64(questions[sequence])
        while match < end:
            share, count, telling, first, behind = _best_at(
                words, low, high, item, weights, asked, seed_words, met, match, end, rules, cover
            )
            if share == 0:
                match += 1
                continue
            later, reach = match + 1, met[match, 2] + _window(len(item))
            while later < end and met[later, 2] < reach:
                other = _best_at(words, low, high, item, weights, asked, seed_words, met, later, end, rules, cover)
                if other[0] > share:
                    share, count, telling, first, behind = other
                later += 1
            hit = hits[found]
            hit["text"], hit["sequence"] = text, sequence
            hit["first_word"], hit["end_word"] = first, behind
            hit["words"], hit["telling"], hit["share"] = count, telling, share
            found += 1
            low = behind
            while match < end and met[match, 2] < behind:
                match += 1
    return found
