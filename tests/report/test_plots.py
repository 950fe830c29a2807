"""Pictures say what the numbers say: heights and widths are measured back from the SVG."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.report.plots import (
    BAR_HEIGHT,
    MOST_BARS,
    SHARES_WIDTH,
    THINNEST,
    Bars,
    axis_ticks,
    cell_bar,
    counts_of,
    percent_bars,
    power_bars,
    share_bar,
    totals_of,
    trend_bars,
)
from tests.report.example_summaries import histogram
from tests.report.page import Page


def drawn(series: list[Bars]) -> Page:
    return Page(power_bars(series, x_title="length", y_title="how many"))


def test_power_bars_heights_are_in_proportion_to_counts() -> None:
    page = drawn([Bars("ranges", "lost", {4: 100, 5: 50, 7: 25})])
    heights = [float(bar["height"]) for bar in page.all("rect", "lost")]
    assert len(heights) == 3
    assert heights[1] == pytest.approx(heights[0] / 2, abs=0.02)
    assert heights[2] == pytest.approx(heights[0] / 4, abs=0.02)


def test_power_bars_tiny_count_beside_a_giant_is_still_drawn_and_said() -> None:
    page = drawn([Bars("ranges", "lost", {4: 10**15, 9: 1})])
    heights = [float(bar["height"]) for bar in page.all("rect", "lost")]
    assert min(heights) >= 2
    assert "ranges: 1,000,000,000,000,000" in page.text
    assert "512 B to below 1 KiB ranges: 1" in page.text


@pytest.mark.parametrize(("least", "columns"), [(0.8, 21), (0.3, 71), (0.29, 72), (1.0, 7)])
def test_percent_bars_have_a_column_for_each_percent_from_the_threshold_to_equal(least: float, columns: int) -> None:
    page = Page(percent_bars({100: 50, 99: 100}, least, x_title="similarity", y_title="pairs"))
    assert len(page.all("rect", "hover")) == columns
    before, last = page.all("rect", "lost")
    assert float(last["x"]) > float(before["x"])
    assert float(before["height"]) == pytest.approx(2 * float(last["height"]), abs=0.02)
    assert "99 % to below 100 % pairs: 100" in page.text
    assert "equal pairs: 50" in page.text


def test_power_bars_two_series_share_a_scale_and_the_second_is_narrower() -> None:
    page = drawn([Bars("before", "before", {6: 80}), Bars("after", "text-bytes", {6: 40})])
    (before,), (after,) = page.all("rect", "before"), page.all("rect", "text-bytes")
    assert float(after["height"]) == pytest.approx(float(before["height"]) / 2, abs=0.02)
    assert float(after["width"]) < float(before["width"])


def test_power_bars_zero_bin_is_left_of_one_and_is_named_zero() -> None:
    page = drawn([Bars("documents", "before", {-1: 5, 0: 5, 3: 5})])
    xs = [float(bar["x"]) for bar in page.all("rect", "before")]
    assert xs == sorted(xs)
    assert "0 B documents: 5" in page.text
    assert "1 B documents: 5" in page.text


def test_power_bars_no_values_says_so() -> None:
    assert "nothing to draw" in power_bars([Bars("none", "lost", {})], x_title="x", y_title="y")


def test_power_bars_all_sixty_five_bins_fit_the_picture() -> None:
    page = drawn([Bars("ranges", "lost", dict.fromkeys(range(-1, 64), 7))])
    (picture,) = page.all("svg")
    width = float(picture["viewbox"].split()[2])
    assert len(page.all("rect", "lost")) == 65
    assert all(float(bar["x"]) >= 0 and float(bar["x"]) + float(bar["width"]) <= width for bar in page.all("rect"))
    places = sorted(float(label["x"]) for label in page.all("text", "tick") if "middle" in label["class"])
    assert all(after - before >= 40 for before, after in pairwise(places))


def test_counts_of_and_totals_of_take_their_column() -> None:
    shape = histogram({3: 10, 5: 2}, mean=1.5)
    assert counts_of("n", "lost", shape).heights == {3: 10, 5: 2}
    assert totals_of("n", "lost", shape).heights == {3: 120, 5: 96}


@given(highest=st.one_of(st.integers(0, 2**63), st.floats(0, 1e18)), binary=st.booleans())
def test_axis_ticks_start_at_zero_cover_the_highest_and_are_few(highest: float, *, binary: bool) -> None:
    ticks = axis_ticks(highest, binary=binary)
    assert ticks[0] == 0
    assert ticks[-1] >= highest * (1 - 1e-9)
    assert 2 <= len(ticks) <= 7
    steps = {round(after - before, 6) for before, after in pairwise(ticks)}
    assert max(steps) == pytest.approx(min(steps))


@given(counts=st.lists(st.integers(0, 2**60), min_size=1, max_size=5))
def test_share_bar_widths_fill_the_bar_and_show_every_share(counts: list[int]) -> None:
    markup = share_bar([(f"part {number}", f"c{number}", count) for number, count in enumerate(counts)])
    if not sum(counts):
        assert "nothing to draw" in markup
        return
    bars = Page(markup).all("rect")
    assert len(bars) == sum(count > 0 for count in counts)
    ends = [float(bar["x"]) + float(bar["width"]) for bar in bars]
    assert ends == sorted(ends)
    assert ends[-1] == pytest.approx(SHARES_WIDTH, abs=2)
    assert all(float(bar["width"]) >= 1 for bar in bars)


@pytest.mark.parametrize(
    ("value", "largest", "width"), [(0, 0, "0%"), (0, 5, "0%"), (5, 5, "100%"), (1, 4, "25%"), (1, 10**9, "0.8%")]
)
def test_cell_bar_length_is_its_share(value: float, largest: float, width: str) -> None:
    assert Page(cell_bar(value, largest, "lost")).all("rect")[0]["width"] == width


def test_pictures_text_from_outside_is_escaped() -> None:
    hostile = '"><script>alert(1)</script>'
    markup = power_bars([Bars(hostile, "lost", {1: 1})], x_title=hostile, y_title=hostile)
    markup += share_bar([(hostile, "lost", 1)]) + trend_bars([(1, hostile), (2, hostile)], hostile)
    assert "<script" not in markup
    assert not Page(markup).all("script")


def heights(text: str) -> list[float]:
    return [float(item) for item in re.findall(r'class="tokens[ a-z]*"[^>]* height="([\d.]+)"', text)]


def test_trend_bars_heights_are_in_proportion_and_none_is_invisible() -> None:
    made = trend_bars([(50, "a"), (100, "b"), (0, "c")], "tokens")
    assert heights(made) == [BAR_HEIGHT / 2, BAR_HEIGHT, THINNEST]
    assert re.findall("<title>(.)</title>", made) == ["a", "b", "c"]
    assert not trend_bars([(5, "a")], "tokens")  # there is nothing to compare


def test_trend_bars_many_refreshes_keeps_the_newest() -> None:
    made = trend_bars([(number + 1, str(number)) for number in range(40)], "tokens")
    assert len(heights(made)) == MOST_BARS
    assert made.count('class="tokens past"') == MOST_BARS - 1
    assert made.rindex('class="tokens"') > made.rindex('class="tokens past"')
