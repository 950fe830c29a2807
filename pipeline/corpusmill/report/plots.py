"""Small pictures as inline SVG: bars over powers of two, one bar cut into shares, a bar in a table cell.

Every mark has its exact numbers in a <title>; nonzero values are always drawn thick enough to be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from corpusmill.report import svg
from corpusmill.report.facts import PowerHistogram
from corpusmill.report.figures import bytes_text, count_text, grouped, share_text

Format = Callable[[float], str]
WIDTH, HEIGHT = 500.0, 246.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 22.0, 30.0, 44.0
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
TICK_WIDTH = 52.0  # holds "512 KiB"
FEWEST_COLUMNS = 7  # a single bar as wide as the page would not show its place on the axis
THINNEST = 2.0
NOTHING = Markup('<p class="empty">nothing to draw</p>')


@dataclass(frozen=True)
class Bars:
    """One series: a height for each power of two (-1: zero), and its name in tooltips."""

    name: str
    css_class: str
    heights: dict[int, int]


def counts_of(name: str, css_class: str, histogram: PowerHistogram) -> Bars:
    """Bars of how many values each bin holds."""
    return Bars(name, css_class, {bin_.power: bin_.count for bin_ in histogram.bins})


def totals_of(name: str, css_class: str, histogram: PowerHistogram) -> Bars:
    """Bars of the sum of the values in each bin."""
    return Bars(name, css_class, {bin_.power: bin_.total for bin_ in histogram.bins})


def power_bars(
    series: Sequence[Bars], *, x_title: str, y_title: str, x_format: Format = bytes_text, y_format: Format = count_text
) -> Markup:
    """Bars over bins of powers of two. Of two series the first is drawn wide and pale, the second narrow in front."""
    powers = sorted({power for bars in series for power in bars.heights})
    if not powers:
        return NOTHING
    columns = _columns(powers[0], powers[-1])
    highest = max(max(bars.heights.values(), default=0) for bars in series)
    ticks = axis_ticks(highest, binary=y_format is bytes_text)
    column_width = PLOT_WIDTH / len(columns)
    floor = TOP + PLOT_HEIGHT

    marks = []
    for tick in ticks:
        y = floor - PLOT_HEIGHT * tick / ticks[-1]
        marks.append(svg.line("grid" if tick else "axis", (LEFT, y), (WIDTH - RIGHT, y)))
        marks.append(svg.text("tick end", (LEFT - 8, y + 3.5), _round_text(y_format, tick)))
    for place, power in enumerate(columns):
        x = LEFT + place * column_width
        drawn = [svg.rectangle("hover", (x, TOP), (column_width, PLOT_HEIGHT))]
        for depth, bars in enumerate(series):
            value = bars.heights.get(power, 0)
            if value:
                inset = column_width * (0.07, 0.24)[depth]
                height = max(THINNEST, PLOT_HEIGHT * value / ticks[-1])
                size = (column_width - 2 * inset, height)
                drawn.append(svg.rectangle(bars.css_class, (x + inset, floor - height), size, radius=2))
        values = (f"{bars.name}: {grouped(bars.heights.get(power, 0))}" for bars in series)
        marks.append(svg.group("\n".join((_bin_name(power, x_format), *values)), *drawn))
    every = math.ceil(TICK_WIDTH / column_width)
    first_edge = 1 + every // 2 if columns[0] == -1 else columns[0]  # the zero bin's own label needs room
    for place, power in enumerate(columns):
        x = LEFT + place * column_width
        if power == -1:
            marks.append(svg.text("tick middle", (x + column_width / 2, floor + 17), "0"))
        elif power >= first_edge and power % every == 0:
            marks.append(svg.line("axis", (x, floor), (x, floor + 4)))
            marks.append(svg.text("tick middle", (x, floor + 17), _round_text(x_format, 2.0**power)))
    marks.append(svg.text("title middle", (LEFT + PLOT_WIDTH / 2, HEIGHT - 8), x_title))
    marks.append(svg.text("title", (0, 11), y_title))
    return svg.drawing(marks, (WIDTH, HEIGHT), f"{y_title} by {x_title}")


def share_bar(shares: Sequence[tuple[str, str, int]], *, width: float = 1040.0, height: float = 30.0) -> Markup:
    """One bar cut into shares (name, css class, count)."""
    whole = sum(count for _, _, count in shares)
    if not whole:
        return NOTHING
    widths = [max(THINNEST + 1, width * count / whole) if count else 0.0 for _, _, count in shares]
    marks, x = [], 0.0
    for (name, css_class, count), wanted in zip(shares, widths, strict=True):
        if count:
            drawn = wanted * width / sum(widths)
            tooltip = f"{name}: {grouped(count)} ({share_text(count, whole)})"
            size = (max(1.0, drawn - 1), height)
            marks.append(svg.group(tooltip, svg.rectangle(css_class, (x, 0), size, radius=2)))
            x += drawn
    label = ", ".join(f"{name} {share_text(count, whole)}" for name, _, count in shares)
    return svg.drawing(marks, (width, height), label)


def cell_bar(value: float, largest: float, css_class: str) -> Markup:
    """A bar for a table cell, its length `value` of `largest`."""
    percent = max(0.8, 100 * value / largest) if value and largest else 0.0
    bar = Markup('<rect class="{}" width="{}%" height="100%" rx="2"/>').format(css_class, svg.number(percent))
    return Markup('<svg class="cell-bar" aria-hidden="true">{}</svg>').format(bar)


def axis_ticks(highest: float, *, binary: bool, steps: int = 4) -> list[float]:
    """Ticks from zero to at least `highest`: whole steps of 1, 2 or 5 x 10**k (of KiB, MiB, ... when `binary`)."""
    if highest <= 1:
        return [0.0, 1.0]
    unit = 1024.0 ** int(math.log(highest, 1024)) if binary else 1.0
    rough = highest / unit / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = unit * next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    if unit == 1:
        step = max(1.0, step)  # no ticks at fractions of a document
    return [step * tick for tick in range(math.ceil(highest / step - 1e-9) + 1)]


def _columns(first: int, last: int) -> range:
    while last - first + 1 < FEWEST_COLUMNS:
        first, last = max(-1, first - 1), last + 1
    return range(first, last + 1)


def _bin_name(power: int, x_format: Format) -> str:
    if power <= 0:
        return x_format(power + 1)
    return f"{_round_text(x_format, 2.0**power)} to below {_round_text(x_format, 2.0 ** (power + 1))}"


def _round_text(form: Format, value: float) -> str:
    """1.00 KiB -> 1 KiB, 50.0 K -> 50 K: values on an axis are whole."""
    figure, _, unit = form(value).partition(" ") if value else ("0", "", "")
    figure = figure.rstrip("0").rstrip(".") if "." in figure else figure
    return f"{figure} {unit}".rstrip()
