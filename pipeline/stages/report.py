"""Report: what happened, for people: `report.html` and `summary.json`.

Made anew at every run, because it states seconds.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.ledger import Outcome
from pipeline.stages.stage import Stage, every

if TYPE_CHECKING:
    from pipeline.stages.build import Build

log = logging.getLogger(__name__)

UNIT = "report"
HTML, SUMMARY = "report.html", "summary.json"


def _inputs(build: Build, _unit: str) -> list[tuple[str, str]]:
    return every(build, "upload")


def _run(build: Build, _unit: str, folder: Path) -> Outcome:
    from pipeline.report.html import render_html
    from pipeline.report.summary import to_json
    from pipeline.stages.summarize import summarize

    summary = summarize(build)
    (folder / SUMMARY).write_text(to_json(summary), encoding="utf-8")
    (folder / HTML).write_text(render_html(summary), encoding="utf-8")
    for one in summary.shuffle.warnings if summary.shuffle else ():
        log.warning(
            "the shuffled order is unlike what chance gives: %s is %.5f, expected %.5f ± %.5f (significance %g)",
            *(one.name, one.measured, one.ideal, one.tolerance, summary.shuffle.significance if summary.shuffle else 0),
        )
    return Outcome(counts={"checks": len(summary.checks), "bytes_read": 0})


STAGE = Stage(
    "report",
    units=lambda _build: [UNIT],
    inputs=_inputs,
    settings=lambda _build, _unit: {},
    run=_run,
    reuse=False,
)
