"""One shard of a finished build, opened for lineage: its documents' places, texts, duplicates and tokens.

First the arithmetic between a record's positions and a document's tokens, and between its kept and its original bytes.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corpusmill.config import absolute_here
from corpusmill.dedup.stages.reference import of_unit, places_of, text_step, units_of
from corpusmill.dedup.stages.union import CUT_RANGES, REMOVE_RANGES, cuts_stage, repeats_of
from corpusmill.engine.work import Input
from corpusmill.errors import CorruptDataError, PermanentError
from corpusmill.inspect.lineage.facts import BOS, EOT, PADDING, SourceDocument, Span
from corpusmill.kernels.mapping import mapped
from corpusmill.lazy import lazily
from corpusmill.shuffle.stages import budget
from corpusmill.shuffle.stages.scatter import packing_of
from corpusmill.sources.parts import FilePlace, lines_of, parts_of
from corpusmill.sources.stages.index import final_stage
from corpusmill.tokens.records import ContextPlan, Packing, plan_contexts
from corpusmill.tokens.token_shard import open_token_shard

with lazily:
    from corpusmill.documents import text_shard

if TYPE_CHECKING:
    from corpusmill.documents.text_shard import DocumentStrings, TextShard
    from corpusmill.engine.build import Build
    from corpusmill.tokens.token_shard import TokenShard


@dataclass(frozen=True)
class Stretch:
    """Positions [first, last) of a record: tokens of a document from `document_first` on, or special ones.

    For a document without tokens it is empty, at the place where they would be.
    """

    first: int
    last: int
    ordinal: int = -1
    document_first: int = 0
    special: str = ""


class Stream:
    """One shard's documents with tokens, in order.

    Built from a token shard's `ends` by one comparison per document (10 million take 20 ms); positions are then found
    by bisection, so nothing else of a mapped `ends` is read.
    """

    def __init__(self, ends: NDArray[np.uint64]) -> None:
        self._ends = ends
        without_tokens = np.flatnonzero(ends[1:] == ends[:-1]) + 1
        self._empty: list[int] = ([0] if len(ends) and ends[0] == 0 else []) + without_tokens.tolist()

    def tokens(self, ordinal: int) -> int:
        """Number of tokens of a document."""
        return int(self._ends[ordinal]) - (int(self._ends[ordinal - 1]) if ordinal else 0)

    def rank(self, ordinal: int) -> int:
        """The number of documents with tokens before this one."""
        return ordinal - bisect_left(self._empty, ordinal)


def context_stretches(plan: ContextPlan, packing: Packing, ends: NDArray[np.uint64], context: int) -> list[Stretch]:
    """The stretches of a context, in order; only padding tokens are merged into one stretch."""
    stretches: list[Stretch] = []
    position = 0
    before = len(packing.before)
    for piece in range(int(plan.bounds[context]), int(plan.bounds[context + 1])):
        ordinal, first, size = int(plan.documents[piece]), int(plan.firsts[piece]), int(plan.sizes[piece])
        tokens = int(ends[ordinal]) - (int(ends[ordinal - 1]) if ordinal else 0)
        start = position - first  # where the document's slot 0 would be
        specials = [*packing.before, *packing.behind]
        slots = [*range(before), *(before + tokens + place for place in range(len(packing.behind)))]
        held = [
            Stretch(start + slot, start + slot + 1, special=what)
            for slot, what in zip(slots, specials, strict=True)
            if first <= slot < first + size
        ]
        stretches += [stretch for stretch in held if stretch.first < start + before]
        stretches += _tokens_within(ordinal, tokens, start + before, position, position + size)
        stretches += [stretch for stretch in held if stretch.first >= start + before]
        position += size
    if position < plan.context_tokens:
        stretches.append(Stretch(position, plan.context_tokens, special=PADDING))
    return stretches


def document_stretches(ordinal: int, tokens: int, *, bos: bool = False, eot: bool = True) -> list[Stretch]:
    """A record that is a whole document (Megatron, Nanoset), with its BOS and EOT, if any."""
    document = _tokens_within(ordinal, tokens, int(bos), 0, tokens + bos)
    return [
        *([Stretch(0, 1, special=BOS)] if bos else []),
        *document,
        *([Stretch(tokens + bos, tokens + bos + 1, special=EOT)] if eot else []),
    ]


def file_stretches(ordinal: int, tokens: int, eot: int, size: int) -> list[Stretch]:
    """A document with its EOT before it, at position `eot` of a file of `size` positions, cut to the file.

    `eot` is negative when the file before this one holds the beginning.
    """
    if not 0 <= eot < size:
        return _tokens_within(ordinal, tokens, eot + 1, 0, size) if tokens else []
    return [Stretch(eot, eot + 1, special=EOT), *_tokens_within(ordinal, tokens, eot + 1, 0, size)]


def cut_stretches(stretches: list[Stretch], first: int, last: int) -> list[Stretch]:
    """The stretches of a record, cut to its positions [first, last), which are not empty."""
    cut = []
    for stretch in stretches:
        low, high = max(first, stretch.first), min(last, stretch.last)
        if low < high or first <= stretch.first == stretch.last < last:
            cut.append(
                replace(stretch, first=low, last=high, document_first=stretch.document_first + low - stretch.first)
            )
    return cut


def _tokens_within(ordinal: int, tokens: int, start: int, first: int, last: int) -> list[Stretch]:
    """The tokens of a document that begins at position `start`, cut to [first, last)."""
    if not tokens:
        place = min(max(start, first), last)
        return [Stretch(place, place, ordinal)]
    low, high = max(start, first), min(start + tokens, last)
    return [Stretch(low, high, ordinal, low - start)] if low < high else []


def kept_spans(text_bytes: int, removed: list[Span]) -> list[Span]:
    """The spans of a text without `removed` (ascending, disjoint)."""
    edges = [0, *(edge for span in removed for edge in span), text_bytes]
    return [(first, last) for first, last in list(pairwise(edges))[::2] if first < last]


def original_spans(kept: list[Span], first: int, last: int) -> tuple[Span, ...]:
    """Bytes [first, last) of the kept text, as spans of the original. CorruptDataError if the kept text is shorter."""
    spans = []
    begin = 0  # where the kept span begins in the kept text
    for low, high in kept:
        end = begin + high - low
        if max(first, begin) < min(last, end):
            spans.append((low + max(first, begin) - begin, low + min(last, end) - begin))
        begin = end
    if last > begin:
        raise CorruptDataError(
            "locate.tokens_exceed_text: a document's tokens are longer than its text",
            expected=f"tokens for at most {begin:,} bytes of text",
            got=f"tokens up to byte {last:,}",
            next_step="verify the text shard and the token shard: one of them was changed",
        )
    return tuple(spans)


class Shards:
    """The shards of a build, each opened once, since every map holds a file descriptor."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self._opened: dict[int, Shard] = {}

    def __getitem__(self, number: int) -> Shard:
        return self._opened.setdefault(number, Shard(self.build, number))

    def __len__(self) -> int:
        return len(self.build.plan.shards)

    @cached_property
    def references(self) -> list[ReferenceShard]:
        """The shards of references, which come before the dataset's."""
        return [ReferenceShard(self.build, unit) for unit in self.build.units("reference")]


class EarlierShard(ABC):
    """The interface of a shard that may hold the first place of a text."""

    def __init__(self, build: Build, name: str) -> None:
        self.build = build
        self.name = name

    @cached_property
    def text(self) -> TextShard:
        return text_shard.open_text_shard(self.build.folder(*text_step(self.build, self.name)))

    @cached_property
    def ids(self) -> DocumentStrings:
        return self.text.document_ids()

    @abstractmethod
    def document(self, ordinal: int) -> SourceDocument:
        """Where a document comes from."""

    @cached_property
    def _place(self) -> Callable[[int], FilePlace]:
        return places_of(self.build, self.name, self.text)

    def text_span(self, ordinal: int) -> Span:
        """The span of a document's text in the text shard's `tokenized`."""
        start, end = self.text.bounds(ordinal, 1).tolist()
        return start + 1, end


class ReferenceShard(EarlierShard):
    """A shard of a reference."""

    def document(self, ordinal: int) -> SourceDocument:
        """Where a document comes from: its line in the reference's file, which may have been cut into parts."""
        source, line = self._place(ordinal)
        path, number = self._reference
        return SourceDocument(source, line + 1, self.ids[ordinal], number, ordinal, path)

    @cached_property
    def _reference(self) -> tuple[str, int]:
        _, reference, _ = of_unit(self.build, self.name)
        return reference.path, units_of(reference).index(self.name)


class DeduplicatedShard(EarlierShard):
    """A shard of the dataset with the documents and texts that deduplication read."""

    def __init__(self, build: Build, number: int) -> None:
        super().__init__(build, f"{number:05d}")
        self.number = number

    def document(self, ordinal: int) -> SourceDocument:
        """Where a document comes from."""
        source, line = self._place(ordinal)
        return SourceDocument(source, line + 1, self.ids[ordinal], self.number, ordinal)

    def duplicates(self, ordinal: int) -> list[Span]:
        """A document's duplicate ranges, cut at whole characters, as spans of its text."""
        return self._ranges(self._cut_ranges, ordinal)

    def repeats(self, ordinal: int) -> list[Span]:
        """The spans of a document's text that occurred earlier, to the byte, removed or not; ascending, disjoint."""
        return self._ranges(self._repeats, ordinal)

    def kept(self, ordinal: int) -> list[Span]:
        """The spans of a document's text that were not removed."""
        first, last = self.text_span(ordinal)
        removing = self.build.config.dedup.mode == "remove"
        return kept_spans(last - first, self.duplicates(ordinal) if removing else [])

    @cached_property
    def _cut_ranges(self) -> NDArray[np.uint64]:
        return self._mapped_ranges("union", CUT_RANGES)

    @cached_property
    def _repeats(self) -> NDArray[np.uint64]:
        if self.build.config.dedup.keep == "every_string":  # remove_ranges lacks the copies that are kept
            return repeats_of(self.build, self.name)
        return self._mapped_ranges("union", REMOVE_RANGES)

    def _mapped_ranges(self, stage: str, name: str) -> NDArray[np.uint64]:
        if self.build.config.dedup.mode == "none":
            return np.empty((0, 2), np.uint64)
        return mapped(self.build.folder(stage, self.name) / name, "<u8").reshape(-1, 2)

    def _ranges(self, ranges: NDArray[np.uint64], ordinal: int) -> list[Span]:
        first, last = self.text_span(ordinal)
        low, high = np.searchsorted(ranges[:, 0], np.array([first, last], np.uint64)).tolist()
        return [(start - first, end - first) for start, end in ranges[low:high].tolist()]


class Shard(DeduplicatedShard):
    """A shard with the documents and texts that were tokenized, and everything else that lineage needs.

    Each file is mapped when it is first needed.
    """

    @cached_property
    def text(self) -> TextShard:
        return text_shard.open_text_shard(self.build.folder(final_stage(self.build, self.name), self.name))

    @cached_property
    def deduplicated(self) -> DeduplicatedShard:
        """The shard before the steps `before: writeback`; itself where there are none."""
        return DeduplicatedShard(self.build, self.number) if self.build.units("refine") else self

    def place_before_steps(self, ordinal: int) -> int:
        """The ordinal in `deduplicated` of a document: of the same line of the same file."""
        if self.deduplicated is self:
            return ordinal
        source, line = self.text.source_of(ordinal)
        before = self.deduplicated.text
        entry = next(earlier for earlier in before.sources if earlier.path == source)
        numbers = before.line_numbers[entry.first_document : entry.first_document + entry.documents]
        return entry.first_document + int(np.searchsorted(numbers, np.uint64(line)))

    @cached_property
    def _cut_ranges(self) -> NDArray[np.uint64]:
        return self._mapped_ranges(cuts_stage(self.build), CUT_RANGES)

    @cached_property
    def tokens(self) -> TokenShard:
        return open_token_shard(self.build.folder("tokenize", self.name))

    @cached_property
    def shown(self) -> TokenShard:
        """The documents as often as the dataset shows them, of which records are made; without a budget each once."""
        shares = Input(self.build, ("budget", budget.UNIT)) if self.build.units("budget") else None
        return budget.shown_shard(shares, self.name, self.tokens)

    @cached_property
    def stream(self) -> Stream:
        return Stream(np.asarray(self.shown.ends))

    def showings(self, ordinal: int) -> list[int]:
        """The ordinals in `shown` of all showings of a document."""
        return [ordinal] if self.shown.shown is None else np.flatnonzero(self.shown.shown == ordinal).tolist()

    @cached_property
    def packing(self) -> Packing:
        """How the dataset's contexts were cut."""
        return packing_of(self.build)

    @cached_property
    def _contexts(self) -> dict[int, ContextPlan]:
        return {}

    def contexts(self, kind: str) -> ContextPlan:
        """The shard's contexts of a kind of record, computed again: one pass over `ends`, 24 bytes a document."""
        width = self.build.config.exports.context_tokens()[kind]
        if width not in self._contexts:
            ends = np.asarray(self.shown.ends)
            self._contexts[width] = plan_contexts(ends, width, self.packing, self.shown.source_ends)
        return self._contexts[width]


def place_of_line(build: Build, source: str, line: int) -> tuple[int, str, int]:
    """(shard, name there, line there) of line `line` (from 1) of a source file, by its name or its location.

    A line past the end of a file in parts is returned as a line past the end of its last part. PermanentError with the
    nearest names if there is no such file.
    """
    number, name = shard_of_source(build, source)
    file = next(part for part in build.plan.shards[number] if part.name == name)
    if file.part is None or source == name:
        return number, name, line
    for number, name in parts_of(build, file.part.of):
        lines = lines_of(build, number, name)
        if line <= lines:
            break
        line -= lines
    else:
        line += lines
    return number, name, line


def shard_of_source(build: Build, source: str) -> tuple[int, str]:
    """(shard, name) of a source file or of the first part of one, by its name in the dataset or by its location.

    PermanentError with the nearest names if there is none.
    """
    for number, files in enumerate(build.plan.shards):
        for file in files:
            whole = file.location if file.part is None else file.location.removesuffix(file.name) + file.part.of
            if {source, absolute_here(source)} & {file.name, file.location, whole} or (
                file.part and source == file.part.of
            ):
                return number, file.name
    names = [file.part.of if file.part else file.name for files in build.plan.shards for file in files]
    near = difflib.get_close_matches(source, names, n=3, cutoff=0.3) or names[:3]
    raise PermanentError(
        "locate.no_such_source: the dataset has no such source file",
        where=source,
        expected=f"one of its {len(names):,} names or their locations, such as {', '.join(near)}",
        next_step="give the name relative to the folder in source.paths, as trace prints it",
    )
