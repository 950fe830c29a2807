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
    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build
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


def annotates_hits(build: Build) -> bool:
    """Whether documents are annotated with the benchmark items that they hold."""
    return build.config.decontamination is not None and build.config.decontamination.action == "annotate"


def annotates_near(build: Build) -> bool:
    """Whether documents are annotated with the earlier one that they nearly duplicate."""
    return build.config.near_duplicates is not None and build.config.near_duplicates.action == "annotate"


def annotation_keys(config: DatasetConfig) -> list[tuple[str, bool]]:
    """(key, whether it may replace a value) of each annotation that writeback adds."""
    dedup, decontamination = config.dedup, config.decontamination
    keys = [(dedup.annotate_key, dedup.replace_existing)] if dedup.mode == "annotate" else []
    if decontamination and decontamination.action == "annotate":
        keys.append((decontamination.annotate_key, False))
    if config.near_duplicates and config.near_duplicates.action == "annotate":
        keys.append((config.near_duplicates.annotate_key, False))
    return keys if dedup.writeback else []


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
    folder = inputs["hits"].folder()
    documents = _places_left(inputs["text"], np.fromfile(folder / HIT_DOCUMENTS, "<u8").astype(np.int64)).tolist()
    if settings.mode != "remove":
        ranges = ranges[:0]
    removed = np.concatenate([np.zeros(1, np.int64), np.cumsum((ranges[:, 1] - ranges[:, 0]).astype(np.int64))])

    def removed_before(position: int) -> int:
        behind = int(np.searchsorted(ranges[:, 1], np.uint64(position), side="right"))
        cut = max(position - int(ranges[behind, 0]), 0) if behind < len(ranges) else 0
        return int(removed[behind]) + cut

    hits: Hits = {}
    with (folder / HITS).open("rb") as rows:
        for document, row in zip(documents, map(orjson.loads, rows), strict=True):
            if document < 0:
                continue
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
    folder = inputs["near"].folder()
    documents = _places_left(inputs["text"], np.fromfile(folder / LEFT_OUT, "<u8").astype(np.int64)).tolist()
    with (folder / PAIRS).open("rb") as rows:
        each = zip(documents, map(orjson.loads, rows), strict=True)
        return {document: [_about_kept(row, settings)] for document, row in each if document >= 0}


def _about_kept(row: dict[str, Any], settings: Settings) -> dict[str, Any]:
    of_reference = {"reference": row.get("kept_reference", 0)} if settings.near_references else {}
    kept = {name: row[f"kept_{name}"] for name in ("id", "file", "line")}
    return {**of_reference, **kept, "similarity": row["similarity"]}


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
    words = [pa.field(name, pa.string()) for name in ("benchmark", "item", "part")]
    places = [pa.field(name, pa.int64()) for name in ("begin", "end")]
    return pa.list_(pa.struct([*words, *places, pa.field("share", pa.float64())]))


def near_column(*, references: bool) -> Any:
    """The type of what is nearly duplicated in parquet."""
    kinds = {
        "reference": pa.int64(),
        "id": pa.string(),
        "file": pa.string(),
        "line": pa.int64(),
        "similarity": pa.float64(),
    }
    return pa.list_(pa.struct([pa.field(name, kind) for name, kind in kinds.items()][not references :]))


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
    for document, row in _placed_rows(inputs, settings, text, inputs["hits"].folder() / HITS):
        stays = _stays(text, document, removed)
        if not _dropped(settings, stays):
            places = {name: int(np.count_nonzero(stays[: row[name]])) for name in ("begin", "end")}
            about = {name: row[name] for name in ("benchmark", "item", "part", "share")}
            hits.setdefault(document, []).append({**about, **places})
    return hits


def _expected_near(inputs: Inputs, settings: Settings, text: TextShard, removed: NDArray[np.uint64]) -> Hits:
    """What each document nearly duplicates, by its line in its file."""
    rows = _placed_rows(inputs, settings, text, inputs["near"].folder() / PAIRS)
    return {
        document: [_about_kept(row, settings)]
        for document, row in rows
        if not _dropped(settings, _stays(text, document, removed))
    }


def _placed_rows(
    inputs: Inputs, settings: Settings, text: TextShard, path: Path
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file of JSON lines, each with the document that it names; not those that were dropped before."""
    place = places_in(inputs.source.files, text, settings.lines_before)
    documents = {place(ordinal): ordinal for ordinal in range(text.documents)}
    with path.open("rb") as rows:
        for row in map(orjson.loads, rows):
            document = documents.get((row["file"], row["line"] - 1))
            if document is not None:
                yield document, row


def _stays(text: TextShard, document: int, removed: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which bytes of a document's text are kept."""
    origin = int(text.offsets[document]) + 1
    stays = np.ones(len(text.document_bytes(document)), np.bool_)
    low, high = np.searchsorted(removed[:, 0], [origin, origin + len(stays)])
    for start, end in removed[low:high].tolist():
        stays[start - origin : end - origin] = False
    return stays


def _dropped(settings: Settings, stays: NDArray[np.bool_]) -> bool:
    return bool(settings.drop_empty) and not stays.any()
