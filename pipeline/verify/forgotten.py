"""Documents on the list of `forget`: none may be in the dataset, and no stretch of their texts in any format.

By id, or file and line, the texts are asked from which all formats are made; that those hold these texts and no others
is what the other checks show. Independent of all that, stretches of the forgotten texts are looked for in every file
of the build, and of the version in folders that are destinations.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpusmill.config import absolute
from corpusmill.engine.build import Build
from corpusmill.forgetting.remains import files_below, files_of_build, kept_in_spite, search_for
from corpusmill.stages.description import version_of
from corpusmill.stages.manifest import UNIT
from corpusmill.storage import is_local
from corpusmill.verify.finding import DAMAGE, ELSEWHERE, Finding, finding_of

IN_SPITE = "a document that must be forgotten is in the dataset"


def check_forgotten(build: Build) -> list[Finding]:
    """What is left of documents that were to be forgotten. Damage that other checks name is left to them."""
    if build.config.forget is None:
        return []
    try:
        return list(_remains(build))
    except ELSEWHERE:
        return []
    except DAMAGE as error:
        return [finding_of(error, "it is unknown whether forgotten documents are gone", build.work)]


def _remains(build: Build) -> Iterator[Finding]:
    for place in kept_in_spite(build):
        yield Finding(IN_SPITE, str(place), "no document of the list", "its id, or its file and line")
    files = [*files_of_build(build), *_delivered(build)]
    for path, places in search_for(build).in_files(files):
        named = ", ".join(map(str, places[:3]))
        yield Finding(IN_SPITE, str(path), "nothing of its text", f"text of {len(places):,} documents: {named}")


def _delivered(build: Build) -> Iterator[Path]:
    """The files of the version in folders that are destinations."""
    manifest = build.find("manifest", UNIT)
    for destination in build.config.destinations:
        if manifest and is_local(folder := absolute(destination.path)):
            yield from files_below(Path(folder) / build.config.name / version_of(manifest))
