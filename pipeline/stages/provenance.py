"""Origin and location of a finished build's dataset, in the names of OpenLineage: plain values.

Source: OpenLineage's naming conventions (https://openlineage.io/docs/spec/naming): the namespace of a store is its
scheme and bucket, the name is the path in it; files of a machine have the namespace `file`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from corpusmill.config import absolute, dataset_folder
from corpusmill.stages.budget import shown_total
from corpusmill.stages.manifest import UNIT, dataset_version

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def provenance(build: Build) -> dict[str, list[dict[str, Any]]]:
    """`inputs`: the folders below which the source files lie, with files and bytes as they are stored. `outputs`: the
    dataset at each destination, with its version, documents, files and bytes.
    """
    files: Counter[str] = Counter()
    size_bytes: Counter[str] = Counter()
    for file in build.plan.files():
        whole = file.part.of if file.part else file.name
        folder = file.location.removesuffix(whole).rstrip("/")
        files[folder] += file.part is None or file.part.number == 0
        size_bytes[folder] += file.size_bytes
    manifest = build.receipt("manifest", UNIT).counts
    delivered = {
        "version": dataset_version(build),
        "documents": shown_total(build, "documents_out"),
        "files": manifest["files"],
        "bytes": manifest["dataset_bytes"],
    }
    places = [dataset_folder(absolute(one.path), build.config.name) for one in build.config.destinations]
    return {
        "inputs": [{**_named(folder), "files": files[folder], "bytes": size_bytes[folder]} for folder in sorted(files)],
        "outputs": [{**_named(place), **delivered} for place in places],
    }


def _named(place: str) -> dict[str, str]:
    scheme, separator, rest = place.partition("://")
    if not separator:
        return {"namespace": "file", "name": place}
    bucket, _, path = rest.partition("/")
    return {"namespace": f"{scheme}://{bucket}", "name": path or "/"}
