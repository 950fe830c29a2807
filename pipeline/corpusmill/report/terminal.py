"""Summary -> the terminal: a row per step, totals, warnings, the outputs. Everything else is in the HTML report.

Tables fit 80 columns. Other lines are not broken, so that a path can be copied. Untrusted text becomes rich `Text`,
never markup, and its control characters are replaced: a file name can neither change colours nor move the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpusmill.report.facts import Flow, step_rows
from corpusmill.report.figures import (
    bytes_text,
    count_text,
    counted,
    decoded_text,
    documents_text,
    encoded_text,
    grouped,
    rate_text,
    seconds_text,
    share_text,
    sum_text,
)
from corpusmill.report.summary import BalanceCheck, BuildSummary, totals

VERDICT_STYLE = {"complete": "bold green", "in progress": "bold yellow", "does not balance": "bold red"}
LISTED_CHECKS = 12
Lines = Iterator[Text | Table]


def print_summary(summary: BuildSummary, html: Path, console: Console | None = None) -> None:
    """Print the summary and the path of its HTML report to `console` (default: standard output)."""
    console = console or Console()
    for section in (_head, _steps, _balance, _budget, _totals, _outputs):
        for line in section(summary):
            console.print(line, soft_wrap=isinstance(line, Text))
    console.print(Text(f"report  {plain(from_here(str(html)))}"), soft_wrap=True)


def from_here(place: str) -> str:
    """A path below the current folder relative to it; any other path, and an address, unchanged."""
    return str(Path(place).relative_to(Path.cwd())) if Path(place).is_relative_to(Path.cwd()) else place


def plain(text: str) -> str:
    """`text` without control characters: terminal escapes, line breaks, changes of direction."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _head(summary: BuildSummary) -> Lines:
    made_by = f"plan {plain(summary.plan)[:16]}  Corpusmill {plain(summary.code_version)[:20]}"
    verdict = (summary.verdict, VERDICT_STYLE[summary.verdict])
    yield Text.assemble((plain(summary.dataset), "bold"), "  ", verdict, "  ", (made_by, "dim"))
    reused, done = (sum(getattr(stage, name) for stage in summary.stages) for name in ("units_reused", "units_done"))
    if reused:
        yield Text(f"reused {reused:,} of {counted(done, 'unit')} of work; {done - reused:,} ran")


def _steps(summary: BuildSummary) -> Lines:
    if not summary.stages:
        return
    table = _table("Step", "Units", "Reused", "Documents", "Text", "Tokens", "Time", "MB/s", "Memory")
    for step, _ in step_rows(summary.stages):
        units = grouped(step.units_total) if step.is_finished else f"{step.units_done:,}/{step.units_total:,}"
        table.add_row(
            _name(step.stage),
            Text(units, style="" if step.is_finished else "yellow"),
            grouped(step.units_reused) if step.units_reused else "",
            _in_and_out(step.documents, documents_text),
            _in_and_out(step.text_bytes, bytes_text),
            _in_and_out(step.tokens, count_text),
            seconds_text(step.seconds),
            rate_text(step.bytes_per_second),
            bytes_text(step.peak_rss_bytes),
        )
    yield table
    yield Text("Where a cell has two figures, the upper is the input, the lower the output.", style="dim")
    yield Text()


def _in_and_out(flow: Flow | None, as_text: Callable[[float], str]) -> str:
    if flow is None:
        return ""
    into, out = as_text(flow.into), as_text(flow.out)
    return out if into == out else f"{into}\n{out}"


def _balance(summary: BuildSummary) -> Lines:
    failed = summary.failed_checks
    if summary.checks and not failed:
        yield Text.assemble(_mark(good=True), f" {counted(len(summary.checks), 'check')} passed: nothing lost or added")
    for check in failed[:LISTED_CHECKS]:
        yield Text.assemble(_mark(good=False), " ", (plain(check.name), "bold"), f": {_both_sides(check)}")
    if len(failed) > LISTED_CHECKS:
        yield Text(f"and {counted(len(failed) - LISTED_CHECKS, 'more check')} failed")


def _both_sides(check: BalanceCheck) -> str:
    left, right = (
        " + ".join(
            f"{plain(label)} {value:,}" if isinstance(value, int) else f"{plain(label)} {plain(sum_text(value))}"
            for label, value in terms
        )
        for terms in (check.left, check.right)
    )
    difference = check.difference
    missing = "" if difference is None else f"  ({abs(difference):,} {'missing' if difference > 0 else 'too many'})"
    return f"{left} ≠ {right}{missing}"


def _budget(summary: BuildSummary) -> Lines:
    if not summary.budget:
        return
    table = _table("Source", "Budget", "Tokens", "Shown", "Epochs", "Documents")
    for source in summary.budget.sources:
        times = "\n".join(f"{documents_text(documents)} {times}x" for times, documents in source.by_times)
        shown = count_text(source.tokens), count_text(source.shown_tokens), f"{source.epochs:.2f}"
        table.add_row(_name(source.path), plain(source.budget), *shown, times)
    yield table
    yield Text()


def _totals(summary: BuildSummary) -> Lines:
    rows = [(total.name, total.figure, total.more) for total in totals(summary)]
    if duplicates := summary.duplicates:
        what = "removed" if duplicates.mode == "remove" else "annotated"
        share = f"{what}, {share_text(duplicates.duplicate_bytes, duplicates.text_bytes)} of the text"
        rows.append(("Duplicates", bytes_text(duplicates.duplicate_bytes), share))
        for reference in duplicates.references:
            rows.append(("In reference", bytes_text(reference.held_bytes), f"of these, in {reference.path}"))
    for decisions in summary.filtered.decisions if summary.filtered else ():
        rows.append(("List", decisions.name, decisions.matched_text()))
    for name, figure, more in rows:
        yield Text(f"{name:<13}  {figure:>9}  {plain(more)}")
    if ids := summary.decoded:
        yield Text(decoded_text(ids.exactly, ids.normalized, ids.unproven))
    if summary.encoded:
        yield Text(plain(encoded_text(summary.encoded)))
    for warning in _warnings(summary):
        yield Text(f"warning: {warning}", style="bold yellow")
    yield Text()


def _warnings(summary: BuildSummary) -> Iterator[str]:
    if summary.latest_stays:
        yield f"latest was not moved: {plain(summary.latest_stays)}"
    if summary.duplicates:
        yield from map(plain, summary.duplicates.references_without_text)
    if summary.quarantine:
        documents = counted(sum(file.documents for file in summary.quarantine), "document")
        yield f"{documents} in quarantine, in {counted(len(summary.quarantine), 'file')}"
    if summary.shuffle and summary.shuffle.warnings:
        yield f"improbable order (p < {summary.shuffle.significance:g}): try another seed"


def _outputs(summary: BuildSummary) -> Lines:
    if summary.exports:
        table = _table("Format", "Files", "Size", "Records", "Tokens")
        for export in summary.exports:
            # A stream of tokens has no records: documents straddle its files.
            records = documents_text(export.records) if export.records else "\N{EN DASH}"
            sizes = grouped(len(export.files)), bytes_text(export.size_bytes), records, count_text(export.tokens)
            table.add_row(_name(export.format), *sizes)
        yield table
    for place in summary.destinations:
        verified = f"{place.verified_files:,} of {counted(place.files, 'file')} verified"
        yield Text.assemble(
            _mark(good=place.is_verified),
            f" {bytes_text(place.size_bytes)}, {verified}: {plain(from_here(place.where))}",
        )


def _table(name: str, *figures: str) -> Table:
    """A table with a column of names, which may be shortened, and columns of figures, which may not."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column(name, overflow="ellipsis")
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    return table


def _name(text: str) -> Text:
    return Text(plain(text), style="bold", no_wrap=True, overflow="ellipsis")


def _mark(*, good: bool) -> Text:
    return Text("✓", style="green") if good else Text("✗", style="bold red")
