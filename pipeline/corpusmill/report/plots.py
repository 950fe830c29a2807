"""Small pictures as inline SVG: bars over powers of two, bars cut into shares, a heat map, a trend.

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
FEWEST_STEPS = 4  # of an axis
THINNEST = 2.0
SHARES_WIDTH, SHARES_HEIGHT = 1040.0, 30.0
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
    every = math.ceil(TICK_WIDTH * len(columns) / PLOT_WIDTH)
    first_edge = 1 + every // 2 if columns[0] == -1 else columns[0]  # the zero bin's own label needs room
    edges = {
        place: _round_text(x_format, 2.0**power)
        for place, power in enumerate(columns)
        if power >= first_edge and power % every == 0
    }
    names = [_bin_name(power, x_format) for power in columns]
    under = {0: "0"} if columns[0] == -1 else {}
    return _drawn_bars(series, columns, names, edges, under, (x_title, y_title), y_format)


def percent_bars(counts: dict[int, int], least: float, *, x_title: str, y_title: str) -> Markup:
    """Bars over whole percents from the share `least` to 100, whose column is that of exactly 100 %.

    `counts`: of each percent, the values from there to below the next.
    """
    columns = range(min(math.floor(100 * least + 1e-9), 101 - FEWEST_COLUMNS), 101)
    bars = Bars(y_title, "lost", counts)
    every = 5 if len(columns) <= 30 else 10
    edges = {place: f"{percent} %" for place, percent in enumerate(columns[:-1]) if percent % every == 0}
    names = [*(f"{percent} % to below {percent + 1} %" for percent in columns[:-1]), "equal"]
    under = {len(columns) - 1: "equal"}
    return _drawn_bars([bars], columns, names, edges, under, (x_title, y_title), count_text)


def _drawn_bars(
    series: Sequence[Bars], columns: range, names: Sequence[str], edges: dict[int, str], under: dict[int, str],
    titles: tuple[str, str], y_format: Format,
) -> Markup:  # fmt: skip
    """`names`: of each column, in tooltips. `edges`: labels at the left edges of columns; `under`: in their middles."""
    highest = max(max(bars.heights.values(), default=0) for bars in series)
    ticks = axis_ticks(highest, binary=y_format is bytes_text)
    column_width = PLOT_WIDTH / len(columns)
    floor = TOP + PLOT_HEIGHT

    marks = []
    for tick in ticks:
        y = floor - PLOT_HEIGHT * tick / ticks[-1]
        marks.append(svg.line("grid" if tick else "axis", (LEFT, y), (WIDTH - RIGHT, y)))
        marks.append(svg.text("tick end", (LEFT - 8, y + 3.5), _round_text(y_format, tick)))
    for place, (column, name) in enumerate(zip(columns, names, strict=True)):
        x = LEFT + place * column_width
        drawn = [svg.rectangle("hover", (x, TOP), (column_width, PLOT_HEIGHT))]
        for depth, bars in enumerate(series):
            value = bars.heights.get(column, 0)
            if value:
                inset = column_width * (0.07, 0.24)[depth]
                height = max(THINNEST, PLOT_HEIGHT * value / ticks[-1])
                size = (column_width - 2 * inset, height)
                drawn.append(svg.rectangle(bars.css_class, (x + inset, floor - height), size, radius=2))
        values = (f"{bars.name}: {grouped(bars.heights.get(column, 0))}" for bars in series)
        marks.append(svg.group("\n".join((name, *values)), *drawn))
    for place, label in edges.items():
        x = LEFT + place * column_width
        marks.append(svg.line("axis", (x, floor), (x, floor + 4)))
        marks.append(svg.text("tick middle", (x, floor + 17), label))
    for place, label in under.items():
        marks.append(svg.text("tick middle", (LEFT + (place + 0.5) * column_width, floor + 17), label))
    x_title, y_title = titles
    marks.append(svg.text("title middle", (LEFT + PLOT_WIDTH / 2, HEIGHT - 8), x_title))
    marks.append(svg.text("title", (0, 11), y_title))
    return svg.drawing(marks, (WIDTH, HEIGHT), f"{y_title} by {x_title}")


def share_bar(shares: Sequence[tuple[str, str, int]]) -> Markup:
    """One bar cut into shares (name, css class, count)."""
    whole = sum(count for _, _, count in shares)
    if not whole:
        return NOTHING
    widths = [max(THINNEST + 1, SHARES_WIDTH * count / whole) if count else 0.0 for _, _, count in shares]
    marks, x = [], 0.0
    for (name, css_class, count), wanted in zip(shares, widths, strict=True):
        if count:
            drawn = wanted * SHARES_WIDTH / sum(widths)
            tooltip = f"{name}: {grouped(count)} ({share_text(count, whole)})"
            size = (max(1.0, drawn - 1), SHARES_HEIGHT)
            marks.append(svg.group(tooltip, svg.rectangle(css_class, (x, 0), size, radius=2)))
            x += drawn
    label = ", ".join(f"{name} {share_text(count, whole)}" for name, _, count in shares)
    return svg.drawing(marks, (SHARES_WIDTH, SHARES_HEIGHT), label)


def cell_bar(value: float, largest: float, css_class: str) -> Markup:
    """A bar for a table cell, its length `value` of `largest`."""
    percent = max(0.8, 100 * value / largest) if value and largest else 0.0
    bar = Markup('<rect class="{}" width="{}%" height="100%" rx="2"/>').format(css_class, svg.number(percent))
    return Markup('<svg class="cell-bar" aria-hidden="true">{}</svg>').format(bar)


def axis_ticks(highest: float, *, binary: bool) -> list[float]:
    """Ticks from zero to at least `highest`: whole steps of 1, 2 or 5 x 10**k (of KiB, MiB, ... when `binary`)."""
    if highest <= 1:
        return [0.0, 1.0]
    unit = 1024.0 ** int(math.log(highest, 1024)) if binary else 1.0
    rough = highest / unit / FEWEST_STEPS
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


# Of heat maps.
MAP_LEFT, MAP_BOTTOM = 32.0, 30.0
STRONGEST = 3.0  # standard deviations; chance exceeds them in 1 of 370 places
FAINTEST = 0.06


def heat_map(records: Sequence[Sequence[int]]) -> Markup:
    """A heat map: each place's distance from an even mixture, in standard deviations.

    Rows are stretches of the source order, columns groups of output files, both from the first to the last.
    """
    rows = [sum(row) for row in records]
    columns = [sum(column) for column in zip(*records, strict=True)]
    whole = sum(rows)
    width, height = (WIDTH - MAP_LEFT - RIGHT) / len(columns), (HEIGHT - TOP - MAP_BOTTOM) / len(rows)
    marks = []
    for row, counts in enumerate(records):
        for column, count in enumerate(counts):
            expected = rows[row] * columns[column] / whole if whole else 0.0
            away = (count - expected) / expected**0.5 if expected else 0.0
            strength = FAINTEST + (1 - FAINTEST) * min(1.0, abs(away) / STRONGEST)
            corner = (MAP_LEFT + column * width, TOP + row * height)
            label = (
                f"source stretch {row + 1}, file group {column + 1}\n{grouped(count)} records, {expected:,.1f} expected"
            )
            box = svg.rectangle("heat-high" if away > 0 else "heat-low", corner, (width, height))
            marks.append(svg.group(label, Markup('<g opacity="{}">{}</g>').format(svg.number(strength), box)))
    marks.append(svg.text("title", (0, 11), "source order, first above"))
    marks.append(
        svg.text("title middle", (MAP_LEFT + (WIDTH - MAP_LEFT - RIGHT) / 2, HEIGHT - 8), "output files in order")
    )
    return svg.drawing(marks, (WIDTH, HEIGHT), "records by source stretch and output file")


# Of trends.
BAR, GAP, BAR_HEIGHT = 9.0, 3.0, 30.0
MOST_BARS = 14


def trend_bars(points: Sequence[tuple[float, str]], label: str) -> Markup:
    """A dataset over its refreshes, the newest last and darkest.

    Bars of the last MOST_BARS of (value, tooltip), scaled from zero to the largest; empty for fewer than two.

    A single bar has full height whatever its value, so it would show nothing.
    """
    shown = points[-MOST_BARS:]
    if len(shown) < 2:
        return Markup("")
    highest = max(value for value, _ in shown) or 1.0
    marks = []
    for place, (value, tooltip) in enumerate(shown):
        height = max(THINNEST, BAR_HEIGHT * value / highest)
        x = place * (BAR + GAP)
        newest = place == len(shown) - 1
        bar = svg.rectangle("tokens" if newest else "tokens past", (x, BAR_HEIGHT - height), (BAR, height), radius=1.5)
        marks.append(svg.group(tooltip, svg.rectangle("hover", (x, 0), (BAR + GAP, BAR_HEIGHT)), bar))
    width = len(shown) * (BAR + GAP) - GAP
    drawn = svg.drawing(marks, (width, BAR_HEIGHT), label)
    return Markup('<span class="trend" style="width:{}px">{}</span>').format(svg.number(width), drawn)
