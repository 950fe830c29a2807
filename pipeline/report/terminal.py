"""Summary -> a page for the terminal. Fits 80 columns; from 96 on there is room for each stage's memory."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.rule import Rule
from rich.text import Text

from corpusmill.report.figures import bytes_text, counted
from corpusmill.report.summary import BuildSummary
from corpusmill.report.terminal_marks import plain
from corpusmill.report.terminal_sections import (
    balance,
    duplicates,
    lengths,
    lost_and_gained,
    outputs,
    quarantine,
    records,
    stages,
)

WIDE = 96
VERDICT_STYLE = {"complete": "bold green", "in progress": "bold yellow", "does not balance": "bold red"}


class Page:
    """The whole page as a rich renderable; it chooses its columns by the width it is printed at."""

    def __init__(self, summary: BuildSummary) -> None:
        self.summary = summary

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the sections that have something to say."""
        summary = self.summary
        yield from _heading(summary)
        sections: tuple[tuple[str, Iterator[RenderableType]], ...] = (
            ("Stages", stages(summary, wide=options.max_width >= WIDE)),
            ("Lost and added", lost_and_gained(summary)),
            ("Duplicates", duplicates(summary)),
            ("Documents by length", lengths(summary)),
            ("Records", records(summary)),
            ("Outputs", outputs(summary)),
            ("Quarantine", quarantine(summary)),
            ("Balance", balance(summary)),
        )
        for title, lines in sections:
            body = list(lines)
            if body:
                yield Text()
                yield Rule(Text(title, style="bold"), align="left", style="dim")
                yield from body


def render(summary: BuildSummary) -> Page:
    """The page as a rich renderable."""
    return Page(summary)


def print_summary(summary: BuildSummary, console: Console | None = None) -> None:
    """Print the page to `console` (default: standard output)."""
    (console or Console()).print(render(summary))


def _heading(summary: BuildSummary) -> Iterator[RenderableType]:
    name = Text(plain(summary.dataset), style="bold", no_wrap=True, overflow="ellipsis")
    yield name
    yield Text.assemble(
        (summary.verdict, VERDICT_STYLE[summary.verdict]),
        (f"  plan {plain(summary.plan)[:16]}  Corpusmill {plain(summary.code_version)[:20]}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    yield Text(f"{counted(summary.source_files, 'source file')}, {bytes_text(summary.source_bytes)} as delivered")
    if summary.latest_stays:
        yield Text(f"latest was not moved: {plain(summary.latest_stays)}", style="bold yellow", overflow="fold")
    if summary.other_files:
        yield Text(plain(summary.other_files))
