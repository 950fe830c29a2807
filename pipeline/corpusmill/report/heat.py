"""A heat map of a table of counts: each place's distance from an even mixture, in standard deviations."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from corpusmill.report import svg
from corpusmill.report.figures import grouped

WIDTH, HEIGHT = 500.0, 246.0
LEFT, RIGHT, TOP, BOTTOM = 32.0, 22.0, 30.0, 30.0
STRONGEST = 3.0  # standard deviations; chance exceeds them in 1 of 370 places
FAINTEST = 0.06


def heat_map(records: Sequence[Sequence[int]]) -> Markup:
    """Rows are stretches of the source order, columns groups of output files, both from the first to the last."""
    rows = [sum(row) for row in records]
    columns = [sum(column) for column in zip(*records, strict=True)]
    whole = sum(rows)
    width, height = (WIDTH - LEFT - RIGHT) / len(columns), (HEIGHT - TOP - BOTTOM) / len(rows)
    marks = []
    for row, counts in enumerate(records):
        for column, count in enumerate(counts):
            expected = rows[row] * columns[column] / whole if whole else 0.0
            away = (count - expected) / expected**0.5 if expected else 0.0
            strength = FAINTEST + (1 - FAINTEST) * min(1.0, abs(away) / STRONGEST)
            corner = (LEFT + column * width, TOP + row * height)
            label = (
                f"source stretch {row + 1}, file group {column + 1}\n{grouped(count)} records, {expected:,.1f} expected"
            )
            box = svg.rectangle("heat-high" if away > 0 else "heat-low", corner, (width, height))
            marks.append(svg.group(label, Markup('<g opacity="{}">{}</g>').format(svg.number(strength), box)))
    marks.append(svg.text("title", (0, 11), "source order, first above"))
    marks.append(svg.text("title middle", (LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8), "output files in order"))
    return svg.drawing(marks, (WIDTH, HEIGHT), "records by source stretch and output file")
