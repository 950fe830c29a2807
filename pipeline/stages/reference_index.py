"""Reference index: the anchors of a reference's shard, or its suffix array; every dataset that names it reads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.errors import RejectedDocumentsError, SourceError
from corpusmill.ledger import Outcome
from corpusmill.stages import anchor
from corpusmill.stages.index import ALLOW_MORE, rejected_reasons
from corpusmill.stages.reference import file_of_reference, source_of, units_of

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.build import Build


def _by_suffixes(build: Build) -> bool:
    return build.config.index.method == "suffix_array"


def _settings(build: Build, _unit: str) -> dict[str, Any]:
    minimum_bytes = None if _by_suffixes(build) else build.config.dedup.minimum_bytes  # a suffix array serves all
    return {"method": build.config.index.method, "minimum_bytes": minimum_bytes}


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    from corpusmill.dedup.anchors import write_anchors
    from corpusmill.dedup.suffix_array import write_suffix_array
    from corpusmill.documents.text_shard import open_text_shard

    text = open_text_shard(build.folder("reference", unit))
    if _by_suffixes(build):
        counts = write_suffix_array(text.text, folder, unigram=False)
    else:
        minimum_bytes = build.config.dedup.minimum_bytes
        assert minimum_bytes is not None
        counts = write_anchors(text.text, text.offsets, minimum_bytes, folder)
    return Outcome(counts={"bytes_read": len(text.text), **counts})


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
                f"{rejected:,} of {lines:,} lines of a reference are malformed",
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
                "a reference has no text, so everything would be new",
                where=f"dedup.against: {reference.path}",
                expected="documents with text",
                got=f"{lines:,} lines, none of which has any",
                next_step="name the files that hold it, or leave the reference out",
            )


def _recount(build: Build, unit: str, folder: Path) -> Recount:
    if not _by_suffixes(build):
        return anchor.STAGE.recount(build, unit, folder)
    from corpusmill.dedup.suffix_array import open_suffix_array

    text_bytes = build.receipt("reference", unit).counts["text_bytes_out"]
    documents = build.receipt("reference", unit).counts["documents_out"]
    suffixes = open_suffix_array(folder, text_bytes + documents)
    return Recount({"suffixes": len(suffixes), "pointer_bytes": suffixes.pointer_bytes})


def _memory(config: DatasetConfig) -> tuple[str, int] | None:
    if config.index.method != "suffix_array" or not config.dedup.against:
        return None
    return "dedup.against", 10 * max(
        int(reference.shard_bytes) for reference in config.dedup.against
    )  # as of suffix_array


STAGE = Stage(
    "reference_index",
    version=1,
    after=("reference",),
    group="find_ranges",
    units_of="reference",
    inputs=lambda _build, unit: [("reference", unit)],
    settings=_settings,
    run=_run,
    common=True,
    recount=_recount,
    memory=_memory,
    gate=require_readable,
    on_trunk=False,
)
