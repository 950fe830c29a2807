"""What the report shows of near-duplicates, whether they were removed or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.dedup.stages.context import sections_in
from corpusmill.lazy import lazily
from corpusmill.near_duplicates.stages.near_duplicates import copies_of_references, documents_at, shares_of
from corpusmill.near_duplicates.stages.rounds import UNIT, place_among, settings_of
from corpusmill.sources.stages.index import compared_stage, text_total

with lazily:
    import numpy as np

    from corpusmill.near_duplicates import decide, examples, groups, signatures, similarity
    from corpusmill.report import content

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.report.content import NearDuplicatePair, NearDuplicateSummary


def near_duplicates(build: Build) -> NearDuplicateSummary | None:
    """What was found, for the report; None where a configuration does not ask for it."""
    if build.config.near_duplicates is None:
        return None
    near, decided = settings_of(build), build.receipt("decide", UNIT)
    return content.NearDuplicateSummary(
        action=near.action,
        similarity=near.similarity,
        words=near.words,
        within=near.within,
        recall=signatures.bands_for(near.similarity).recall(near.similarity),
        documents=decided.counts["documents"],
        left_out=decided.counts["documents_left_out"],
        text_bytes=text_total(build, "text_bytes_out", compared_stage),
        text_bytes_left_out=build.total("near_duplicates", "text_bytes_left_out"),
        by_source=tuple(
            content.SourceLeftOut(path=path, documents=there, left_out=gone) for path, there, gone in shares_of(build)
        ),
        by_reference=tuple(copies_of_references(build)),
        groups=decided.details["groups"],
        by_similarity=decided.details["by_similarity"],
        pairs=_pairs(build, near.similarity),
    )


def _pairs(build: Build, least: float) -> tuple[NearDuplicatePair, ...]:
    """Some of the pairs, with a part of both texts."""
    sections = sections_in(build.blocks("decide", UNIT))
    found = [np.empty(0, similarity.MATCH)]
    for unit in build.units("near_duplicates"):
        shard = place_among(build, unit)
        rows, _ = decide.read_left_out(sections, shard)
        rows = rows[examples.shown_pairs(rows["similarity"], rows["earlier"], least)]
        rows["document"] = groups.numbered(shard, rows["document"])
        found.append(rows)
    rows = np.concatenate(found)
    rows = rows[examples.shown_pairs(rows["similarity"], rows["earlier"], least)]
    found_at = documents_at(build, {*rows["document"].tolist(), *rows["earlier"].tolist()})
    pairs = []
    for document, kept, share in rows.tolist():
        both = found_at[document], found_at[kept]
        sides = [
            content.DocumentExcerpt(source_file=about.file, line=about.line, id=about.id, pieces=of_side)
            for about, of_side in zip(both, examples.marked(both[0].text, both[1].text), strict=True)
        ]
        pairs.append(content.NearDuplicatePair(similarity=share, left_out=sides[0], kept=sides[1]))
    return tuple(pairs)
