"""Rewrites a source file without its duplicate ranges, or with the ranges added to every document.

The content follows the reference (bsade's writeback): `remove` joins the kept pieces of a text with nothing in between
and keeps documents that become empty; `annotate` leaves the text alone and adds a list of [start, end] byte offsets
into its UTF-8, empty where nothing was found. The format is preserved better: the output is the input's own bytes
except for those that are cut from a text (whose escapes are kept) or added. Untouched lines, other fields (1.50, 1e5,
duplicate keys), the space between tokens, ``\\r\\n`` and a missing last newline are unchanged; with no
ranges, `remove` of a file without rejected lines is the identity. Rejected lines are left out (the quarantine has
them), and the line count is otherwise unchanged.

Every document's line is hashed and compared with the text shard's hash of it, so a source that changed since it was
indexed is an error and not a wrong cut. Every line that `remove` writes is read again: an untouched line must still
have that hash, and the text of a cut line is decoded for the account of kept texts: by a kernel if its bytes alone show
which string that is (string_kernels.py), else by orjson. What cut the line takes no part in it.

Price: one pass over the decompressed file; only lines that change are searched for their text, and only those whose
bytes do not show where it is are parsed. Memory is a few blocks, or four times the longest line if that is more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.dedup.annotations import Annotation, annotate_lines, key_path, text_parts, with_edits
from corpusmill.documents.json_members import find_values
from corpusmill.documents.lines import BLOCK_BYTES, LONGEST_LINE_BYTES
from corpusmill.documents.located import (
    LocatedBlock,
    changed_source,
    find_line_ends,
    locate,
    read_located_blocks,
    read_text,
)
from corpusmill.documents.string_kernels import INSIDE_A_CHARACTER, UNPROVEN, find_places, find_strings, read_edited
from corpusmill.documents.text_shard import IndexedSource
from corpusmill.errors import CorruptDataError
from corpusmill.kernels import advance
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.kernels.content_kernels import placed_sum, text_hashes


@dataclass(frozen=True, slots=True)
class WriteBackOptions:
    """What happens to a document's duplicate ranges.

    `annotate_key`  where `annotate` puts its list (annotations.py), over an existing value if `replace_existing`
    `drop_empty`    `remove` drops documents that become empty instead of keeping them with an empty text
    """

    mode: Literal["remove", "annotate"]
    text_field: str
    annotate_key: str = "sa_remove_ranges"
    replace_existing: bool = False
    drop_empty: bool = False


@dataclass(slots=True)
class WriteBackCounts:
    """documents_in = documents_out + those dropped because they became empty; text_bytes_in = out + removed.

    `documents_changed` have ranges (removed or annotated), or another text than their line; `documents_empty` became
    empty, dropped or not. A document that was empty before is neither. `documents_intact` were written by `remove` as
    they were indexed. `documents_out` and `text_bytes_out` are measured in what is written, not derived from the
    ranges.

    `text_content` sums the indexed texts whose lines were read again, `kept_content` what is kept of each, decoded from
    the output where it changed; a dropped document counts as an empty text. Both weight a document by shard and
    ordinal. `noted_content` sums the values of annotations, read again from the output.
    """

    documents_in: int = 0
    documents_out: int = 0
    documents_changed: int = 0
    documents_intact: int = 0
    documents_empty: int = 0
    text_bytes_in: int = 0
    text_bytes_removed: int = 0
    text_bytes_out: int = 0
    text_content: ContentSum = NOTHING
    kept_content: ContentSum = NOTHING
    noted_content: ContentSum = NOTHING


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """The documents of one source file, from the text shard and its ranges.

    `text_bytes` int64 (n,); `ranges` int64 (m, 2 or 3) relative to each document's text,
    those of document i at `first_range[i] : first_range[i + 1]`. `changes` bool (n,): whether its text is written as
    another than its line has; `kept_bytes` int64 (n,): the bytes of what is written.
    """

    indexed: IndexedSource
    text_bytes: NDArray[np.int64]
    first_range: NDArray[np.int64]
    ranges: NDArray[np.int64]
    changes: NDArray[np.bool_]
    kept_bytes: NDArray[np.int64]

    def ranges_of(self, document: int) -> list[list[int]]:
        """[[start, end], ...] of one document, relative to its text."""
        first, last = self.first_range[document], self.first_range[document + 1]
        ranges: list[list[int]] = self.ranges[first:last].tolist() if first < last else []
        return ranges

    def require_unchanged(self, block: LocatedBlock) -> None:
        """CorruptDataError for a line that changed since it was indexed."""
        (other,) = np.nonzero(
            block.line_hashes() != self.indexed.line_hashes[block.first_document : block.end_document]
        )
        if len(other):
            raise changed_source(self.indexed, block.first_document + int(other[0]), "another line")


def write_back_file(
    stream: BinaryIO,
    sink: BinaryIO,
    *,
    indexed: IndexedSource,
    ranges: NDArray[np.uint64],
    options: WriteBackOptions,
    annotations: Sequence[Annotation] = (),
    unit: int = 0,
    block_bytes: int = BLOCK_BYTES,
    longest_line_bytes: int = LONGEST_LINE_BYTES,
) -> WriteBackCounts:
    """Copies the decompressed lines of one source file from `stream` to `sink` and edits them on the way.

    `indexed`  the text shard's documents of this file
    `ranges`   uint64 (m, 2): [start, end) positions in the text shard's text, ascending and disjoint, each inside
               one document and aligned to UTF-8 characters; empty ones are ignored. `annotate` adds a third column, if
               there is one, to each range as it is
    `annotations`  further attributes of every document; they count documents within the file
    `unit`     the number of the shard

    Raises CorruptDataError if a line changed since it was indexed, or a range is not as above; ConfigError for an
    annotation that cannot be placed. After an error the output is incomplete and must be deleted.
    """
    documents = documents_of(indexed, ranges, options)
    account = _Account(documents, options, unit)
    added = [*own_annotation(documents, options), *annotations]
    for annotation in added:
        key_path(annotation.key, options.text_field)
    for block in read_located_blocks(
        stream,
        indexed=indexed,
        block_bytes=block_bytes,
        longest_line_bytes=longest_line_bytes,
    ):
        documents.require_unchanged(block)
        changed = np.flatnonzero(documents.changes[block.first_document : block.end_document])
        is_dropped = (documents.kept_bytes[block.first_document + changed] == 0) & options.drop_empty
        dropped = changed[is_dropped]
        rejected = np.delete(np.arange(len(block.line_ends)), block.lines)
        without = np.concatenate([rejected, block.lines[dropped]])
        lines = np.column_stack([block.line_starts[without], block.line_ends[without]])
        texts, cuts, replacements = _text_edits(block, documents, changed[~is_dropped], options)
        written = with_edits(block.data, np.concatenate([texts, cuts, lines]), replacements)
        account.add(block, written, changed, dropped)
        stays = np.delete(np.arange(block.first_document, block.end_document), dropped)
        for annotation in added:
            written = annotate_lines(written, stays, annotation, indexed, options.text_field, unit)
        sink.write(written)
        begin, end = indexed.bounds[[block.first_document, block.end_document]]
        advance.note(int(end - begin), 0)
    account.counts.noted_content = sum((annotation.tally for annotation in added), NOTHING)
    return account.counts


def own_annotation(documents: Documents, options: WriteBackOptions, column: Any = None) -> list[Annotation]:
    """The annotation of mode annotate: the ranges themselves; `column`: their type in parquet."""
    if options.mode == "remove":
        return []
    return [Annotation(options.annotate_key, documents.ranges_of, options.replace_existing, column)]


class _Account:
    """What write_back_file counts, measured block by block in the lines that it wrote."""

    def __init__(self, documents: Documents, options: WriteBackOptions, unit: int) -> None:
        changed = np.diff(documents.first_range) > 0
        changed[documents.indexed.rewritten] = True
        self.counts = WriteBackCounts(documents_changed=int(np.count_nonzero(changed)))
        if options.mode == "remove":
            self.counts.text_bytes_removed = int(np.diff(documents.ranges).sum())
        self._documents = documents
        self._options = options
        self._unit = unit

    def add(self, block: LocatedBlock, written: bytes, changed: NDArray[np.int64], dropped: NDArray[np.int64]) -> None:
        """Count a block that became `written`. `changed`: documents whose text is another now; `dropped`: of these."""
        counts, indexed = self.counts, self._documents.indexed
        first, end = block.first_document, block.end_document
        texts = text_hashes(indexed.text, indexed.bounds[first:end] + np.uint64(1), indexed.bounds[first + 1 : end + 1])
        ordinals = np.arange(first, end, dtype=np.uint64) + np.uint64(indexed.first_document)
        sizes = self._documents.text_bytes[first:end].copy()
        line_ends = find_line_ends(written)
        counts.documents_in += len(sizes)
        counts.documents_out += len(line_ends)
        counts.text_bytes_in += int(sizes.sum())
        counts.text_content += placed_sum(texts, self._unit, ordinals)
        stays = np.delete(np.arange(len(sizes)), dropped)
        if self._options.mode == "remove" and len(stays) == len(line_ends):  # otherwise the balance of documents fails
            lines = locate(written, line_ends, np.arange(len(line_ends)), first)
            intact = np.isin(stays, changed, invert=True)
            same = lines.line_hashes(intact) == indexed.line_hashes[first:end][stays[intact]]
            counts.documents_intact += int(np.count_nonzero(same))
            texts[:, changed], sizes[changed] = _texts_again(block, changed, lines, stays, self._options.text_field)
            counts.documents_empty += int(np.count_nonzero(sizes[changed] == 0))
        counts.text_bytes_out += int(sizes.sum())
        counts.kept_content += placed_sum(texts, self._unit, ordinals)


def _texts_again(
    block: LocatedBlock, changed: NDArray[np.int64], lines: LocatedBlock, stays: NDArray[np.int64], text_field: str
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """(hashes, uint64 (2, n); bytes, int64 (n,)) of the texts of `changed` documents of a block, decoded from `lines`,
    those of the documents that stay. A document that was dropped, or has no text, counts as an empty text.
    """
    spans = np.zeros((len(changed), 2), np.int64)
    there = np.isin(changed, stays)
    rows, kept = np.searchsorted(stays, changed[there]), changed[there]
    places = np.column_stack([lines.starts[rows], lines.ends[rows]])
    originals = np.column_stack([block.starts[kept], block.ends[kept]])
    texts, spans[there] = read_edited(lines.data, places, block.data, originals, text_field)
    (unproven,) = (spans[:, 0] == UNPROVEN).nonzero()
    spans[unproven] = 0
    hashes, sizes = text_hashes(texts, *spans.T.astype(np.uint64)), spans[:, 1] - spans[:, 0]
    if len(unproven):
        del texts  # before a long line is parsed
        again = places[np.searchsorted(kept, changed[unproven])].tolist()
        parsed = [read_text(lines.data, (start, end), text_field) or b"" for start, end in again]
        hashes[:, unproven], sizes[unproven] = text_parts(parsed), list(map(len, parsed))
    return hashes, sizes


def documents_of(indexed: IndexedSource, ranges: NDArray[np.uint64], options: WriteBackOptions) -> Documents:
    """The documents of a file with their ranges; CorruptDataError for a range that is not inside one of them."""
    places = indexed.bounds.astype(np.int64)
    spans = ranges.astype(np.int64)
    spans = spans[spans[:, 0] != spans[:, 1]]
    first_range = np.searchsorted(spans[:, 0], places)
    owner = np.repeat(np.arange(len(places) - 1), np.diff(first_range))
    inside = len(owner) == len(spans) and bool(
        np.all(spans[:, 0] > places[owner])
        and np.all(spans[:, 1] <= places[owner + 1])
        and np.all(spans[:, 0] < spans[:, 1])
        and np.all(spans[1:, 0] >= spans[:-1, 1])
    )
    if not inside:
        raise _misfit(
            indexed.path, f"{len(spans):,} ranges for {len(places) - 1:,} documents, one of which does not match"
        )
    relative = spans.copy()
    relative[:, :2] -= (places[owner] + 1)[:, None]
    text_bytes = np.diff(places) - 1
    changes, kept_bytes = np.zeros(len(text_bytes), np.bool_), text_bytes
    if options.mode == "remove":
        changes = np.diff(first_range) > 0
        removed_before = np.append(0, np.cumsum(spans[:, 1] - spans[:, 0]))
        kept_bytes = text_bytes - np.diff(removed_before[first_range])
    changes[indexed.rewritten] = True
    return Documents(indexed, text_bytes, first_range, relative, changes, kept_bytes)


def _misfit(source: str, got: str) -> CorruptDataError:
    return CorruptDataError(
        "writeback.ranges_do_not_match: the duplicate ranges do not match the documents",
        where=source,
        expected="ascending, disjoint ranges of whole characters, each inside the text of one document of this file",
        got=got,
        next_step="rerun the union step of this shard: its ranges are for another text shard",
    )


def _text_edits(
    block: LocatedBlock, documents: Documents, places: NDArray[np.int64], options: WriteBackOptions
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[bytes]]:
    """What changes in the texts of some documents, numbered within the block: [start, end) of JSON that is replaced,
    int64 (r, 2), and of what is cut, int64 (m, 2); the r replacements.
    """
    spans = _text_spans(block, documents, places, options.text_field)
    rewritten = np.isin(places + block.first_document, documents.indexed.rewritten)
    cuts = _cuts(block, documents, places[~rewritten], spans[~rewritten])
    replacements = []
    for document in (block.first_document + places[rewritten]).tolist():
        text = documents.indexed.text_of(document)
        if options.mode == "remove":
            text = without_ranges(text, documents.ranges_of(document))
        replacements.append(orjson.dumps(text.decode()))
    return spans[rewritten], cuts, replacements


def _cuts(
    block: LocatedBlock, documents: Documents, places: NDArray[np.int64], spans: NDArray[np.int64]
) -> NDArray[np.int64]:
    """int64 (m, 2): where the ranges of some documents are in the JSON of their texts, which is at `spans`."""
    first, behind = (documents.first_range[block.first_document + places + more] for more in (0, 1))
    counts = behind - first
    rows = np.repeat(behind - np.cumsum(counts), counts) + np.arange(counts.sum())
    text_bytes = documents.text_bytes[block.first_document + places]
    texts_begin = np.cumsum(text_bytes + 1) - (text_bytes + 1)  # back to back, a closing quote behind each
    offsets = documents.ranges[rows] + np.repeat(texts_begin, counts)[:, None]
    cuts = find_places(block.data, spans, offsets.ravel()).reshape(-1, 2)
    (inside,) = (cuts == INSIDE_A_CHARACTER).any(axis=1).nonzero()
    if len(inside):
        place = places[np.searchsorted(np.cumsum(counts), inside[0], side="right")]
        where = documents.indexed.where(int(block.first_document + place))
        raise _misfit(where, "ranges that cut a character")
    return cuts


def _text_spans(
    block: LocatedBlock, documents: Documents, places: NDArray[np.int64], text_field: str
) -> NDArray[np.int64]:
    """int64 (n, 2): where the JSON of some documents' texts is, quotes included."""
    objects = np.column_stack([block.starts[places], block.ends[places]])
    spans = find_strings(block.data, objects, text_field)
    (unproven,) = (spans[:, 0] == UNPROVEN).nonzero()
    found = find_values(block.data, text_field, objects[unproven].tolist())
    for row, span in zip(unproven.tolist(), found, strict=True):
        if span is None:
            document = block.first_document + int(places[row])
            raise changed_source(documents.indexed, document, f"no text at {text_field!r}")
        spans[row] = span
    return spans


def without_ranges(text: bytes, ranges: list[list[int]]) -> bytes:
    """`text` without its [start, end) byte ranges, which are ascending and disjoint."""
    ends = [0, *(end for _, end in ranges)]
    starts = [*(start for start, _ in ranges), len(text)]
    return b"".join([text[end:start] for end, start in zip(ends, starts, strict=True)])
