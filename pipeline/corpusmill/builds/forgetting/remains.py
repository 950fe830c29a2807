"""Remains of forgotten documents: the stretches that only they have, and the files and objects that contain them.

Every object of a store is streamed once, and searched meanwhile. And which documents of a request the last build has,
before anybody waits for the next one to forget them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, cast

import orjson

from corpusmill.builds.forgetting.files import strings_in
from corpusmill.builds.forgetting.finding import Finder, Stretch, stretches_of
from corpusmill.builds.forgetting.staying import own_stretches, texts_after_index
from corpusmill.builds.graph import open_build
from corpusmill.config import FORGOTTEN, DatasetConfig, ForgetConfig, work_of
from corpusmill.dedup.stages.annotating import PAIRS
from corpusmill.documents.text_shard import FIELDS_FILE, TEXT_FILE, TextShard, open_text_shard
from corpusmill.engine.ledger import DamagedStepError
from corpusmill.engine.ledger.lock import LOCK_NAME
from corpusmill.engine.runs import delivered_plans
from corpusmill.engine.stage import Stage, StepMissingError
from corpusmill.engine.work import Input
from corpusmill.errors import visible
from corpusmill.report.figures import counted
from corpusmill.sources.parts import places_of
from corpusmill.sources.stages.index import compared_stage
from corpusmill.steps.decisions import Sorted, key_of
from corpusmill.steps.stages.applying import COPY
from corpusmill.steps.stages.decisions import document_keys, left_out_of
from corpusmill.steps.stages.filter import copies_of
from corpusmill.steps.takedowns import LOG, Key, keys_in_log
from corpusmill.storage import Store, StoredFile, Wanted, open_once, open_store
from corpusmill.storage.s3 import S3Store
from corpusmill.tokens.stages.tokenize import configured_tokenizer

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


# Outputs of stages that hold the sources' texts, and other fields of their documents.
HOLDS_SOURCES = {"download": ("files/*",), "index": (TEXT_FILE, FIELDS_FILE)}


@dataclass(frozen=True)
class ForgottenPlace:
    """Where a forgotten document was: source file, line from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file} line {self.line:,}"


@dataclass(frozen=True)
class Search:
    """What to search for. `unsearchable`: documents without text of their own, or whose text is no longer known."""

    places: tuple[ForgottenPlace, ...]
    stretches: tuple[Stretch, ...]
    documents: int
    unsearchable: int

    def in_files(self, paths: Iterable[Path]) -> Iterator[tuple[Path, list[ForgottenPlace]]]:
        """The files that contain a stretch, with its documents. Raises as in_stream does."""
        for path in paths:
            with path.open("rb") as file:
                if places := self.in_stream(file, where=path):
                    yield path, places

    def in_stream(self, file: BufferedReader, *, where: object) -> list[ForgottenPlace]:
        """The documents whose stretches a file contains. OSError; UnsearchableError for a damaged file."""
        strings = strings_in(file, self._finder, where=where)
        return [self.places[number] for number in sorted({self._by_form[string] for string in strings})]

    @cached_property
    def _by_form(self) -> dict[bytes, int]:
        return {form: stretch.document for stretch in self.stretches for form in stretch.forms}

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self._by_form)


def search_for(build: Build) -> Search:
    """The stretches of all documents that a build forgot, without those that another document has, too."""
    tokenizer = configured_tokenizer(build.config)
    places: list[ForgottenPlace] = []
    stretches: list[Stretch] = []
    lost = 0
    gone = dict(forgotten_documents(build))
    for shard, ordinals in gone.items():
        try:
            text = open_text_shard(build.folder("index", shard))
        except DamagedStepError:  # reclaimed by an earlier purge
            lost += len(ordinals)
            continue
        place = places_of(build, shard, text)
        for ordinal in ordinals:
            source, line = place(ordinal)
            stretches += stretches_of(len(places), text.document_bytes(ordinal), tokenizer)
            places.append(ForgottenPlace(source, line + 1))
    own = own_stretches(build, stretches, gone)
    documents = lost + len(places)
    return Search(tuple(places), own, documents, documents - len({stretch.document for stretch in own}))


def forgotten_documents(build: Build) -> Iterator[tuple[str, list[int]]]:
    """(shard, ordinals in its index) of the documents that were forgotten, copies too, of shards that held any."""
    for shard in build.units("join"):
        reasons = left_out_of(Input(build, ("join", shard)))
        copies = copies_of(Input(build, ("copies", shard))) if build.units("copies") else {}
        ordinals = [document for document, reason in {**copies, **reasons}.items() if reason in {FORGOTTEN, COPY}]
        if ordinals:
            yield shard, sorted(ordinals)


def kept_in_spite(build: Build) -> Iterator[ForgottenPlace]:
    """Documents on the list that are in the texts of the exports, or were compared for near-duplicates, which
    `near_duplicates/pairs.jsonl` names, and those and their copies in texts of any stage after index: there must be
    none.
    """
    forget, decisions = build.config.forget, Sorted(build.folder("decisions", FORGOTTEN))
    assert forget is not None
    gone = dict(forgotten_documents(build))
    for shard in build.units("index"):
        text: TextShard = open_text_shard(build.folder(compared_stage(build, shard), shard))
        place = places_of(build, shard, text)
        keys = document_keys(text, place, by_id=isinstance(forget.key, str))
        found = {*map(place, (decisions.find(keys) >= 0).nonzero()[0].tolist())}
        for later, ordinals in texts_after_index(build, shard, gone[shard]) if shard in gone else ():
            found.update(map(places_of(build, shard, later), ordinals))
        for source, line in sorted(found):
            yield ForgottenPlace(source, line + 1)


def files_of_build(build: Build) -> Iterator[Path]:
    """All files that steps of a build wrote, except those of stages that read sources or references."""
    stages: list[Stage] = [build.graph[name] for name in build.graph.names if name not in HOLDS_SOURCES]
    for stage in (stage for stage in stages if not stage.common):
        for unit in build.units(stage.name):
            yield from files_below(build.step_folder(stage.name, unit))


def files_below(folder: Path) -> Iterator[Path]:
    """All files below a folder except locks; links are not followed."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name != LOCK_NAME:
            yield path


SHOWN = 5


@dataclass(frozen=True)
class Requested:
    """The documents of a request. `known` is False if `unmatched` is not certain: nothing was built, or not all of the
    last build's ids can be read. `groups`: the groups of near-duplicates that lose the document that is kept.
    """

    matched: tuple[Key, ...]
    unmatched: tuple[Key, ...]
    known: bool
    groups: int = 0

    @property
    def is_failure(self) -> bool:
        """Whether no document is meant."""
        return self.known and not self.matched

    def __str__(self) -> str:
        if not self.known:
            return "the next build says which of them match a document"
        wanted = len(self.matched) + len(self.unmatched)
        text = f"{len(self.matched):,} of {wanted:,} match a document of the last build"
        if self.unmatched:
            names = [" line ".join(map(str, key)) for key in self.unmatched[:SHOWN]]
            more = f" and {len(self.unmatched) - SHOWN:,} more" if len(self.unmatched) > SHOWN else ""
            text += f"; not {visible(', '.join(names))}{more}"
        if self.groups:
            text += f"; the next build decides {counted(self.groups, 'group')} of near-duplicates again"
        return text


def match_requests(config: DatasetConfig, forget: ForgetConfig, wanted: Sequence[Key]) -> Requested:
    """Look for documents among those that the last build indexed; the log's documents match, too."""
    work = work_of(config)
    asked = {key_of(*key) for key in wanted}
    rest, groups = asked - {key_of(*key) for key in keys_in_log(forget, work / LOG)}, 0
    plans = delivered_plans(work)
    known = bool(plans) or not rest
    try:
        for build in map(open_build, plans[:1]):
            for shard in build.units("index"):
                text = open_text_shard(build.folder("index", shard))
                place = places_of(build, shard, text)
                rest.difference_update(document_keys(text, place, by_id=isinstance(forget.key, str)))
            groups = _groups_of(build, asked, by_id=isinstance(forget.key, str))
    except (DamagedStepError, StepMissingError):  # reclaimed by a purge, or built by another version
        known = not rest
    keys = list(dict.fromkeys(wanted))
    matched, unmatched = (tuple(key for key in keys if (key_of(*key) in rest) == lacks) for lacks in (False, True))
    return Requested(matched, unmatched, known, groups)


def _groups_of(build: Build, asked: set[bytes], *, by_id: bool) -> int:
    """How many documents of a build that near-duplicates were left out for are asked for."""
    led = set()
    for shard in build.units("near_duplicates"):
        with build.opened("near_duplicates", shard, PAIRS) as folder, (folder / PAIRS).open("rb") as pairs:
            for pair in map(orjson.loads, pairs):
                place = pair["kept_file"], pair["kept_line"]
                if "kept_reference" not in pair and key_of(*([pair["kept_id"]] if by_id else place)) in asked:
                    led.add(place)
    return len(led)


READ_BYTES = 1 << 20


@dataclass(frozen=True)
class SearchedObject:
    """An object, named below the searched folder, and the forgotten documents whose text it contains."""

    name: str
    size_bytes: int
    places: list[ForgottenPlace]


def search_store(
    folder: str, endpoint_url: str | None, search: Search, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[SearchedObject]:
    """Search all objects below a folder in a bucket or on the Hub whose names are `wanted`, in order of name.

    Each is checked against the store's own checksum, or read twice where there is none. Raises as the store does,
    SourceError for an object that changes meanwhile, and UnsearchableError for a damaged one.
    """
    store = open_store(folder, endpoint_url=endpoint_url)
    for file in sorted(store.list_files(), key=lambda file: file.name):
        if wanted(file.name):
            yield SearchedObject(file.name, file.size_bytes, search_object(store, file, search))


def search_object(store: Store, file: StoredFile, search: Search) -> list[ForgottenPlace]:
    """The forgotten documents whose text one object contains. Raises as search_store does."""
    with open_once(store, Wanted(file.name, file.size_bytes, file.identity)) as stream:
        places = search.in_stream(cast(BufferedReader, stream), where=f"{store.folder}/{file.name}")
        while stream.read(READ_BYTES):  # bytes behind an archive's end are part of the checksum
            pass
    return places


def kept_by_bucket(folder: str, endpoint_url: str | None) -> str:
    """Why a bucket may still have objects that were deleted; "" if it has not."""
    store = open_store(folder, endpoint_url=endpoint_url)
    if not isinstance(store, S3Store):
        return "whether the bucket keeps deleted objects is not known: look for object versions and soft delete"
    return "the bucket keeps versions of objects, deleted ones, too" if store.keeps_versions() else ""
