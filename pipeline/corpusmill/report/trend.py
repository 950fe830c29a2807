"""A dataset over its refreshes as a row of small bars, one per refresh, the newest last and darkest."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from corpusmill.report import svg

BAR, GAP, HEIGHT, THINNEST = 9.0, 3.0, 30.0, 2.0
MOST_BARS = 14


def trend_bars(points: Sequence[tuple[float, str]], label: str) -> Markup:
    """Bars of the last MOST_BARS of (value, tooltip), scaled from zero to the largest; empty for fewer than two.

    A single bar has full height whatever its value, so it would show nothing.
    """
    shown = points[-MOST_BARS:]
    if len(shown) < 2:
        return Markup("")
    highest = max(value for value, _ in shown) or 1.0
    marks = []
    for place, (value, tooltip) in enumerate(shown):
        height = max(THINNEST, HEIGHT * value / highest)
        x = place * (BAR + GAP)
        newest = place == len(shown) - 1
        bar = svg.rectangle("tokens" if newest else "tokens past", (x, HEIGHT - height), (BAR, height), radius=1.5)
        marks.append(svg.group(tooltip, svg.rectangle("hover", (x, 0), (BAR + GAP, HEIGHT)), bar))
    width = len(shown) * (BAR + GAP) - GAP
    drawn = svg.drawing(marks, (width, HEIGHT), label)
    return Markup('<span class="trend" style="width:{}px">{}</span>').format(svg.number(width), drawn)
