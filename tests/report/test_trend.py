"""The row of bars: heights in proportion, the newest last, nothing where there is nothing to compare."""

from __future__ import annotations

import re

from corpusmill.report.plots import BAR_HEIGHT, MOST_BARS, THINNEST, trend_bars


def heights(text: str) -> list[float]:
    return [float(item) for item in re.findall(r'class="tokens[ a-z]*"[^>]* height="([\d.]+)"', text)]


def test_trend_bars_heights_are_in_proportion_and_none_is_invisible() -> None:
    made = trend_bars([(50, "a"), (100, "b"), (0, "c")], "tokens")
    assert heights(made) == [BAR_HEIGHT / 2, BAR_HEIGHT, THINNEST]
    assert re.findall("<title>(.)</title>", made) == ["a", "b", "c"]


def test_trend_bars_single_build_draws_nothing() -> None:
    assert not trend_bars([(5, "a")], "tokens")
    assert not trend_bars([], "tokens")


def test_trend_bars_many_refreshes_keeps_the_newest() -> None:
    made = trend_bars([(number + 1, str(number)) for number in range(40)], "tokens")
    assert len(heights(made)) == MOST_BARS
    assert made.count('class="tokens past"') == MOST_BARS - 1
    assert made.rindex('class="tokens"') > made.rindex('class="tokens past"')


def test_trend_bars_hostile_words_stay_text() -> None:
    assert "<script" not in trend_bars([(1, "<script>"), (2, "<script>")], "<script>")
