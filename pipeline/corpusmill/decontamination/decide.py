"""From seeds in a text to hits: the places of a text that cover enough of an item.

From every seed in a window of the text, words are compared in both directions as long as they agree, and past up to
`MOST_SKIPPED` differing words on either side if `SHORT_RUN` words agree after them. A word of the sequence counts once,
with the weight of the rarest matching run of `seed_words` words (of SHORT_RUN, where no more agree) that holds it.

Words that are compared from one seed are a stretch. A place is enough if one of its stretches is, or if all of them
together are `APART` of the item: the pieces that an item shares with others of its form, such as a preamble and one of
two scenes, are not the item, and half of an item is one stretch.

The window begins at a seed and has 1.5 times as many words as the sequence, plus ten. Both the question alone and the
question with its answer are looked at; an answer counts near words of its question, or if it covers `LONG_ANSWER`
words by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.decontamination.seeds import IN_PHRASE, SHORT_RUN, Entry, Seeds
from corpusmill.decontamination.text_words import Words
from corpusmill.errors import ConfigError
from corpusmill.kernels.compiled import inlined, kernel

MOST_SKIPPED = 3
ALONE, RAREST, SEED, SHORT = range(4)  # columns of weights
LONG_ANSWER = 10
APART = 0.75  # the least share of an item that counts if it is in several stretches


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
    """Continue a run from the next words (t, j); returns the last words of the text and the sequence that agreed."""
    last = t - step, j - step
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
                        last = t - step, j - step
    return last


@kernel
def cover_window(
    words: Any, low: Any, high: Any, item: Any, stop: Any, weights: Any, seed_words: Any, matches: Any, first: Any,
    end: Any, window: Any, cover: Any, one: Any, stretch: Any,
) -> Any:  # fmt: skip
    """(first, one past the last word of the text) that the matches from `first` on cover in a window.

    `cover` becomes what all of them cover, `one` what the stretch that covers most does; `stretch` is scratch, zero.
    """
    cover[:stop], one[:stop] = 0, 0
    begin, behind, most, most_first, most_end = high, low, np.float32(0), 0, 0
    for m in range(first, end):
        t, j = np.int64(matches[m, 2]), np.int64(matches[m, 3])
        if t + seed_words > np.int64(matches[first, 2]) + window:
            break
        if j + seed_words > stop or (cover[j] > 0 and cover[j + seed_words - 1] > 0):
            continue
        right = _run_length(words, low, high, item, stop, t, j, 1)
        left = _run_length(words, low, high, item, stop, t - 1, j - 1, -1)
        _mark(stretch, weights, j - left, j + right, seed_words)
        arguments = (seed_words, weights, stretch)
        last, last_j = _walk(words, low, high, item, stop, t + right, j + right, 1, *arguments)
        earliest, first_j = _walk(words, low, high, item, stop, t - left - 1, j - left - 1, -1, *arguments)
        begin, behind = min(begin, earliest), max(behind, last + 1)
        covered = np.float32(0)
        for k in range(first_j, last_j + 1):
            covered += weights[k, ALONE] * stretch[k]
            cover[k] = max(cover[k], stretch[k])
        if covered > most:
            one[most_first:most_end] = 0
            most, most_first, most_end = covered, first_j, last_j + 1
            one[most_first:most_end] = stretch[most_first:most_end]
        stretch[first_j : last_j + 1] = 0
    return begin, behind


LEAST_WORDS = 5
LEAST_TELLING = 2.5
VARIANTS = 8  # sequences that may share a word before the word counts as weaker evidence for one of them
WEIGHED, COUNTED = range(2)  # a word counts its own weight; or 1, if it is in no common phrase
RULES = {
    "default": (
        (WEIGHED, 1.8, 0.95),
        (WEIGHED, LEAST_TELLING, 0.5),
        (WEIGHED, 3.8, 0.45),
        (WEIGHED, 6.0, 0.4),
        (WEIGHED, 11.0, 0.3),
        (COUNTED, 7.0, 0.45),
    ),
    "strict": ((WEIGHED, LEAST_TELLING, 0.8),),
}
"""(measure, least sum over the covered words, least share of the sequence by the same measure): one row suffices.
Chosen on one half of a labelled set and reported on the other: benchmarks/decontamination.py."""


_WHOLE_NUMBERS = ("text", "sequence", "first_word", "end_word", "words")
HIT = np.dtype([*((name, "<i8") for name in _WHOLE_NUMBERS), ("share", "<f8")])
"""A hit: which text, which sequence, [first, end) of the words, how many words of the sequence are covered, how much
of its weight."""


def threshold_of(text: str) -> str | float:
    """Parse a threshold: default, strict or a share in (0, 1]; ConfigError for anything else."""
    try:
        threshold = text if text in RULES else float(text)
    except ValueError:
        threshold = 0.0
    if isinstance(threshold, float) and not 0 < threshold <= 1:
        raise ConfigError(
            "decontamination.unknown_threshold: unknown decontamination threshold",
            where="threshold",
            expected=f"{', '.join(RULES)}, or the share of an item's words that one place covers, such as 0.6",
            got=text,
        )
    return threshold


def rules_of(threshold: str | float) -> NDArray[np.float64]:
    """float64 (n, 3): a threshold as rows like those of RULES."""
    return np.array(((WEIGHED, LEAST_TELLING, threshold),) if isinstance(threshold, float) else RULES[threshold])


def undecidable_items(seeds: Seeds, entries: Sequence[Entry], threshold: str | float) -> dict[str, list[str]]:
    """{benchmark: its items that no search finds: neither question and answer nor the passage is long and rare enough}.

    `entries` as `build_seeds` returns them: the passage of an item follows it.
    """
    little = too_little(seeds, threshold)
    undecidable: dict[str, list[str]] = defaultdict(list)
    for entry, after in zip_longest(entries, entries[1:]):
        if entry.part == "item" and little[entry.sequence]:
            has_passage = after is not None and after.part == "passage" and not little[after.sequence]
            undecidable[entry.benchmark] += [] if has_passage else [entry.item]
    return undecidable


def too_little(seeds: Seeds, threshold: str | float = "default", margin: float = 0.0) -> NDArray[np.bool_]:
    """bool (sequences,): those of which not even a copy is a hit, because they are too short or too common.

    `margin`: added to the weight that a sequence must have.
    """
    rules = rules_of(threshold)
    least = float(rules[rules[:, 0] == WEIGHED, 1].min())
    evidence = (seeds.weights[:, ALONE] * np.minimum(1, VARIANTS * seeds.weights[:, RAREST])).astype(np.float64)
    ends = np.concatenate([np.zeros(1), np.cumsum(evidence)])
    words = np.concatenate([np.zeros(1, np.int64), np.cumsum(seeds.weights[:, RAREST] > 0)])
    first, end = seeds.bounds[:-1].astype(np.int64), seeds.bounds[1:].astype(np.int64)
    behind = first + seeds.questions.astype(np.int64)
    short = words[end] - words[first] < np.where(words[behind] == words[first], LONG_ANSWER, LEAST_WORDS)
    little: NDArray[np.bool_] = short | (ends[end] - ends[first] < least + margin)
    return little


def decide(seeds: Seeds, words: Words, met: NDArray[np.int32], rules: NDArray[np.float64]) -> NDArray[np.void]:
    """The hits (HIT), by text, then sequence, then place.

    `met` int32 (n, 4): text, sequence, word of the text, word of the sequence; in the order of the text's words.
    """
    order = np.lexsort((met[:, 1], met[:, 0]))
    met = met[order]
    new = np.any(met[1:, :2] != met[:-1, :2], axis=1)
    groups = np.concatenate([[0], np.flatnonzero(new) + 1, [len(met)]]) if len(met) else np.zeros(1, np.int64)
    hits = np.empty(len(met), HIT)
    longest = int(np.diff(seeds.bounds).max(initial=0))
    arrays = (seeds.words, seeds.weights, seeds.bounds, seeds.questions)
    covers = np.zeros((3, longest), np.float32)
    filled = _decide(words.hashes, words.first, met, groups, *arrays, seeds.seed_words, rules, covers, hits)
    return hits[:filled]


@inlined
def _enough(measure: Any, evidence: Any, share: Any, rules: Any) -> Any:
    enough = False
    for i in range(len(rules)):
        enough = enough or (measure == rules[i, 0] and evidence >= rules[i, 1] and share >= rules[i, 2])
    return enough


@kernel
def _window(size: Any) -> Any:
    return size + size // 2 + 10


@kernel
def _covered(cover: Any, first: Any, end: Any) -> Any:
    words = 0
    for j in range(first, end):
        words += cover[j] > 0
    return words


@kernel
def _amounts(cover: Any, weights: Any, stop: Any, measure: Any) -> Any:
    """(the evidence of the covered words, their share of the sequence), by one measure."""
    evidence, covered, whole = 0.0, 0.0, 0.0
    for j in range(stop):
        alone = 1.0 if measure == COUNTED and weights[j, ALONE] > IN_PHRASE + 0.01 else weights[j, ALONE]
        evidence += alone * min(1.0, VARIANTS * cover[j])
        covered += alone * cover[j]
        whole += alone * weights[j, RAREST]
    return evidence, min(covered / whole, 1.0) if whole > 0 else 0.0


@kernel
def _best_at(
    words: Any, low: Any, high: Any, item: Any, weights: Any, asked: Any, seed_words: Any, met: Any, first: Any,
    end: Any, rules: Any, covers: Any,
) -> Any:  # fmt: skip
    """(share, words, first, end) of what the window from one match on covers, of the question or with the answer;
    a share of 0 if that is not enough."""
    best = (0.0, 0, low, low)
    cover, one = covers[0], covers[1]
    for part in range(2):
        stop = asked if part == 0 else len(item)
        if stop == 0 or (part == 1 and stop == asked):
            continue
        begin, behind = cover_window(
            words, low, high, item, stop, weights, seed_words, met, first, end, _window(stop), cover, one, covers[2]
        )
        of_question, of_answer = _covered(cover, 0, min(asked, stop)), _covered(cover, asked, stop)
        if of_question + of_answer < LEAST_WORDS or (of_question == 0 and of_answer < LONG_ANSWER):
            continue
        for measure in (WEIGHED, COUNTED):
            evidence, share = _amounts(cover, weights, stop, measure)
            in_one, share_of_one = _amounts(one, weights, stop, measure)
            whole = share >= APART or _enough(measure, in_one, share_of_one, rules)
            if whole and _enough(measure, evidence, share, rules):
                if best[0] > 0:
                    begin, behind, share = min(begin, best[2]), max(behind, best[3]), max(share, best[0])
                best = (share, of_question + of_answer, begin, behind)
    return best


@kernel
def _next_run(met: Any, match: Any, end: Any) -> Any:
    """The first match behind one that does not continue its run: windows from inside a run cover no more than its
    first.
    """
    match += 1
    while match < end and met[match, 2] == met[match - 1, 2] + 1 and met[match, 3] == met[match - 1, 3] + 1:
        match += 1
    return match


@kernel
def _decide(
    words: Any, texts: Any, met: Any, groups: Any, item_words: Any, item_weights: Any, bounds: Any, questions: Any,
    seed_words: Any, rules: Any, covers: Any, hits: Any,
) -> Any:  # fmt: skip
    filled = 0
    for group in range(len(groups) - 1):
        match, end = groups[group], groups[group + 1]
        text, sequence = np.int64(met[match, 0]), np.int64(met[match, 1])
        low, high = texts[text], texts[text + 1]
        begin, stop = np.int64(bounds[sequence]), np.int64(bounds[sequence + 1])
        item, weights, asked = item_words[begin:stop], item_weights[begin:stop], np.int64(questions[sequence])
        while match < end:
            share, count, first, behind = _best_at(
                words, low, high, item, weights, asked, seed_words, met, match, end, rules, covers
            )
            if share == 0:
                match = _next_run(met, match, end)
                continue
            later, reach = _next_run(met, match, end), met[match, 2] + _window(len(item))
            while later < end and met[later, 2] < reach:
                other = _best_at(words, low, high, item, weights, asked, seed_words, met, later, end, rules, covers)
                if other[0] > share:
                    share, count, first, behind = other
                later = _next_run(met, later, end)
            hit = hits[filled]
            hit["text"], hit["sequence"] = text, sequence
            hit["first_word"], hit["end_word"] = first, behind
            hit["words"], hit["share"] = count, share
            filled += 1
            low = behind
            while match < end and met[match, 2] < behind:
                match += 1
    return filled
