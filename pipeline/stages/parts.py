"""Places in the user's own files: a source file may have been cut into parts, or lines drawn from it for a sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build

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
    import json

    from corpusmill.documents.text_shard import SOURCES_FILE

    with build.opened(stage, unit, SOURCES_FILE) as folder:
        return {source["path"]: source["lines"] for source in json.loads((folder / SOURCES_FILE).read_bytes())}


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


def lines_before_settings(build: Build, shard: str) -> dict[str, dict[str, int]]:
    """The part of a stage's settings on which the places of its documents depend; empty without cut files."""
    before = lines_before(build, shard)
    return {"lines_before": before} if before else {}


def places_of(
    build: Build, shard: str, text: TextShard, before: Mapping[str, int] | None = None
) -> Callable[[int], FilePlace]:
    """A function from an ordinal of a text shard of `shard`, of any stage, to its document's place.

    `before`: the `lines_before`, which a step has in its settings.
    """
    from corpusmill.sources.sampled import read_sampled

    if sampled := read_sampled(build.work):
        return lambda ordinal: sampled.place_in_whole(*text.source_of(ordinal))
    before = lines_before(build, shard) if before is None else before
    whole = {file.name: file.part.of for file in build.plan.shards[int(shard)] if file.part}

    def place(ordinal: int) -> FilePlace:
        source, line = text.source_of(ordinal)
        return whole.get(source, source), line + before.get(source, 0)

    return place
