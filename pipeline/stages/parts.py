"""Source files that were cut into parts: the shards that hold the parts, and their lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def parts_of(build: Build, name: str) -> list[tuple[int, str]]:
    """(shard, name of the part) of every part of a file that was cut, in order."""
    files = [(number, file) for number, files in enumerate(build.plan.shards) for file in files]
    return [(number, file.name) for number, file in files if file.part and file.part.of == name]


def lines_of(build: Build, shard: int, source: str) -> int:
    """Lines of one source of a shard, rejected ones included."""
    import json

    from corpusmill.documents.text_shard import SOURCES_FILE

    sources = json.loads((build.folder("index", f"{shard:05d}", SOURCES_FILE) / SOURCES_FILE).read_bytes())
    return next(int(part["lines"]) for part in sources if part["path"] == source)


def shards_before(build: Build, shard: int) -> list[int]:
    """The other shards that hold earlier parts of this shard's files."""
    parts = [file for file in build.plan.shards[shard] if file.part]
    earlier = {number for file in parts if file.part for number, _ in parts_of(build, file.part.of) if number < shard}
    return sorted(earlier)


def file_of_part(build: Build, shard: int, source: str) -> tuple[str, int]:
    """(name of the file, lines before the part) of a source of a shard, which may be a part of a file."""
    file = next(part for part in build.plan.shards[shard] if part.name == source)
    if file.part is None:
        return source, 0
    earlier = parts_of(build, file.part.of)[: file.part.number]
    return file.part.of, sum(lines_of(build, number, part) for number, part in earlier)
