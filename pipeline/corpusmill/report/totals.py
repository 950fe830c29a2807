"""The headline figures: the tiles of the HTML page, the totals on the terminal."""

from __future__ import annotations

from typing import NamedTuple

from corpusmill.report.figures import bytes_text, count_text, counted, grouped, requests_text, seconds_text, share_text
from corpusmill.report.summary import BuildSummary


class Total(NamedTuple):
    """A figure as people read it, the exact figure, and one more fact."""

    name: str
    figure: str
    exact: str
    more: str


def totals(summary: BuildSummary) -> list[Total]:
    """The totals that `summary` knows, from the sources to the outputs; then the work."""
    more = "; ".join(filter(None, (f"{bytes_text(summary.source_bytes)} as delivered", summary.other_files)))
    known = [Total("Source files", grouped(summary.source_files), f"{summary.source_bytes:,} bytes", more)]
    documents_in, documents = summary.first_into("documents"), summary.last_out("documents")
    if documents is not None and documents_in is not None:
        more = f"{grouped(documents)} of {grouped(documents_in)}"
        known.append(Total("Documents", count_text(documents), grouped(documents), more))
    text_in, text = summary.first_into("text_bytes"), summary.last_out("text_bytes")
    if text is not None and text_in is not None:
        more = f"{share_text(text, text_in)} of {bytes_text(text_in)}"
        known.append(Total("Text kept", bytes_text(text), f"{text:,} bytes", more))
    tokens = summary.first_into("tokens")
    if tokens is not None:
        padding = f"{share_text(summary.packing.pad_tokens, summary.packing.slots)} padding" if summary.packing else ""
        known.append(Total("Tokens", count_text(tokens), grouped(tokens), padding or "without special tokens"))
    if summary.exports:
        size_bytes = sum(export.size_bytes for export in summary.exports)
        files = sum(len(export.files) for export in summary.exports)
        more = f"{counted(files, 'file')}, {counted(len(summary.exports), 'format')}"
        known.append(Total("Outputs", bytes_text(size_bytes), f"{size_bytes:,} bytes", more))
    if summary.stages:
        seconds = sum(stage.seconds for stage in summary.stages)
        peak = max(stage.peak_rss_bytes for stage in summary.stages)
        known.append(Total("Work", seconds_text(seconds), f"{seconds:,.3f} s", f"at most {bytes_text(peak)} memory"))
    moved = sum(stage.wire_bytes for stage in summary.stages)
    if moved:
        requests = sum(stage.requests for stage in summary.stages)
        retries = sum(stage.retries for stage in summary.stages)
        more = requests_text(requests, retries, sum(stage.without_checksum for stage in summary.stages))
        known.append(Total("Over the wire", bytes_text(moved), f"{moved:,} bytes", more))
    return known
