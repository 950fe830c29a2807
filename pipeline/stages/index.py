"""Index: every line of a shard's source files is parsed once, into the text shard that all later stages read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.engine.stage import Stage
from pipeline.errors import RejectedDocumentsError
from pipeline.ledger import Check, Outcome, Receipt, versions_of
from pipeline.sources.copies import PARQUET
from pipeline.stages import download

if TYPE_CHECKING:
    from pipeline.engine.build import Build

QUARANTINE = "quarantine.jsonl"
EXAMPLES = 5


def rejected_reasons(receipt: Receipt) -> dict[str, int]:
    """Rejected lines by reason, from an index receipt."""
    return {
        name.removeprefix("rejected_"): count for name, count in receipt.counts.items() if name.startswith("rejected_")
    }


def require_few_rejected(build: Build) -> None:
    """Raise RejectedDocumentsError when the whole dataset's rejected lines are more than the configuration allows."""
    receipts = build.receipts("index")
    lines = sum(receipt.counts["lines"] for receipt in receipts)
    reasons: Counter[str] = Counter()
    for receipt in receipts:
        reasons.update(rejected_reasons(receipt))
    rejected = sum(reasons.values())
    allowed = build.config.source.max_rejected_share
    if rejected <= allowed * lines:
        return
    worst = max(build.units("index"), key=lambda shard: sum(rejected_reasons(build.receipt("index", shard)).values()))
    examples = [
        f"{one['source']} line {one['line']}: {one['reason']}"
        for one in build.receipt("index", worst).details["examples"]
    ]
    raise RejectedDocumentsError(
        f"{rejected:,} of {lines:,} lines are not documents",
        where="\n".join(examples),
        expected=f"at most {allowed:.4%} (source.max_rejected_share)",
        got=f"{rejected / lines:.4%}: " + ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items())),
        details=(("quarantine", build.folder("index", worst) / QUARANTINE),),
        next_step="mend the source, or raise source.max_rejected_share if losing these lines is right",
    )


def _settings(build: Build, shard: str) -> dict[str, Any]:
    source = build.config.source
    tables = any(file.name.endswith(PARQUET) for file in build.plan.shards[int(shard)])
    libraries = versions_of("orjson", "msgspec", *(["pyarrow"] if tables else []))
    return {"text_field": source.text_field, "id_field": source.id_field, "libraries": libraries}


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from pipeline.content import ContentSum
    from pipeline.content_kernels import texts_sum
    from pipeline.documents.quarantine import append_rejections
    from pipeline.documents.text_shard import TextShardWriter
    from pipeline.report.histograms import merge_histograms, power_histogram
    from pipeline.sources.copies import count_traffic, read_source
    from pipeline.storage import Traffic

    source = build.config.source
    counts: Counter[str] = Counter(files=0, lines=0, documents_out=0, documents_empty=0, text_bytes_out=0, bytes_read=0)
    examples: list[dict[str, Any]] = []
    lengths = []
    traffic = Traffic()
    content = ContentSum()
    with TextShardWriter(folder) as writer, (folder / QUARANTINE).open("wb") as quarantine:
        for copy in download.local_copies(build, shard, traffic):
            writer.start_source(copy.name)
            counts["files"] += 1
            for batch in read_source(copy, source):
                content += texts_sum(batch.text, batch.bounds.astype(np.uint64), 1, int(shard), writer.documents)
                writer.append(batch)
                append_rejections(quarantine, batch)
                counts["lines"] += batch.lines
                counts["documents_empty"] += int(np.count_nonzero(batch.text_lengths == 0))
                counts["bytes_read"] += batch.line_bytes
                lengths.append(power_histogram(batch.text_lengths))
                for rejection in batch.rejections:
                    counts[f"rejected_{rejection.reason.value}"] += 1
                    if len(examples) < EXAMPLES:
                        line = rejection.line_number + 1
                        examples.append({"source": copy.name, "line": line, "reason": rejection.reason.value})
    counts["documents_out"], counts["text_bytes_out"] = writer.documents, writer.text_bytes
    details = {
        "content": str(content),
        "examples": examples,
        "document_bytes": merge_histograms(lengths).model_dump(),
    }
    return Outcome(counts=dict(counts), details=details, traffic=count_traffic(traffic))


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    counts = receipt.counts
    downloaded = build.receipt("download", shard).counts["files"]
    reasons = tuple((f"rejected {reason}", count) for reason, count in rejected_reasons(receipt).items())
    files = Check("files", (("downloaded", downloaded),), (("indexed", counts["files"]),))
    return [files, Check("lines", (("lines", counts["lines"]),), (("documents", counts["documents_out"]), *reasons))]


STAGE = Stage(
    "index",
    version=4,
    after=("download",),
    per_shard=True,
    units_of="download",
    inputs=lambda _build, shard: [("download", shard)],
    settings=_settings,
    run=_run,
    checks=_checks,
)
