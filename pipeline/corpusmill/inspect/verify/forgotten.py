"""Checks that no document on the list of `forget` is in the dataset, and no span of their texts in any format.

Documents are searched by id, or file and line, in the texts from which all formats are made; other checks show that
the formats hold exactly these texts. Independently, spans of the forgotten texts are searched for in every file of the
build, and of its version at every destination. Objects in buckets and on the Hub are streamed for that, once each.
A file that could not be searched is a finding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from corpusmill.builds.forgetting.buckets import search_object
from corpusmill.builds.forgetting.remains import ForgottenPlace, Search, files_of_build, kept_in_spite, search_for
from corpusmill.config import absolute, dataset_folder, version_folder
from corpusmill.engine.build import Build
from corpusmill.errors import CorpusmillError
from corpusmill.inspect.verify.finding import DAMAGE, ELSEWHERE, Finding, finding_of
from corpusmill.report.figures import counted
from corpusmill.storage import StoredFile, open_store
from corpusmill.upload.stages.description import version_of
from corpusmill.upload.stages.manifest import UNIT

IN_SPITE = "a document that must be forgotten is in the dataset"
UNKNOWN = "it is unknown whether forgotten documents are gone"


def check_forgotten(build: Build) -> list[Finding]:
    """Remains of documents that must be forgotten. Damage is left to the checks that report it."""
    if build.config.forget is None:
        return []
    try:
        search = search_for(build)
        findings = [*_remains(build, search)]
        manifest = build.find("manifest", UNIT)
    except ELSEWHERE:
        return []
    except DAMAGE as error:
        return [finding_of(error, UNKNOWN, build.work)]
    if manifest is None:
        return findings  # without its version the dataset's location is unknown; the missing step is a finding
    for destination in build.config.destinations:
        folder = version_folder(dataset_folder(absolute(destination.path), build.config.name), version_of(manifest))
        findings += _at_destination(folder, destination.endpoint_url, search)
    return findings


def _remains(build: Build, search: Search) -> Iterator[Finding]:
    for place in kept_in_spite(build):
        yield Finding(IN_SPITE, str(place), "no document of the list", "its id, or its file and line")
    for path, places in search.in_files(files_of_build(build)):
        yield _text_of(places, path)


def _at_destination(folder: str, endpoint_url: str | None, search: Search) -> Iterator[Finding]:
    """Remains in the files of a version at a destination; if one cannot be read, the number of files not searched."""
    left: deque[StoredFile] = deque()
    try:
        store = open_store(folder, endpoint_url=endpoint_url)
        left += store.list_files()
        while left:
            if places := search_object(store, left[0], search):
                yield _text_of(places, f"{folder}/{left[0].name}")
            left.popleft()
    except DAMAGE as error:
        why = error.what if isinstance(error, CorpusmillError) else type(error).__name__
        got = f"{why}; {counted(len(left), 'file')} not searched" if left else f"{why}; nothing searched"
        yield Finding(UNKNOWN, f"{folder}/{left[0].name}" if left else folder, "every file searched", got)


def _text_of(places: list[ForgottenPlace], where: object) -> Finding:
    named = ", ".join(map(str, places[:3]))
    return Finding(IN_SPITE, str(where), "nothing of its text", f"text of {len(places):,} documents: {named}")
