"""What writeback adds to documents: the ranges that repeat, and the items of benchmarks that a document holds.

Both are lists, empty where there is nothing to say. Positions are bytes of the text as it is written, as UTF-8.

    dedup.annotate_key            [start, end] of each range; with `against` [start, end, reference], which is 0 for
                                  the dataset itself and n for the n-th entry of `against`
    decontamination.annotate_key  {benchmark, item, part, begin, end, share} of each hit; begin = end where dedup
                                  removed the whole passage
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpusmill.content import NOTHING, ContentSum
from corpusmill.stages.decontaminate import HIT_DOCUMENTS, HITS
from corpusmill.stages.union import CUT_RANGES, REFERENCE_RANGES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build

Hits = dict[int, list[dict[str, Any]]]
"""What is said of the hits of each document that has one, by its ordinal."""


def annotates_hits(build: Build) -> bool:
    """Whether documents get the items that they hold."""
    return build.config.decontamination is not None and build.config.decontamination.action == "annotate"


def ranges_of(build: Build, shard: str, text: TextShard) -> NDArray[np.uint64]:
    """(m, 2) what writeback cuts or notes of a shard's text; (m, 3) where it also notes which reference holds it."""
    import numpy as np

    from corpusmill.dedup.ranges import read_ranges
    from corpusmill.dedup.references import with_references

    folder = build.folder("union", shard)
    cut = read_ranges(folder / CUT_RANGES)
    if build.config.dedup.mode != "annotate" or not build.plan.references:
        return cut
    held = np.fromfile(folder / REFERENCE_RANGES, "<u8").reshape(-1, 3).astype(np.uint64)
    return with_references(text.text, cut, held)


def hits_of(build: Build, shard: str, text: TextShard, ranges: NDArray[np.uint64]) -> Hits:
    """The hits of a shard's documents, at their places in the text without `ranges`, if these are removed."""
    import numpy as np
    import orjson

    if not annotates_hits(build):
        return {}
    folder = build.folder("decontaminate", shard)
    documents = np.fromfile(folder / HIT_DOCUMENTS, "<u8").tolist()
    if build.config.dedup.mode != "remove":
        ranges = ranges[:0]
    removed = np.concatenate([np.zeros(1, np.int64), np.cumsum((ranges[:, 1] - ranges[:, 0]).astype(np.int64))])

    def removed_before(position: int) -> int:
        behind = int(np.searchsorted(ranges[:, 1], np.uint64(position), side="right"))
        cut = max(position - int(ranges[behind, 0]), 0) if behind < len(ranges) else 0
        return int(removed[behind]) + cut

    hits: Hits = {}
    with (folder / HITS).open("rb") as rows:
        for document, row in zip(documents, map(orjson.loads, rows), strict=True):
            start = int(text.offsets[document]) + 1
            before = removed_before(start)
            begin, end = (place - removed_before(start + place) + before for place in (row["begin"], row["end"]))
            about = {name: row[name] for name in ("benchmark", "item", "part")}
            hits.setdefault(document, []).append({**about, "begin": begin, "end": end, "share": row["share"]})
    return hits


def hits_column() -> Any:
    """The type of the hits in parquet."""
    import pyarrow as pa

    words = [pa.field(name, pa.string()) for name in ("benchmark", "item", "part")]
    places = [pa.field(name, pa.int64()) for name in ("begin", "end")]
    return pa.list_(pa.struct([*words, *places, pa.field("share", pa.float64())]))


def expected_tally(build: Build, shard: str, text: TextShard, ranges: NDArray[np.uint64], hits: Hits) -> ContentSum:
    """The content sum of all that writeback must note of a shard, from the ranges and hits themselves."""
    import numpy as np

    from corpusmill.dedup.annotations import tally_of

    tally = tally_of(hits, int(shard)) if hits else NOTHING
    if build.config.dedup.mode != "annotate" or not len(ranges):
        return tally
    owner = np.searchsorted(text.offsets, ranges[:, 0]) - 1
    noted = ranges.astype(np.int64)
    noted[:, :2] -= text.offsets[owner].astype(np.int64)[:, None] + 1
    by_document: dict[int, list[list[int]]] = {}
    for document, row in zip(owner.tolist(), noted.tolist(), strict=True):
        by_document.setdefault(document, []).append(row)
    return tally + tally_of(by_document, int(shard))
