"""Finds every record with tokens of a source document, or why there is none, and the earlier text that it repeats.

A repeat is a union of windows of L = minimum_bytes bytes that occurred earlier. A Finder (by_anchors.py) finds the
first place of one of them; from there the texts are compared byte for byte as far as they agree, and the search
continues behind that. A removed range is a repeat cut at whole characters, parts of a repeat
(`keep: every_string`), or several repeats with the text between them (`fuzzy_share`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.decontamination.stages.decontaminate import HITS
from corpusmill.dedup.stages.annotating import PAIRS
from corpusmill.dedup.stages.reference import index_step
from corpusmill.errors import CorruptDataError, PermanentError
from corpusmill.inspect.lineage.facts import (
    ContaminatedLine,
    DroppedLine,
    Duplicate,
    ItemHit,
    Located,
    NearDuplicateLine,
    Occurrence,
    RejectedLine,
    Span,
)
from corpusmill.inspect.lineage.records import holdings
from corpusmill.inspect.lineage.shards import DeduplicatedShard, EarlierShard, Shard, Shards, place_of_line
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


LeftOut = ContaminatedLine | NearDuplicateLine | DroppedLine


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
    named = (_contaminated, _near_duplicates, _dropped)
    return [line for lines in named for line in lines(build, shard, wanted)]


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


def _near_duplicates(build: Build, shard: Shard, wanted: Callable[[dict[str, Any]], bool]) -> list[NearDuplicateLine]:
    """The near-duplicates of a shard that were removed, filtered by `wanted`."""
    if build.config.near_duplicates is None or build.config.near_duplicates.action != "remove":
        return []
    path = build.folder("near_duplicates", shard.name) / PAIRS
    references = ["", *(reference.path for reference in build.plan.references or ())]
    with path.open("rb") as rows:
        return [
            NearDuplicateLine(
                *(row["file"], row["line"], row["id"], row["similarity"]),
                kept=(row["kept_file"], row["kept_line"], row["kept_id"]),
                pairs=path,
                reference=references[row.get("kept_reference", 0)],
            )
            for row in filter(wanted, map(orjson.loads, rows))
        ]


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


COMPARE_BYTES = 1 << 16


@dataclass(frozen=True)
class Passage:
    """A document and everything before it: the shards before its own, and its own shard up to it.

    before      the shards of references and of the dataset, in order
    shard       the document's own
    origin      where the document's text begins in its shard's text
    document    uint8 (n,): its bytes
    """

    before: Sequence[EarlierShard]
    shard: DeduplicatedShard
    origin: int
    document: NDArray[np.uint8]
    minimum_bytes: int

    @property
    def shards(self) -> list[EarlierShard]:
        """All shards in order; the last one holds the document."""
        return [*self.before, self.shard]


Finder = Callable[[int, int], tuple[int, EarlierShard, int] | None]
"""(low, high) to the first place of a window that occurred earlier, of those that start at `low` to `high` in the
document: its start there, the shard and the position in the shard's text; None if no index entry leads to one."""


def passage(shards: Shards, shard: DeduplicatedShard, ordinal: int, minimum_bytes: int) -> Passage:
    """Document `ordinal` of `shard`, and all before it."""
    origin, last = shard.text_span(ordinal)
    before = [*shards.references, *(shards[number].deduplicated for number in range(shard.number))]
    return Passage(before, shard, origin, shard.text.text[origin:last], minimum_bytes)


def duplicates(of: Passage, ordinal: int, first_window: Finder) -> tuple[Duplicate, ...]:
    """The document's duplicate ranges, each with the earlier text that covers its repeated parts, in order."""
    shard = of.shard
    repeats = shard.repeats(ordinal)
    ends = [end for _, end in repeats]

    def occurrences(cut: Span) -> Iterator[Occurrence]:
        for repeat in repeats[bisect_right(ends, cut[0]) :]:
            if repeat[0] >= cut[1]:
                return
            yield from _cover(of, repeat, cut, first_window)

    return tuple(Duplicate(cut, tuple(occurrences(cut))) for cut in shard.duplicates(ordinal))


def _cover(of: Passage, repeat: Span, cut: Span, first_window: Finder) -> Iterator[Occurrence]:
    """Earlier text for the part of `cut` within `repeat`; an occurrence may begin before it and end behind it."""
    first, last = repeat
    covered = max(first, cut[0])
    while covered < min(last, cut[1]):
        # Some earlier window holds the first uncovered byte.
        low = max(first, covered - of.minimum_bytes + 1)
        high = min(covered, last - of.minimum_bytes)
        window = first_window(low, high)
        if window is None:
            raise CorruptDataError(
                "locate.earlier_text_not_found: the earlier text that a duplicate range repeats was not found",
                where=f"{of.shard.text.folder}, the text at {of.origin:,}, bytes {low:,} to {high:,}",
                expected=f"{of.minimum_bytes} equal bytes before it in the dataset",
                next_step="verify the dataset: a text shard, its index or its ranges were changed",
            )
        stretch = _extended(of, last, *window)
        yield stretch
        covered = stretch.text_bytes[1]


def _extended(of: Passage, last: int, start: int, shard: EarlierShard, position: int) -> Occurrence:
    """The stretch from a pair of equal windows on, as far as the repeat and both documents agree."""
    end, earlier = start + of.minimum_bytes, position + of.minimum_bytes
    while end < last:
        mine = of.document[end : min(end + COMPARE_BYTES, last)]
        theirs = shard.text.text[earlier : earlier + len(mine)]
        unequal = np.flatnonzero(mine[: len(theirs)] != theirs)
        same = int(unequal[0]) if len(unequal) else len(theirs)
        end, earlier = end + same, earlier + same
        if same < len(mine):
            break
    ordinal = int(np.searchsorted(shard.text.offsets, np.uint64(position), side="right")) - 1
    begin = position - shard.text_span(ordinal)[0]
    return Occurrence((start, end), shard.document(ordinal), (begin, begin + end - start))
