"""The annotations that writeback adds to documents: repeated ranges, benchmark items, and what they nearly duplicate.

All are lists, possibly empty. Positions are bytes of the written text as UTF-8.

    dedup.annotate_key            [start, end] of each range; with `against` [start, end, reference], which is 0 for
                                  the dataset itself and n for the n-th entry of `against`
    decontamination.annotate_key  {benchmark, item, part, begin, end, share} of each hit; begin = end where dedup
                                  removed the whole passage
    near_duplicates.annotate_key  {id, file, line, similarity} of the earlier document that it is a near-duplicate of;
                                  with `against` its reference, too, a number as in those of ranges
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType

from corpusmill.decontamination.stages.decontaminate import HIT_DOCUMENTS, HITS
from corpusmill.dedup.stages.union import CUT_RANGES, REFERENCE_RANGES
from corpusmill.documents import field_names
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.lazy import lazily
from corpusmill.sources.parts import PlacedSettings, places_in

with lazily:
    import numpy as np
    import orjson
    import pyarrow as pa

    from corpusmill.dedup import annotations as dedup_annotations
    from corpusmill.dedup import ranges as dedup_ranges
    from corpusmill.dedup import references


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig
    from corpusmill.config.sections import DecontaminationConfig, NearDuplicatesConfig
    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.work import Input, Inputs


PAIRS, LEFT_OUT = "pairs.jsonl", "left_out"  # of near_duplicates, which imports this room


class Settings(PlacedSettings, frozen=True, kw_only=True):
    """What is written back of a shard. `against`: ranges name the reference that holds them; `hits_key`: where
    documents list the benchmark items that they hold; `near_key`: where they name what they nearly duplicate, which
    may be in a reference with `near_references`.
    """

    mode: Literal["remove", "annotate"]
    text_field: str
    libraries: dict[str, str]
    annotate_key: str | UnsetType = UNSET
    replace_existing: bool | UnsetType = UNSET
    drop_empty: bool | UnsetType = UNSET
    hits_key: str | UnsetType = UNSET
    near_key: str | UnsetType = UNSET
    near_references: bool | UnsetType = UNSET
    against: bool | UnsetType = UNSET


Hits = dict[int, list[dict[str, Any]]]
"""{ordinal of a document: its hits, as annotated}."""


def annotated_key(section: DecontaminationConfig | NearDuplicatesConfig | None) -> str | UnsetType:
    """Where documents are annotated with what a section of the configuration finds; UNSET if they are not."""
    return section.annotate_key if section is not None and section.action == "annotate" else UNSET


def annotation_keys(config: DatasetConfig) -> list[tuple[str, bool]]:
    """(key, whether it may replace a value) of each annotation that writeback adds."""
    dedup = config.dedup
    keys = [(dedup.annotate_key, dedup.replace_existing)] if dedup.mode == "annotate" else []
    found = map(annotated_key, (config.decontamination, config.near_duplicates))
    return [*keys, *((key, False) for key in found if key)] if dedup.writeback else []


def require_places(config: DatasetConfig, seen: dict[str, Any] | list[str], where: str) -> None:
    """ConfigError if an annotation has no place in a parsed line, or in a parquet file with columns of these names.

    A line passes if it may not be written: one without text, and every one if the configuration may drop documents.
    """
    for key, replace_existing in annotation_keys(config):
        if isinstance(seen, list):
            dedup_annotations.require_column(seen, key, where, replace_existing=replace_existing)
        elif isinstance(field_names.get_field(seen, config.source.text_field), str) and not _may_drop(config):
            dedup_annotations.require_place_in(seen, key.split("."), where, replace_existing=replace_existing)


def _may_drop(config: DatasetConfig) -> bool:
    removes = "remove" in {section.action for section in (config.decontamination, config.near_duplicates) if section}
    return bool(config.steps or config.decides() or config.dedup.drop_empty or removes)


def ranges_of(inputs: Inputs, settings: Settings, text: TextShard) -> NDArray[np.uint64]:
    """uint64 (m, 2): the ranges that writeback cuts or annotates; (m, 3) with the reference that holds them."""
    cut = _cut(inputs)
    return references.with_references(text.text, cut, _held(inputs)) if settings.against else cut


def _cut(inputs: Inputs) -> NDArray[np.uint64]:
    return dedup_ranges.read_ranges(inputs["cuts"].folder() / CUT_RANGES)


def _held(inputs: Inputs) -> NDArray[np.uint64]:
    """uint64 (r, 3): the ranges that references hold, each with the number of its reference."""
    return np.fromfile(inputs["cuts"].folder() / REFERENCE_RANGES, "<u8").reshape(-1, 3).astype(np.uint64)


def hits_of(inputs: Inputs, settings: Settings, text: TextShard, ranges: NDArray[np.uint64]) -> Hits:
    """The hits of a shard's documents, with positions in the text without `ranges` if those are removed."""
    if "hits" not in inputs:
        return {}
    if settings.mode != "remove":
        ranges = ranges[:0]
    removed = np.concatenate([np.zeros(1, np.int64), np.cumsum((ranges[:, 1] - ranges[:, 0]).astype(np.int64))])

    def removed_before(position: int) -> int:
        behind = int(np.searchsorted(ranges[:, 1], np.uint64(position), side="right"))
        cut = max(position - int(ranges[behind, 0]), 0) if behind < len(ranges) else 0
        return int(removed[behind]) + cut

    hits: Hits = {}
    for document, row in _rows_left(inputs, "hits", HITS, HIT_DOCUMENTS):
        start = int(text.offsets[document]) + 1
        before = removed_before(start)
        begin, end = (place - removed_before(start + place) + before for place in (row["begin"], row["end"]))
        about = {name: row[name] for name in ("benchmark", "item", "part")}
        hits.setdefault(document, []).append({**about, "begin": begin, "end": end, "share": row["share"]})
    return hits


def near_of(inputs: Inputs, settings: Settings) -> Hits:
    """Of a shard's documents that nearly duplicate one, that one."""
    if "near" not in inputs:
        return {}
    rows = _rows_left(inputs, "near", PAIRS, LEFT_OUT)
    return {document: [_about_kept(row, settings)] for document, row in rows}


def _about_kept(row: dict[str, Any], settings: Settings) -> dict[str, Any]:
    of_reference = {"reference": row.get("kept_reference", 0)} if settings.near_references else {}
    kept = {name: row[f"kept_{name}"] for name in ("id", "file", "line")}
    return {**of_reference, **kept, "similarity": row["similarity"]}


def _rows_left(inputs: Inputs, name: str, rows: str, documents: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file of JSON lines of an input, each with its document, by its ordinal in the final text shard.

    Not those of documents that were dropped since. `documents`: the file of their ordinals in the searched shard.
    """
    folder = inputs[name].folder()
    left = _places_left(inputs["text"], np.fromfile(folder / documents, "<u8").astype(np.int64)).tolist()
    with (folder / rows).open("rb") as lines:
        for document, row in zip(left, map(orjson.loads, lines), strict=True):
            if document >= 0:
                yield document, row


def _places_left(final: Input, documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ordinals in the final text shard of documents of the one that was searched; -1 for those that were dropped
    since, as emptied.
    """
    if final.stage != "refine":
        return documents
    gone = np.fromfile(final.folder() / "left_out", "<u8").astype(np.int64)
    return np.where(np.isin(documents, gone), -1, documents - np.searchsorted(gone, documents))


def hits_column() -> Any:
    """The type of the hits in parquet."""
    return _column(benchmark="string", item="string", part="string", begin="int64", end="int64", share="float64")


def near_column(*, references: bool) -> Any:
    """The type of what is nearly duplicated in parquet."""
    of_reference = {"reference": "int64"} if references else {}
    return _column(**of_reference, id="string", file="string", line="int64", similarity="float64")


def _column(**kinds: str) -> Any:
    """The type of a list of structs in parquet; `kinds`: of each field."""
    return pa.list_(pa.struct([pa.field(name, kind) for name, kind in kinds.items()]))


def expected_annotations(inputs: Inputs, settings: Settings, text: TextShard) -> ContentSum:
    """The content sum of all annotations of a shard, recomputed from the outputs of union and decontaminate."""
    cut, tally = _cut(inputs), NOTHING
    if settings.mode == "annotate":
        tally += dedup_annotations.tally_of(_expected_ranges(inputs, settings, text, cut), int(inputs.unit))
        cut = cut[:0]
    if "hits" in inputs:
        tally += dedup_annotations.tally_of(_expected_hits(inputs, settings, text, cut), int(inputs.unit))
    if "near" in inputs:
        tally += dedup_annotations.tally_of(_expected_near(inputs, settings, text, cut), int(inputs.unit))
    return tally


def _expected_ranges(
    inputs: Inputs, settings: Settings, text: TextShard, cut: NDArray[np.uint64]
) -> dict[int, list[list[int]]]:
    """Each document's ranges; the reference of each is that of its last byte."""
    ranges, labels = cut, np.empty((len(cut), 0), np.int64)
    if settings.against:
        ranges = ranges_of(inputs, settings, text)[:, :2]
        held = np.concatenate([np.zeros((1, 3), np.uint64), _held(inputs)])
        at = held[np.searchsorted(held[:, 0], ranges[:, 1], side="left") - 1]  # the last row that begins before the end
        labels = np.where(at[:, 1] >= ranges[:, 1], at[:, 2] + np.uint64(1), np.uint64(0)).astype(np.int64)[:, None]
    owner = np.searchsorted(text.offsets, ranges[:, 0]) - 1
    places = ranges.astype(np.int64) - text.offsets[owner].astype(np.int64)[:, None] - 1
    by_document: dict[int, list[list[int]]] = {}
    for document, row in zip(owner.tolist(), np.concatenate([places, labels], axis=1).tolist(), strict=True):
        by_document.setdefault(document, []).append(row)
    return by_document


def _expected_hits(inputs: Inputs, settings: Settings, text: TextShard, removed: NDArray[np.uint64]) -> Hits:
    """Each document's hits, by its line in its file; positions are counted byte by byte in the kept text."""
    hits: Hits = {}
    for document, row, stays in _placed_rows(inputs, settings, text, removed, inputs["hits"].folder() / HITS):
        places = {name: int(np.count_nonzero(stays[: row[name]])) for name in ("begin", "end")}
        about = {name: row[name] for name in ("benchmark", "item", "part", "share")}
        hits.setdefault(document, []).append({**about, **places})
    return hits


def _expected_near(inputs: Inputs, settings: Settings, text: TextShard, removed: NDArray[np.uint64]) -> Hits:
    """What each document nearly duplicates, by its line in its file."""
    rows = _placed_rows(inputs, settings, text, removed, inputs["near"].folder() / PAIRS)
    return {document: [_about_kept(row, settings)] for document, row, _ in rows}


def _placed_rows(
    inputs: Inputs, settings: Settings, text: TextShard, removed: NDArray[np.uint64], path: Path
) -> Iterator[tuple[int, dict[str, Any], NDArray[np.bool_]]]:
    """The rows of a file of JSON lines, each with the document that it names, and which bytes of its text are kept.

    Not those of documents that were dropped before, or are because nothing of them is kept.
    """
    place = places_in(inputs.source.files, text, settings.lines_before)
    documents = {place(ordinal): ordinal for ordinal in range(text.documents)}
    with path.open("rb") as rows:
        for row in map(orjson.loads, rows):
            document = documents.get((row["file"], row["line"] - 1))
            if document is None:
                continue
            stays = _stays(text, document, removed)
            if stays.any() or not settings.drop_empty:
                yield document, row, stays


def _stays(text: TextShard, document: int, removed: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which bytes of a document's text are kept."""
    origin = int(text.offsets[document]) + 1
    stays = np.ones(len(text.document_bytes(document)), np.bool_)
    low, high = np.searchsorted(removed[:, 0], [origin, origin + len(stays)])
    for start, end in removed[low:high].tolist():
        stays[start - origin : end - origin] = False
    return stays
