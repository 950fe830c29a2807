"""Report: writes `report.html`, `summary.json`, and `shards.json` (see report/shards.py); and what is announced of a
finished build.

It runs every time, because it states seconds. A run whose report is written has delivered (runs.py), so older versions
may be removed then (retention.py). The receipt's counts are the headline figures, so a list of many builds reads only
receipts.

An announcement is plain values: counts, the version and a digest for each format; and origin and location in the names
of OpenLineage (https://openlineage.io/docs/spec/naming): the namespace of a store is its scheme and bucket, the name is
the path in it; files of a machine have the namespace `file`.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import FORGOTTEN, absolute, dataset_folder
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.runs import mark_delivered
from corpusmill.engine.stage import EVERY_OTHER, Recount, Stage, whole
from corpusmill.engine.work import EveryTime
from corpusmill.fingerprint import fingerprint
from corpusmill.lazy import lazily
from corpusmill.report.facts import to_json
from corpusmill.report.shards import SHARDS
from corpusmill.report.summary import from_json
from corpusmill.shuffle.stages.budget import shown_total
from corpusmill.sources.parts import lines_of
from corpusmill.steps.stages.decisions import decisions_called, unmatched_rows
from corpusmill.upload.stages.description import version_of
from corpusmill.upload.stages.manifest import UNIT as MANIFEST_UNIT
from corpusmill.upload.stages.manifest import dataset_files, dataset_version
from corpusmill.upload.stages.retention import keep_newest

with lazily:
    from corpusmill.report import html
    from corpusmill.steps import takedowns
    from corpusmill.upload.stages import summarize


if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import SourceFile
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


def announcement(build: Build) -> dict[str, Any]:
    """Counts of the build and, by format, one digest over the names and sha256 of its files."""
    by_format: dict[str, dict[str, str]] = {}
    for name, _, sha256, _ in dataset_files(build):
        by_format.setdefault(name.split("/")[0], {})[name] = sha256
    removing = build.config.dedup.mode == "remove"
    return {
        "version": dataset_version(build),
        "shards": len(build.plan.shards),
        "source_bytes": build.plan.source_bytes(),
        "documents": build.total("tokenize", "documents_out"),
        "text_bytes": build.total("tokenize", "text_bytes_encoded"),
        "removed_bytes": build.total("union", "removed_bytes") if removing else 0,
        "tokens": shown_total(build, "tokens"),
        "digests": {kind: fingerprint(files) for kind, files in sorted(by_format.items())},
        "plan": build.plan_folder.name,
    }


def provenance(build: Build) -> dict[str, list[dict[str, Any]]]:
    """`inputs`: the folders of the source files, with files and bytes as stored, and lines (rows
    of Parquet), malformed ones included. `outputs`: the dataset at each destination, with its version, documents, files
    and bytes.
    """
    files: Counter[str] = Counter()
    size_bytes: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for shard, of_shard in enumerate(build.plan.shards):
        for file in of_shard:
            files[_folder(file)] += file.part is None or file.part.number == 0
            size_bytes[_folder(file)] += file.size_bytes
        folders = {_folder(file) for file in of_shard}
        if len(folders) == 1:  # one folder, as in nearly all shards: no file has to be read
            lines[folders.pop()] += build.receipt("index", f"{shard:05d}").counts["lines"]
        else:
            for file in of_shard:
                lines[_folder(file)] += lines_of(build, shard, file.name)
    manifest = build.receipt("manifest", MANIFEST_UNIT).counts
    delivered = {
        "version": dataset_version(build),
        "documents": shown_total(build, "documents_out"),
        "files": manifest["files"],
        "bytes": manifest["dataset_bytes"],
    }
    places = [
        dataset_folder(absolute(destination.path), build.config.name) for destination in build.config.destinations
    ]
    return {
        "inputs": [
            {**_named(folder), "files": files[folder], "bytes": size_bytes[folder], "lines": lines[folder]}
            for folder in sorted(files)
        ],
        "outputs": [{**_named(place), **delivered} for place in places],
    }


def _folder(file: SourceFile) -> str:
    whole = file.part.of if file.part else file.name
    return file.location.removesuffix(whole).rstrip("/")


def _named(place: str) -> dict[str, str]:
    scheme, separator, rest = place.partition("://")
    if not separator:
        return {"namespace": "file", "name": place}
    bucket, _, path = rest.partition("/")
    return {"namespace": f"{scheme}://{bucket}", "name": path or "/"}
