"""What is announced of a finished build, plain values: counts, the version and a digest for each format; and its origin
and location in the names of OpenLineage.

Source: OpenLineage's naming conventions (https://openlineage.io/docs/spec/naming): the namespace of a store is its
scheme and bucket, the name is the path in it; files of a machine have the namespace `file`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from corpusmill.config import absolute, dataset_folder
from corpusmill.fingerprint import fingerprint
from corpusmill.shuffle.stages.budget import shown_total
from corpusmill.sources.parts import lines_of
from corpusmill.upload.stages.manifest import UNIT, dataset_files, dataset_version

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import SourceFile


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
    manifest = build.receipt("manifest", UNIT).counts
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
