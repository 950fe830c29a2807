"""Reference index: the anchors of a reference's shard; every dataset that names it reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from corpusmill.dedup.stages import anchor
from corpusmill.dedup.stages.reference import file_of_reference, source_of, units_of
from corpusmill.engine.stage import Shown
from corpusmill.errors import RejectedDocumentsError, SourceError
from corpusmill.sources.stages.index import ALLOW_MORE, rejected_reasons

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def require_readable(build: Build) -> None:
    """SourceError for a reference without a document, RejectedDocumentsError for one with too many malformed lines.

    Nothing would be found in it, and all text would count as new.
    """
    for wanted, reference in zip(build.config.dedup.against or (), build.plan.references or (), strict=True):
        receipts = [build.receipt("reference", unit) for unit in units_of(reference)]
        lines = sum(receipt.counts["lines"] for receipt in receipts)
        rejected = sum(sum(rejected_reasons(receipt.counts).values()) for receipt in receipts)
        allowed = build.config.source.max_rejected_share
        if rejected > allowed * lines:
            examples = [
                (*file_of_reference(build, receipt.unit, example["source"]), example)
                for receipt in receipts
                for example in receipt.details["examples"]
            ][:5]
            raise RejectedDocumentsError(
                f"reference.too_many_malformed: {rejected:,} of {lines:,} lines of a reference are malformed",
                where="\n".join(
                    f"{file} line {before + example['line']}: {example['reason']}" for file, before, example in examples
                ),
                expected=f"at most {allowed:.4%} (source.max_rejected_share), with their text under the key"
                f" {source_of(build.config.source, wanted).text_field}",
                got=f"{rejected / lines:.4%} of {reference.path}",
                next_step="name the key that holds its text: dedup.against: [{path: ..., text_field: ...}];"
                f" or {ALLOW_MORE}",
            )
        if rejected == lines or not any(receipt.counts["text_bytes_out"] for receipt in receipts):
            raise SourceError(
                "reference.no_text: a reference has no text, so everything would be new",
                where=f"dedup.against: {reference.path}",
                expected="documents with text",
                got=f"{lines:,} lines, none of which has any",
                next_step="name the files that hold it, or leave the reference out",
            )


STAGE = replace(
    anchor.STAGE,
    name="reference_index",
    version=1,
    after=("reference",),
    per_shard=False,
    units_of="reference",
    common=True,
    gate=require_readable,
    shown=Shown(on_trunk=False),
)
