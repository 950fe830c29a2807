"""Finds every record with tokens of a source document, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from corpusmill.decontamination.stages.decontaminate import HITS
from corpusmill.dedup.stages.reference import index_step
from corpusmill.errors import PermanentError
from corpusmill.inspect.lineage.facts import (
    ContaminatedLine,
    DroppedLine,
    Duplicate,
    ItemHit,
    Located,
    RejectedLine,
    Span,
)
from corpusmill.inspect.lineage.occurrences import duplicates, passage
from corpusmill.inspect.lineage.records import holdings
from corpusmill.inspect.lineage.shards import DeduplicatedShard, Shard, Shards, place_of_line
from corpusmill.lazy import lazily
from corpusmill.sources.parts import file_of_part
from corpusmill.sources.stages.index import quarantine_of
from corpusmill.steps.stages.applying import DROPPED

with lazily:
    import orjson

    from corpusmill.dedup import anchors
    from corpusmill.inspect.lineage import by_anchors


if TYPE_CHECKING:
    from corpusmill.config import SelectionConfig
    from corpusmill.engine.build import Build

IDS_AT_ONCE = 1 << 20


LeftOut = ContaminatedLine | DroppedLine


def locate(build: Build, source: str, line: int) -> Located | LeftOut | RejectedLine:
    """What became of line `line` (from 1) of a source file, named as in the dataset or by its location.

    Raises PermanentError for an unknown file or line.
    """
    number, name, line = place_of_line(build, source, line)
    file, before = file_of_part(build, number, name)
    shards = Shards(build)
    shard = shards[number]
    entry = next(file for file in shard.text.sources if file.path == name)
    if not 1 <= line <= entry.lines:
        where, expected = f"{file}, line {before + line:,}", f"1 to {before + entry.lines:,}"
        raise PermanentError("locate.no_such_line: the source file has no such line", where=where, expected=expected)
    numbers = shard.text.line_numbers[entry.first_document : entry.first_document + entry.documents]
    place = int(np.searchsorted(numbers, np.uint64(line - 1)))
    if place < len(numbers) and int(numbers[place]) == line - 1:
        return _located(shards, shard, entry.first_document + place)
    left_out = _left_out(build, shard, lambda row: (row["file"], row["line"]) == (file, before + line))
    return left_out[0] if left_out else _rejected(build, shard, file, before + line)


def locate_id(build: Build, document_id: str) -> tuple[Located | LeftOut, ...]:
    """What became of every document with this id, in dataset order; ids need not be unique.

    Raises PermanentError if no document has it. Price: one pass over the ends of all ids (8 bytes a document; 10
    million a second) and over ids of the same length.
    """
    wanted = document_id.encode()
    located: list[Located | LeftOut] = []
    shards = Shards(build)
    for number in range(len(shards)):
        located += [_located(shards, shards[number], ordinal) for ordinal in _with_id(shards[number], wanted)]
        located += _left_out(build, shards[number], lambda row: row["id"] == document_id)
    if not located:
        raise PermanentError(
            "locate.no_such_id: no document of the dataset has this id",
            where=document_id,
            expected=f"the value of source.id_field: {build.config.source.id_field}",
            next_step="ids of rejected lines are unknown: search the quarantine files that the report names",
        )
    return tuple(located)


def _with_id(shard: Shard, wanted: bytes) -> Iterator[int]:
    """Ordinals of the documents with an id."""
    ids, all_ends = shard.ids.data, shard.ids.ends
    for first in range(0, len(all_ends), IDS_AT_ONCE):
        ends = all_ends[first : first + IDS_AT_ONCE]
        start = all_ends[first - 1] if first else np.uint64(0)
        lengths = np.diff(ends, prepend=start)
        candidates = np.flatnonzero(lengths == len(wanted))
        # From the end, where ids that share a prefix differ; few candidates are left after a few bytes.
        for back, byte in enumerate(reversed(wanted), start=1):
            candidates = candidates[ids[ends[candidates] - np.uint64(back)] == byte]
        yield from (first + candidates).tolist()


def _located(shards: Shards, shard: Shard, ordinal: int) -> Located:
    before, place = shard.deduplicated, shard.place_before_steps(ordinal)
    first, last = before.text_span(place)
    kept_bytes = _covered(shard.kept(ordinal))
    tokens = len(shard.tokens.document(ordinal))
    rewritten = before is not shard and before.text.document_bytes(place) != shard.text.document_bytes(ordinal)
    return Located(
        document=shard.document(ordinal),
        text_bytes=last - first,
        removed_bytes=last - first - _covered(before.kept(place)),
        tokens=tokens,
        duplicates=_duplicates(shards, before, place),
        records=tuple(holdings(shards.build, shard, ordinal)),
        too_short_for=_too_short_for(shards.build.config.selection, kept_bytes) if kept_bytes and not tokens else "",
        rewritten_bytes=kept_bytes if rewritten else None,
    )


def _covered(spans: list[Span]) -> int:
    return sum(end - start for start, end in spans)


def _too_short_for(selection: SelectionConfig, kept_bytes: int) -> str:
    """The setting that dropped a document with text; "" if none did."""
    for name, least in selection.model_dump(exclude_none=True).items():
        if name == "minimum_tokens" or kept_bytes < least:
            return f"selection.{name}: {least}"
    return ""


def _duplicates(shards: Shards, shard: DeduplicatedShard, ordinal: int) -> tuple[Duplicate, ...]:
    build = shards.build
    dedup = build.config.dedup
    if dedup.minimum_bytes is None or not shard.duplicates(ordinal):
        return ()
    of = passage(shards, shard, ordinal, dedup.minimum_bytes)
    finder = by_anchors.AnchorFinder(
        of, [anchors.open_anchors(build.folder(*index_step(shard.name))) for shard in of.shards]
    )
    return duplicates(of, ordinal, finder)


def _left_out(build: Build, shard: Shard, wanted: Callable[[dict[str, Any]], bool]) -> list[LeftOut]:
    return [*_contaminated(build, shard, wanted), *_dropped(build, shard, wanted)]


def _dropped(build: Build, shard: Shard, wanted: Callable[[dict[str, Any]], bool]) -> list[DroppedLine]:
    """The documents of a shard that steps dropped, filtered by `wanted`."""

    dropped = []
    for stage in ("filter", "refine"):
        if shard.name in build.units(stage):
            path = build.folder(stage, shard.name) / DROPPED
            with path.open("rb") as rows:
                dropped += [
                    DroppedLine(row["file"], row["line"], row["id"], row["reason"], path)
                    for row in filter(wanted, map(orjson.loads, rows))
                ]
    return dropped


def _contaminated(build: Build, shard: Shard, wanted: Callable[[dict[str, Any]], bool]) -> list[ContaminatedLine]:
    """The documents of a shard that decontamination removed, filtered by `wanted`."""

    if build.config.decontamination is None or build.config.decontamination.action != "remove":
        return []
    path = build.folder("decontaminate", shard.name) / HITS
    rows: dict[tuple[str, int, str], list[ItemHit]] = {}
    with path.open("rb") as hits:
        for row in filter(wanted, map(orjson.loads, hits)):
            hit = ItemHit(row["benchmark"], row["item"], (row["begin"], row["end"]), row["share"])
            rows.setdefault((row["file"], row["line"], row["id"]), []).append(hit)
    return [ContaminatedLine(source, line, id_, tuple(items), path) for (source, line, id_), items in rows.items()]


def _rejected(build: Build, shard: Shard, source: str, line: int) -> RejectedLine:

    path = quarantine_of(build, shard.name)
    mark = b'"line":%d,' % line  # lines of the quarantine can be a megabyte long: parse few of them
    with path.open("rb") as quarantine:
        for row in quarantine:
            if mark in row and (rejected := orjson.loads(row))["source"] == source and rejected["line"] == line:
                return RejectedLine(source, line, rejected["reason"], rejected["preview"], path)
    raise PermanentError(
        "locate.line_lost: a line is neither a document nor in quarantine",
        where=f"{source}, line {line:,}",
        expected=f"a row in {path}",
        next_step="verify the dataset: its step's files were changed",
    )
