"""The sections of the terminal page, each a few lines that a summary has something to say for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.text import Text

from corpusmill.report.figures import (
    bytes_text,
    count_text,
    counted,
    decoded_text,
    grouped,
    largest_first,
    rate_text,
    seconds_text,
    share_text,
    sum_text,
    unproved_text,
)
from corpusmill.report.summary import BalanceCheck, BuildSummary, Flow, PowerHistogram
from corpusmill.report.terminal_marks import PathEnd, Row, listed, make_table, mark, name_text, plain, sparkline

LISTED_ROWS = 5
LISTED_REASONS = 12
MINUS = "\N{MINUS SIGN}"


def stages(summary: BuildSummary, *, wide: bool) -> Iterator[RenderableType]:
    if not summary.stages:
        return
    columns = ("Stage", ">Steps", ">Documents", ">Text", ">Tokens", ">Time", ">MB/s")
    table = make_table(*columns, ">Memory") if wide else make_table(*columns)
    for stage in summary.stages:
        steps = grouped(stage.units_total) if stage.is_finished else f"{stage.units_done:,}/{stage.units_total:,}"
        row: Row = (
            name_text(stage.stage, "bold" if stage.on_trunk else ""),
            Text(steps, style="" if stage.is_finished else "yellow"),
            _out(stage.documents, _short),
            _out(stage.text_bytes, bytes_text),
            _out(stage.tokens, count_text),
            seconds_text(stage.seconds),
            rate_text(stage.bytes_per_second),
        )
        table.add_row(*row, bytes_text(stage.peak_rss_bytes)) if wide else table.add_row(*row)
    yield table
    for stage in summary.stages:
        if stage.requests:
            moved = f"{bytes_text(stage.wire_bytes)} over the wire in {counted(stage.requests, 'request')}"
            unproved = unproved_text(stage.without_checksum)
            yield Text(f"{stage.stage}: {moved}, {stage.retries:,} of them retries{unproved}", style="dim")
    reused = sum(stage.units_reused for stage in summary.stages)
    if reused:
        done = sum(stage.units_done for stage in summary.stages)
        yield Text(f"{reused:,} of {counted(done, 'step')} reused from an earlier run", style="dim")


def _out(flow: Flow | None, as_text: Callable[[float], str]) -> str:
    return "" if flow is None else as_text(flow.out)


def _short(count: float) -> str:
    """Exact up to nine digits, so that a column holds eleven characters."""
    return grouped(round(count)) if count < 10**9 else count_text(count)


def lost_and_gained(summary: BuildSummary) -> Iterator[RenderableType]:
    rows: list[Row] = []
    for stage in summary.stages:
        flows = (
            (stage.documents, "documents", _short),
            (stage.text_bytes, "", bytes_text),
            (stage.tokens, "tokens", _short),
        )
        for flow, unit, as_text in flows:
            if flow is not None:
                for sign, amounts, style in ((MINUS, flow.lost, "red"), ("+", flow.gained, "yellow")):
                    for reason, count in largest_first(amounts):
                        amount = Text(f"{sign}{as_text(count)} {unit}".rstrip(), style=style)
                        rows.append((name_text(stage.stage), amount, share_text(count, flow.into), name_text(reason)))
    yield from listed(("", ">", ">", ""), rows, LISTED_REASONS, "more reasons")


def duplicates(summary: BuildSummary) -> Iterator[RenderableType]:
    found = summary.duplicates
    if found is None:
        return
    what = "removed" if found.mode == "remove" else "annotated"
    share = share_text(found.duplicate_bytes, found.text_bytes)
    yield Text.assemble((bytes_text(found.duplicate_bytes), "bold"), f" {what}, ", (share, "bold"), " of the text")
    yield Text(f"{counted(found.ranges.count, 'range')} of at least {grouped(found.minimum_bytes)} bytes")
    touched = share_text(found.documents_touched, found.documents)
    yield Text(
        f"{counted(found.documents_touched, 'document')} touched ({touched}), {found.documents_emptied:,} emptied"
    )
    if found.ranges.count:
        table = make_table("", ">", "", "")
        table.add_row("ranges", *_spark(found.ranges, bytes_text, "red"))
        table.add_row("bytes", *_spark(found.ranges, bytes_text, "red", totals=True))
        yield table
    sources = sorted(found.by_source_file, key=lambda one: (-one.duplicate_bytes, one.path))
    rows: list[Row] = [
        (bytes_text(one.duplicate_bytes), share_text(one.duplicate_bytes, one.text_bytes), PathEnd(one.path))
        for one in sources
        if one.duplicate_bytes
    ]
    yield from listed((">", ">", ""), rows, LISTED_ROWS, "more source files with duplicates")
    if found.kept_gaps.count:
        table = make_table("", ">", "", "")
        table.add_row("kept gaps", *_spark(found.kept_gaps, bytes_text, "green"))
        yield table
    strings: list[Row] = [
        (f"{one.count:,} times", Text(plain(" ".join(one.excerpt.split())), no_wrap=True, overflow="crop"))
        for one in found.most_repeated
    ]
    yield from listed((">", ""), strings, LISTED_ROWS, "more strings that repeat")


def _spark(
    histogram: PowerHistogram, as_text: Callable[[float], str], style: str, *, totals: bool = False
) -> tuple[str, Text, str]:
    """Lower end, blocks, upper end."""
    first, last = histogram.bins[0].power, histogram.bins[-1].power
    low = "0" if first < 0 else as_text(2.0**first)
    return low, Text(sparkline(histogram, totals=totals), style=style), as_text(2.0 ** (last + 1))


def lengths(summary: BuildSummary) -> Iterator[RenderableType]:
    if summary.lengths is None:
        return
    series = (
        ("text before", summary.lengths.text_bytes_before, bytes_text, "dim"),
        ("text after", summary.lengths.text_bytes_after, bytes_text, "green"),
        ("tokens", summary.lengths.tokens, count_text, "magenta"),
    )
    drawn = [(name, lengths, as_text, style) for name, lengths, as_text, style in series if lengths and lengths.count]
    if drawn:
        table = make_table("", ">", "", "")
        for name, lengths, as_text, style in drawn:
            table.add_row(name, *_spark(lengths, as_text, style))
        yield table


def records(summary: BuildSummary) -> Iterator[RenderableType]:
    packing, shuffle = summary.packing, summary.shuffle
    if packing is not None:
        yield Text(f"{counted(packing.contexts, 'context')} of {packing.context_tokens:,} tokens")
        table = make_table("", ">", ">")
        for name, count in (
            ("real tokens", packing.real_tokens),
            ("special tokens", packing.special_tokens),
            ("padding", packing.pad_tokens),
            *((("repeated", packing.repeated_tokens),) if packing.repeated_tokens else ()),
        ):
            table.add_row(name, grouped(count), share_text(count, packing.slots))
        yield table
    if shuffle is not None:
        kinds = ", ".join(f"{count:,} of kind {plain(kind)}" for kind, count in sorted(shuffle.records_by_kind.items()))
        yield Text(f"{shuffle.order}, {counted(shuffle.cells, 'cell')}")
        yield Text(f"records: {kinds or 'none'}", no_wrap=True, overflow="ellipsis")
        rows: list[Row] = [
            (
                mark(good=one.is_good),
                name_text(one.name),
                f"{one.measured:.5f}",
                f"{one.ideal:.5f} ± {one.tolerance:.5f}",
            )
            for one in shuffle.quality
        ]
        yield from listed(("", "", ">", ">"), rows, LISTED_REASONS, "more measures")
        if shuffle.warnings:
            said = f"warning: chance gives such an order less often than {shuffle.significance:g}: check the seed"
            yield Text(said, style="bold yellow", overflow="fold")


def outputs(summary: BuildSummary) -> Iterator[RenderableType]:
    if summary.exports:
        table = make_table("Format", ">Files", ">Size", ">Records", ">Tokens")
        for one in summary.exports:
            records = (
                _short(one.records) if one.records else "\N{EN DASH}"
            )  # numpy shards are a stream: documents straddle them
            counts = grouped(len(one.files)), bytes_text(one.size_bytes), records, count_text(one.tokens)
            table.add_row(name_text(one.format, "bold"), *counts)
        yield table
    for one in summary.exports:
        if one.sequence_tokens is not None:
            told = f"{one.format} at {one.sequence_tokens:,} tokens: {counted(one.windows, 'window')}"
            yield Text(f"{told}, {counted(one.dropped_tokens, 'token')} dropped at files' ends")
    rows: list[Row] = [
        (
            mark(good=one.is_verified),
            bytes_text(one.size_bytes),
            f"{one.verified_files:,} of {counted(one.files, 'file')} verified",
            PathEnd(one.where),
        )
        for one in summary.destinations
    ]
    yield from listed(("", ">", ">", ""), rows, LISTED_ROWS, "more destinations")


def quarantine(summary: BuildSummary) -> Iterator[RenderableType]:
    if not summary.quarantine:
        return
    documents = sum(file.documents for file in summary.quarantine)
    yield Text(f"{counted(documents, 'document')} in {counted(len(summary.quarantine), 'file')}")
    rows: list[Row] = [
        (name_text(one.reason), f"line {one.line:,}", PathEnd(one.source_file))
        for file in summary.quarantine
        for one in file.examples
    ]
    yield from listed(("", ">", ""), rows, LISTED_ROWS, "more examples")
    files: list[Row] = [(grouped(file.documents), PathEnd(file.path)) for file in summary.quarantine]
    yield from listed((">", ""), files, LISTED_ROWS, "more quarantine files")


def balance(summary: BuildSummary) -> Iterator[RenderableType]:
    if not summary.checks:
        return
    failed = summary.failed_checks
    good = len(summary.checks) - len(failed)
    yield Text.assemble(mark(good=not failed), f" {good:,} of {counted(len(summary.checks), 'account')} in balance")
    rows: list[Row] = [
        (mark(good=True), name_text(check.name), sum_text(str(check.left[0][1])), Text(_labels(check)))
        for check in summary.content_checks
        if check.ok
    ]
    yield from listed(("", "", ">", ""), rows, LISTED_REASONS, "more accounts of content")
    if ids := summary.decoded:
        yield Text(decoded_text(ids.exactly, ids.normalized, ids.unproven))
    for check in failed[:LISTED_REASONS]:
        yield Text.assemble(mark(good=False), " ", (plain(check.name), "bold"), overflow="fold")
        yield Text(f"  {_both_sides(check)}", overflow="fold")
    if len(failed) > LISTED_REASONS:
        yield Text(f"and {len(failed) - LISTED_REASONS:,} more that do not", style="dim")


def _labels(check: BalanceCheck) -> str:
    left, right = (" + ".join(plain(label) for label, _ in terms) for terms in (check.left, check.right))
    return f"{left} = {right}"


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
