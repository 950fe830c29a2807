"""Places in the user's own files: a source file may have been cut into parts, or lines drawn from it for a sample."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from corpusmill.engine.work import Identity, Sources
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.documents import text_shard


if TYPE_CHECKING:
    from corpusmill.documents.text_shard import IndexedSource, SourceEntry, TextShard
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import SourceFile

FilePlace = tuple[str, int]
"""(name of a source file, 0-based line in it)."""


def parts_of(build: Build, name: str) -> list[tuple[int, str]]:
    """(shard, name of the part) of every part of a file that was cut, in order."""
    return build.remembered(("parts",), lambda: _parts(build)).get(name, [])


def _parts(build: Build) -> dict[str, list[tuple[int, str]]]:
    parts: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for number, files in enumerate(build.plan.shards):
        for file in files:
            if file.part:
                parts[file.part.of].append((number, file.name))
    return dict(parts)


def lines_of(build: Build, shard: int, source: str) -> int:
    """Lines of one source of a shard, rejected ones included."""
    if len(build.plan.shards[shard]) == 1:
        return build.receipt("index", f"{shard:05d}").counts["lines"]
    return lines_by_source(build, "index", f"{shard:05d}")[source]


def lines_by_source(build: Build, stage: str, unit: str) -> dict[str, int]:
    """Lines of each source of a step with a text shard, rejected ones included."""
    with build.opened(stage, unit, text_shard.SOURCES_FILE) as folder:
        return {
            source["path"]: source["lines"] for source in json.loads((folder / text_shard.SOURCES_FILE).read_bytes())
        }


def file_of_part(build: Build, shard: int, source: str) -> FilePlace:
    """(name of the file, lines before the part) of a source of a shard, which may be a part of a file."""
    file = next(part for part in build.plan.shards[shard] if part.name == source)
    if file.part is None:
        return source, 0
    earlier = parts_of(build, file.part.of)[: file.part.number]
    return file.part.of, sum(lines_of(build, number, part) for number, part in earlier)


def lines_before(build: Build, shard: str) -> dict[str, int]:
    """Name of each part in a shard -> the lines that its file has before it."""
    names = [file.name for file in build.plan.shards[int(shard)] if file.part]
    return {name: file_of_part(build, int(shard), name)[1] for name in names}


class PlacedSettings(Identity, frozen=True, kw_only=True):
    """Settings of a stage whose output names documents by their places in the user's own files.

    `lines_before`: see the function; UNSET without cut files.
    """

    lines_before: dict[str, int] | UnsetType = UNSET


def shard_sources(build: Build, shard: str) -> list[Sources]:
    """The source files of a shard."""
    place_of = partial(file_of_part, build, int(shard))
    return [Sources(build.plan.shards[int(shard)], build.config.source.endpoint, place_of=place_of)]


def indexed_source(sources: Sources, text: TextShard, source: SourceEntry) -> IndexedSource:
    """What a text shard holds of one of its sources, for a reader of that source whose messages name the user's file.

    Which line of the file a part's first one is depends on the parts before it, and is looked up for a message alone.
    """
    part = sources.parts[source.path]

    def place_of(line: int) -> FilePlace:
        assert sources.place_of is not None
        file, before = sources.place_of(source.path)
        return file, before + line

    indexed = text.indexed(source)
    return replace(indexed, path=part.of, place_of=place_of) if part else indexed


def places_of(build: Build, shard: str, text: TextShard) -> Callable[[int], FilePlace]:
    """A function from an ordinal of a text shard of `shard`, of any stage, to its document's place."""
    return places_in(build.plan.shards[int(shard)], text, lines_before(build, shard))


def places_in(
    files: Sequence[SourceFile], text: TextShard, before: Mapping[str, int] | UnsetType
) -> Callable[[int], FilePlace]:
    """The same for a text shard of these files; `before`: their `lines_before`."""
    of_parts = before or {}
    whole = {file.name: file.part.of for file in files if file.part}
    drawn = {file.name: file.drawn for file in files if file.drawn}

    def place(ordinal: int) -> FilePlace:
        source, line = text.source_of(ordinal)
        if source in drawn:
            return drawn[source].file, drawn[source].numbers[line]
        return whole.get(source, source), line + of_parts.get(source, 0)

    return place
