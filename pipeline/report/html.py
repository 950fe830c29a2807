"""Summary -> one HTML file that needs nothing else: no script, no font, no picture from anywhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

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
from corpusmill.report.flow import flow_picture
from corpusmill.report.heat import heat_map
from corpusmill.report.plots import cell_bar, counts_of, power_bars, share_bar, totals_of
from corpusmill.report.summary import BuildSummary
from corpusmill.report.training import training_flags

LISTED_ROWS = 2000  # a page of 50,000 rows helps nobody; the JSON summary has them all
FORMATS = {one.__name__: one for one in (bytes_text, count_text, grouped, rate_text, seconds_text, sum_text)}


@cache
def report_environment(*folders: Path) -> Environment:
    """Templates of this room and of `folders`, with the figures' formats; whatever they show is escaped."""
    environment = Environment(
        loader=FileSystemLoader([Path(__file__).parent, *folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FORMATS)
    environment.globals.update(
        FORMATS, share_text=share_text, counted=counted, decoded_text=decoded_text, largest_first=largest_first
    )
    environment.globals.update(cell_bar=cell_bar, listed_rows=LISTED_ROWS)
    environment.globals.update(as_share=lambda share: share_text(share, 1), exactly=lambda value: f"{value:,.10g}")
    return environment


def render_html(summary: BuildSummary) -> str:
    """The whole page. The same summary gives the same text; every name in it is escaped."""
    return (
        report_environment()
        .get_template("report.html")
        .render(
            summary=summary,
            figures=_figures(summary),
            flow_picture=flow_picture(summary),
            flags=training_flags(summary),
            count_checks=sorted((check for check in summary.checks if not check.of_content), key=lambda one: one.ok),
            content_checks=summary.content_checks,
            most_seconds=max((stage.seconds for stage in summary.stages), default=0.0),
            most_bytes_per_second=max((stage.bytes_per_second or 0.0 for stage in summary.stages), default=0.0),
            quarantined_documents=sum(file.documents for file in summary.quarantine),
            **_pictures(summary),
        )
    )


def _figures(summary: BuildSummary) -> list[tuple[str, str, str, str]]:
    """What a reader wants first: (name, figure, exact figure, one more fact)."""
    figures = [
        (
            "Source files",
            grouped(summary.source_files),
            f"{summary.source_bytes:,} bytes",
            "; ".join(filter(None, (f"{bytes_text(summary.source_bytes)} as delivered", summary.other_files))),
        )
    ]
    documents_in, documents = summary.first_into("documents"), summary.last_out("documents")
    if documents is not None and documents_in is not None:
        figures.append(
            ("Documents", count_text(documents), grouped(documents), f"{grouped(documents)} of {grouped(documents_in)}")
        )
    text_in, text = summary.first_into("text_bytes"), summary.last_out("text_bytes")
    if text is not None and text_in is not None:
        kept = f"{share_text(text, text_in)} of {bytes_text(text_in)}"
        figures.append(("Text kept", bytes_text(text), f"{text:,} bytes", kept))
    tokens = summary.first_into("tokens")
    if tokens is not None:
        padding = f"{share_text(summary.packing.pad_tokens, summary.packing.slots)} padding" if summary.packing else ""
        figures.append(("Tokens", count_text(tokens), grouped(tokens), padding or "without special tokens"))
    if summary.exports:
        size_bytes = sum(export.size_bytes for export in summary.exports)
        files = sum(len(export.files) for export in summary.exports)
        said = f"{counted(files, 'file')}, {counted(len(summary.exports), 'format')}"
        figures.append(("Outputs", bytes_text(size_bytes), f"{size_bytes:,} bytes", said))
    if summary.stages:
        seconds = sum(stage.seconds for stage in summary.stages)
        peak = max(stage.peak_rss_bytes for stage in summary.stages)
        figures.append(("Work", seconds_text(seconds), f"{seconds:,.3f} s", f"at most {bytes_text(peak)} memory"))
    requests = sum(stage.requests for stage in summary.stages)
    if requests:
        moved = sum(stage.wire_bytes for stage in summary.stages)
        retries = sum(stage.retries for stage in summary.stages)
        unproved = unproved_text(sum(stage.without_checksum for stage in summary.stages))
        said = f"{counted(requests, 'request')}, {retries:,} of them retries{unproved}"
        figures.append(("Over the wire", bytes_text(moved), f"{moved:,} bytes", said))
    return figures


def _pictures(summary: BuildSummary) -> dict[str, object]:
    pictures: dict[str, object] = {}
    if summary.duplicates:
        ranges = summary.duplicates.ranges
        x_title = "length of a duplicate range"
        pictures["range_counts"] = power_bars([counts_of("ranges", "lost", ranges)], x_title=x_title, y_title="ranges")
        pictures["range_bytes"] = power_bars(
            [totals_of("bytes", "lost", ranges)], x_title=x_title, y_title="duplicate text", y_format=bytes_text
        )
        if summary.duplicates.kept_gaps.count:
            gaps, x_title = summary.duplicates.kept_gaps, "bytes kept between two ranges of a document"
            pictures["gap_counts"] = power_bars(
                [counts_of("gaps", "text-bytes", gaps)], x_title=x_title, y_title="gaps"
            )
            pictures["gap_bytes"] = power_bars(
                [totals_of("bytes", "text-bytes", gaps)], x_title=x_title, y_title="text kept", y_format=bytes_text
            )
        pictures["sources"] = sorted(
            summary.duplicates.by_source_file, key=lambda one: (-one.duplicate_bytes, one.path)
        )
    if summary.lengths:
        lengths = summary.lengths
        series = [counts_of("documents before", "before", lengths.text_bytes_before)]
        if lengths.text_bytes_after:
            series.append(counts_of("documents after", "text-bytes", lengths.text_bytes_after))
        else:
            series = [counts_of("documents", "text-bytes", lengths.text_bytes_before)]
        pictures["length_bars"] = power_bars(series, x_title="text of a document", y_title="documents")
        if lengths.tokens:
            bars = counts_of("documents", "tokens", lengths.tokens)
            pictures["token_bars"] = power_bars(
                [bars], x_title="tokens of a document", y_title="documents", x_format=count_text
            )
    if summary.packing:
        packing = summary.packing
        pictures["packing_bar"] = share_bar(
            [
                ("real tokens", "tokens", packing.real_tokens),
                ("special tokens", "gained", packing.special_tokens),
                ("padding", "before", packing.pad_tokens),
            ]
        )
    if summary.shuffle:
        pictures["mixing_pictures"] = [(one.format, heat_map(one.records)) for one in summary.shuffle.mixing]
    return pictures
