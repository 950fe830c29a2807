"""Remains of forgotten documents: the stretches that only they have, and the files that contain them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.builds.forgetting.files import strings_in
from corpusmill.builds.forgetting.finding import Finder
from corpusmill.builds.forgetting.forms import Stretch, stretches_of
from corpusmill.config import FORGOTTEN
from corpusmill.documents.text_shard import TEXT_FILE, TextShard, open_text_shard
from corpusmill.engine.ledger import DamagedStepError
from corpusmill.engine.ledger.lock import LOCK_NAME
from corpusmill.engine.stage import Stage
from corpusmill.engine.work import Input
from corpusmill.sources.parts import places_of
from corpusmill.sources.stages.index import text_stage
from corpusmill.steps.decisions import Sorted
from corpusmill.steps.stages.copies import COPY, copies_of
from corpusmill.steps.stages.join import document_keys, left_out_of
from corpusmill.tokens.stages.tokenize import configured_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.engine.build import Build

HOLDS_SOURCES = {"download": "files/*", "index": TEXT_FILE}  # outputs of stages that hold the sources' texts


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
    for shard, reasons in forgotten_documents(build):
        try:
            text = open_text_shard(build.folder("index", shard))
        except DamagedStepError:  # reclaimed by an earlier purge
            lost += len(reasons)
            continue
        place = places_of(build, shard, text)
        for ordinal in reasons:
            source, line = place(ordinal)
            stretches += stretches_of(len(places), text.document_bytes(ordinal), tokenizer)
            places.append(ForgottenPlace(source, line + 1))
    shared = _remaining_in(build, {stretch.text for stretch in stretches})
    own = tuple(stretch for stretch in stretches if stretch.text not in shared)
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


def _remaining_in(build: Build, texts: set[bytes]) -> set[bytes]:
    """The texts that also occur in documents that are not forgotten, whether those are kept or dropped for other
    reasons.

    Samples and reports contain excerpts of dropped documents. Texts that were reclaimed cannot be checked.
    """
    finder, remaining, gone = Finder(texts), set[bytes](), dict(forgotten_documents(build))
    for shard in build.units("index"):
        stage = text_stage(build, shard)
        remaining |= finder.find(open_text_shard(build.folder(stage, shard)).text)
        if stage != "index":
            with suppress(DamagedStepError):
                indexed = open_text_shard(build.folder("index", shard))
                for part in _without(indexed, gone.get(shard, [])):
                    remaining |= finder.find(part)
    return remaining


def _without(text: TextShard, gone: list[int]) -> Iterator[NDArray[np.uint8]]:
    """The texts between the documents in `gone` (ordinals, ascending)."""
    begins = text.bounds(0, text.documents).astype(int)
    for before, ordinal in pairwise([-1, *gone, text.documents]):
        yield text.text[begins[before + 1] : begins[ordinal]]


def kept_in_spite(build: Build) -> Iterator[ForgottenPlace]:
    """Documents on the list that are in the texts of the exports: there must be none."""
    forget, decisions = build.config.forget, Sorted(build.folder("decisions", FORGOTTEN))
    assert forget is not None
    for shard in build.units("index"):
        text: TextShard = open_text_shard(build.folder(text_stage(build, shard), shard))
        place = places_of(build, shard, text)
        keys = document_keys(text, place, by_id=isinstance(forget.key, str))
        for ordinal in (decisions.find(keys) >= 0).nonzero()[0].tolist():
            source, line = place(ordinal)
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
