"""Report: writes `report.html`, `summary.json`, and `shards.json` (see report/shards.py).

It runs every time, because it states seconds. A run whose report is written has delivered (runs.py), so older versions
may be removed then (retention.py). The receipt's counts are the headline figures, so a list of many builds reads only
receipts.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import FORGOTTEN
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.runs import mark_delivered
from corpusmill.engine.stage import EVERY_OTHER, Recount, Stage, whole
from corpusmill.engine.work import EveryTime
from corpusmill.fingerprint import fingerprint
from corpusmill.lazy import lazily
from corpusmill.report.facts import to_json
from corpusmill.report.shards import SHARDS
from corpusmill.report.summary import from_json
from corpusmill.steps.stages.decisions import decisions_called, unmatched_rows
from corpusmill.upload.stages.description import version_of
from corpusmill.upload.stages.manifest import UNIT as MANIFEST_UNIT
from corpusmill.upload.stages.manifest import dataset_version
from corpusmill.upload.stages.retention import keep_newest

with lazily:
    from corpusmill.report import html
    from corpusmill.steps import takedowns
    from corpusmill.upload.stages import summarize


if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.build import Build
    from corpusmill.report.summary import BuildSummary

log = logging.getLogger(__name__)

UNIT = "report"
HTML, SUMMARY = "report.html", "summary.json"


def _inputs(build: Build, _unit: str) -> list[tuple[str, str]]:
    return whole(build, "upload")


def _run(build: Build, _unit: str, folder: Path) -> Outcome:
    summary = summarize.summarize(build)
    (folder / SHARDS).write_text(to_json(summarize.shard_table(build)), encoding="utf-8")
    (folder / SUMMARY).write_text(to_json(summary), encoding="utf-8")
    (folder / HTML).write_text(html.render_html(summary), encoding="utf-8")
    for warning in summary.shuffle.warnings if summary.shuffle else ():
        log.warning(
            "the shuffled order is improbable: %s is %.5f, expected %.5f ± %.5f (significance %g)",
            *(
                warning.name,
                warning.measured,
                warning.ideal,
                warning.tolerance,
                summary.shuffle.significance if summary.shuffle else 0,
            ),
        )
    mark_delivered(build.plan_folder, dataset_version(build))
    if build.config.forget and not summary.latest_stays:
        files = [file.stored() for file in decisions_called(build, FORGOTTEN)[1]]
        lacking = unmatched_rows(build, FORGOTTEN)
        takedowns.note_gone(build.config.forget, files, build.work / takedowns.LOG, dataset_version(build), lacking)
    keep_newest(build)
    return Outcome(counts=headline(summary), details=listed_details(build.config, dataset_version(build), summary))


def listed_details(config: DatasetConfig, version: str, summary: BuildSummary) -> dict[str, Any]:
    """What a list of builds shows besides the figures.

    `settings` is a digest, equal for builds with the same processing, whose figures can be compared.
    """
    settings = config.model_dump(
        mode="json", exclude={"dag", "destinations", "forget", "keep_versions", "reclaim", "work_folder"}
    )
    del settings["source"]["paths"]
    return {"version": version, "settings": fingerprint(settings), "moved_latest": not summary.latest_stays}


def headline(summary: BuildSummary) -> dict[str, int]:
    """The figures of a build that a list of builds shows."""
    duplicates = summary.duplicates
    return {
        "checks": len(summary.checks),
        "failed_checks": len(summary.failed_checks),
        "shards": max((stage.units_total for stage in summary.stages if stage.stage == "index"), default=0),
        "source_files": summary.source_files,
        "source_bytes": summary.source_bytes,
        "documents": summary.last_out("documents") or 0,
        "text_bytes": summary.first_into("text_bytes") or 0,
        "duplicate_bytes": duplicates.duplicate_bytes if duplicates else 0,
        "tokens": summary.first_into("tokens") or 0,
        "output_bytes": sum(export.size_bytes for export in summary.exports),
        "bytes_read": 0,
    }


def _recount(build: Build, _unit: str, folder: Path) -> Recount:
    summary = from_json((folder / SUMMARY).read_bytes())
    manifest = build.find("manifest", MANIFEST_UNIT)  # a missing one is a separate finding
    details = listed_details(build.config, version_of(manifest), summary) if manifest else {}
    return Recount(headline(summary), details, complete=manifest is not None)


STAGE = Stage(
    "report",
    version=4,
    after=EVERY_OTHER,
    units=lambda _build: [UNIT],
    work=EveryTime(_inputs, lambda _build, _unit: {}, _run),
    recount=_recount,
)
