"""SVG marks as safe markup: a line, a rectangle, a text, a group with a tooltip, the drawing around them.

Colours and fonts are CSS classes of report.css, so that light and dark need one picture. Coordinates are SVG units that
the page scales. Text is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup


def number(value: float) -> str:
    """Two decimals at most: enough for a screen, and the same text on every machine."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def line(css_class: str, start: tuple[float, float], end: tuple[float, float]) -> Markup:
    """A straight line."""
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
        css_class, number(start[0]), number(start[1]), number(end[0]), number(end[1])
    )


def rectangle(css_class: str, corner: tuple[float, float], size: tuple[float, float], *, radius: float = 0) -> Markup:
    """A rectangle from its upper left corner."""
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="{}"/>').format(
        css_class, number(corner[0]), number(corner[1]), number(size[0]), number(size[1]), number(radius)
    )


def text(css_class: str, at: tuple[float, float], content: str, *, tooltip: str | None = None) -> Markup:
    """One line of text; classes "middle" and "end" say which point of it is at `at`."""
    title = Markup("<title>{}</title>").format(tooltip) if tooltip else ""
    return Markup('<text class="{}" x="{}" y="{}">{}{}</text>').format(
        css_class, number(at[0]), number(at[1]), title, content
    )


def group(tooltip: str, *marks: Markup) -> Markup:
    """Marks that share a tooltip."""
    return Markup("<g><title>{}</title>{}</g>").format(tooltip, Markup("").join(marks))


def drawing(marks: Iterable[Markup], size: tuple[float, float], label: str) -> Markup:
    """An <svg> of this size around `marks`, with `label` for readers who do not see it."""
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        number(size[0]), number(size[1]), label, Markup("\n").join(marks)
    )
