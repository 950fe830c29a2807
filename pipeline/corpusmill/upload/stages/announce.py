"""The announcement of a finished build, in a few lines of JSON: counts, the version, a digest for each format."""

from __future__ import annotations

from typing import Any

from corpusmill.engine.build import Build
from corpusmill.fingerprint import fingerprint
from corpusmill.shuffle.stages.budget import shown_total
from corpusmill.upload.stages.manifest import dataset_files, dataset_version


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
