"""Summary -> one self-contained HTML file: no script, and no font or picture from elsewhere."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined

from corpusmill.report.figures import (
    bytes_text,
    count_text,
    counted,
    decoded_text,
    encoded_text,
    grouped,
    largest_first,
    rate_text,
    requests_text,
    seconds_text,
    share_text,
    sum_text,
)
from corpusmill.report.flow import flow_picture
from corpusmill.report.heat import heat_map
from corpusmill.report.plots import cell_bar, counts_of, power_bars, share_bar, totals_of
from corpusmill.report.step_rows import step_rows
from corpusmill.report.summary import BuildSummary
from corpusmill.report.totals import totals
from corpusmill.report.training import training_flags

LISTED_ROWS = 2000  # longer pages are slow and unread; the JSON summary has all rows
FIGURES = (
    *(bytes_text, count_text, counted, decoded_text, encoded_text, grouped, largest_first),
    *(rate_text, requests_text, seconds_text, share_text, sum_text),
)
PICTURES = (cell_bar, counts_of, heat_map, power_bars, share_bar, totals_of)


@cache
def report_environment(*folders: Path) -> Environment:
    """Templates of this room and of `folders`, with FIGURES and PICTURES; all values are escaped."""
    environment = Environment(
        loader=FileSystemLoader([Path(__file__).parent, *folders]),
        bytecode_cache=_bytecode_cache(Path(__file__).parent / "__pycache__"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    named = {function.__name__: function for function in (*FIGURES, *PICTURES)}
    environment.filters.update(named)
    environment.globals.update(named, listed_rows=LISTED_ROWS)
    environment.globals.update(as_share=lambda share: share_text(share, 1), exactly=lambda value: f"{value:,.10g}")
    return environment


def _bytecode_cache(folder: Path) -> FileSystemBytecodeCache | None:
    """Cache compiled templates beside compiled modules, if those are cached: compiling takes 0.2 s."""
    kept = folder.is_dir() and os.access(folder, os.W_OK) and not sys.dont_write_bytecode
    return FileSystemBytecodeCache(str(folder)) if kept else None


def render_html(summary: BuildSummary) -> str:
    """The whole page. The same summary gives the same text; every name in it is escaped."""
    steps = step_rows(summary.stages)
    rows = [row for step, stages in steps for row in (step, *stages)]
    return (
        report_environment()
        .get_template("report.html")
        .render(
            summary=summary,
            figures=totals(summary),
            flow_picture=flow_picture(summary),
            flags=training_flags(summary),
            count_checks=sorted((check for check in summary.checks if not check.of_content), key=lambda row: row.ok),
            content_checks=summary.content_checks,
            steps=steps,
            most_seconds=max((step.seconds for step, _ in steps), default=0.0),
            most_bytes_per_second=max((stage.bytes_per_second or 0.0 for stage in rows), default=0.0),
            sources=sorted(
                summary.duplicates.by_source_file if summary.duplicates else (),
                key=lambda row: (-row.duplicate_bytes, row.path),
            ),
            quarantined_documents=sum(file.documents for file in summary.quarantine),
        )
    )
