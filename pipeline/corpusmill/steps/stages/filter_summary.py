"""What steps, decisions and takedowns did in all shards, for the report."""

from __future__ import annotations

from collections import Counter

import orjson

from corpusmill.engine.build import Build
from corpusmill.engine.stage import every
from corpusmill.report.content import DecisionsFound, DroppedExample, FilterSummary, StepFound
from corpusmill.steps.stages.applying import GONE, GONE_BYTES, SAMPLES, dropped_by_reason
from corpusmill.steps.stages.decided import first_unmatched

EXAMPLES = 5  # of a reason, and of rows without a document
STAGES = ("filter", "refine")


def filter_summary(build: Build) -> FilterSummary | None:
    """What the list of `forget`, decisions and steps dropped and changed; None if the dataset has none of them."""
    if not any(build.units(stage) for stage in (*STAGES, "decided")):
        return None
    totals: Counter[str] = Counter()
    early, late = (build.rollup(stage).totals for stage in STAGES)
    for of_stage in (early, late):
        totals.update(of_stage)
    documents, text_bytes = (dropped_by_reason(totals, of) for of in (GONE, GONE_BYTES))
    reasons = [
        StepFound(reason=name, documents=count, text_bytes=text_bytes[name]) for name, count in documents.items()
    ]
    return FilterSummary(
        documents=build.total("index", "documents_out"),
        documents_dropped=sum(documents.values()),
        documents_dropped_late=sum(dropped_by_reason(late).values()),
        documents_lost=build.total("lost", "documents_lost"),
        text_bytes_lost=build.total("lost", "text_bytes_lost"),
        documents_rewritten=early.get("documents_rewritten", 0),
        documents_rewritten_late=late.get("documents_rewritten", 0),
        documents_with_attributes=early.get("documents_with_attributes", 0),
        documents_with_attributes_late=late.get("documents_with_attributes", 0),
        failed=dict(sorted(dropped_by_reason(totals, "failed_").items())),
        reasons=tuple(sorted(reasons, key=lambda row: (-row.documents, row.reason))),
        examples=tuple(_examples(build)),
        decisions=decisions_found(build),
    )


def decisions_found(build: Build) -> tuple[DecisionsFound, ...]:
    """How many rows of each list match a document, and the first that do not."""
    return tuple(
        DecisionsFound(
            name=name,
            decisions=build.receipt("decisions", name).counts["decisions"],
            unmatched=build.receipt("decided", name).counts["unmatched"],
            unmatched_places=first_unmatched(build, name, EXAMPLES),
        )
        for name in build.units("decided")
    )


def _examples(build: Build) -> list[DroppedExample]:
    """The first few documents of each reason, in dataset order."""
    shown: dict[str, list[DroppedExample]] = {}
    for stage, shard in [*every(build, "filter"), *every(build, "refine")]:
        with build.opened(stage, shard) as folder, (folder / SAMPLES).open("rb") as rows:
            for row in map(orjson.loads, rows):
                examples = shown.setdefault(row["reason"], [])
                if len(examples) < EXAMPLES:
                    examples.append(
                        DroppedExample(
                            reason=row["reason"],
                            source_file=row["file"],
                            line=row["line"],
                            id=row["id"],
                            text_bytes=row["text_bytes"],
                            excerpt=row["preview"],
                        )
                    )
    return [example for reason in sorted(shown) for example in shown[reason]]
