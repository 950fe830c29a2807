"""What the terminal page is made of: tables whose numbers are never cut, paths that keep their end, bars of blocks.

Text from outside is put into rich `Text`, never parsed as markup, and control characters in it are replaced: a file
name can neither colour the page nor move the cursor.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from corpusmill.report.summary import PowerHistogram

BLOCKS = "▁▂▃▄▅▆▇█"
Row = tuple[RenderableType, ...]


def plain(text: str) -> str:
    """`text` without control characters: terminal escapes, line breaks, changes of direction."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def sparkline(histogram: PowerHistogram, *, totals: bool = False) -> str:
    """One block per power of two from the first bin to the last, its height the count (or total); empty bins blank."""
    heights = {one.power: one.total if totals else one.count for one in histogram.bins}
    highest = max(heights.values(), default=0)
    if not highest:
        return ""
    powers = range(min(heights), max(heights) + 1)
    return "".join(_block(heights.get(power, 0), highest) for power in powers)


def _block(height: int, highest: int) -> str:
    # The highest bin gets the full block, the smallest that is not empty the lowest one.
    return BLOCKS[-(-height * len(BLOCKS) // highest) - 1] if height else " "


def make_table(*columns: str) -> Table:
    """Columns whose name starts with '>' hold numbers: right-aligned, never shortened. Others give way, in one line."""
    named = any(column.removeprefix(">") for column in columns)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=named, header_style="dim", pad_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        is_number = name != column
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="ellipsis")
    return table


def name_text(text: str, style: str = "") -> Text:
    return Text(plain(text), style=style, no_wrap=True, overflow="ellipsis")


class PathEnd:
    """A path that loses its beginning, not its end, where there is no room for all of it."""

    def __init__(self, path: str) -> None:
        self.path = plain(path)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """At least room for a file name, at most the whole path."""
        length = cell_len(self.path)
        return Measurement(min(length, 20), length)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The last cells that fit."""
        shown = self.path
        while cell_len(shown) > options.max_width:
            shown = "…" + shown[2:]
        yield Text(shown, no_wrap=True)


def listed(columns: tuple[str, ...], rows: list[Row], most: int, more: str) -> Iterator[RenderableType]:
    """A table of the first `most` rows, and how many more there are."""
    if rows:
        table = make_table(*columns)
        for row in rows[:most]:
            table.add_row(*row)
        yield table
    if len(rows) > most:
        yield Text(f"and {len(rows) - most:,} {more}", style="dim")


def mark(*, good: bool) -> Text:
    return Text("✓", style="green") if good else Text("✗", style="bold red")
