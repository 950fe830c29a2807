"""Index: parses every line of a shard's source files once, into the text shard that all later stages read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.errors import RejectedDocumentsError
from corpusmill.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.sources.copies import PARQUET
from corpusmill.stages import download
from corpusmill.stages.parts import file_of_part

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.report.facts import Flow

QUARANTINE = "quarantine.jsonl"
RENAMED = "quarantine"  # the stage that names the rejected lines of cut files as the user does
EXAMPLES = 5


def text_stage(build: Build, shard: str) -> str:
    """The stage whose text of a shard dedup reads: index, or the last stage before dedup that changes it."""
    changing = build.config.decontamination is not None and build.config.decontamination.changes_text()
    return "decontaminate" if changing else filtered_stage(build, shard)


def final_stage(build: Build, shard: str) -> str:
    """The stage whose text of a shard is written back and tokenized: what dedup read, or what late steps made of it."""
    return "refine" if build.units("refine") else text_stage(build, shard)


def filtered_stage(build: Build, shard: str) -> str:
    """The stage whose text of a shard is searched for benchmark items: filter if it runs on that shard, else index."""
    return "filter" if shard in _filtered_shards(build) else "index"


def _filtered_shards(build: Build) -> frozenset[str]:
    return build.remembered(("filtered shards",), lambda: frozenset(build.units("filter")))


def text_total(build: Build, count: str, stage: Callable[[Build, str], str] = text_stage) -> int:
    """One count summed over the steps that hold the text of all shards."""
    steps = [(stage(build, shard), shard) for shard in build.units("index")]
    if len({name for name, _ in steps}) == 1:
        return build.total(steps[0][0], count)
    return sum(build.receipt(name, shard).counts[count] for name, shard in steps)


def rejected_reasons(counts: Mapping[str, int]) -> dict[str, int]:
    """Rejected lines by reason, from the counts of an index receipt, or of all."""
    return {name.removeprefix("rejected_"): count for name, count in counts.items() if name.startswith("rejected_")}


# `corpusmill dedup` and `infini-gram` have no configuration file.
ALLOW_MORE = "raise source.max_rejected_share (--max-rejected-share of a command) if you accept losing these lines"


def require_few_rejected(build: Build) -> None:
    """Raise RejectedDocumentsError if more lines of the whole dataset are rejected than the configuration allows."""
    lines, reasons = build.total("index", "lines"), rejected_reasons(build.rollup("index").totals)
    rejected = sum(reasons.values())
    allowed = build.config.source.max_rejected_share
    if rejected <= allowed * lines:
        return
    worst = max(build.units("index"), key=lambda shard: _rejected(build.receipt("index", shard)))
    examples = [f"{file} line {line}: {reason}" for file, line, reason in rejected_examples(build, worst)]
    raise RejectedDocumentsError(
        f"{rejected:,} of {lines:,} lines are malformed",
        where="\n".join(examples),
        expected=f"at most {allowed:.4%} (source.max_rejected_share)",
        got=f"{rejected / lines:.4%}: " + ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items())),
        details=(("quarantine", quarantine_of(build, worst)),),
        next_step=f"fix the source, or {ALLOW_MORE}",
    )


def rejected_examples(build: Build, shard: str) -> list[tuple[str, int, str]]:
    """(source file, line from 1, reason) of the first rejected lines of a shard."""
    details = build.receipt("index", shard).details["examples"]
    places = {source: file_of_part(build, int(shard), source) for source in {detail["source"] for detail in details}}
    return [
        (places[detail["source"]][0], places[detail["source"]][1] + detail["line"], detail["reason"])
        for detail in details
    ]


def quarantine_of(build: Build, shard: str) -> Path:
    """The file of a shard's rejected lines, named as in the user's own files."""
    return build.folder(RENAMED if shard in build.units(RENAMED) else "index", shard, QUARANTINE) / QUARANTINE


def _rejected(receipt: Receipt) -> int:
    return sum(rejected_reasons(receipt.counts).values())


def _settings(build: Build, shard: str) -> dict[str, Any]:
    source = build.config.source
    tables = any(file.name.endswith(PARQUET) for file in build.plan.shards[int(shard)])
    libraries = versions_of("orjson", "msgspec", *(["pyarrow"] if tables else []))
    return {"text_field": source.text_field, "id_field": source.id_field, "libraries": libraries}


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.content import ContentSum
    from corpusmill.content_kernels import texts_sum
    from corpusmill.documents.quarantine import append_rejections
    from corpusmill.documents.text_shard import TextShardWriter
    from corpusmill.report.histograms import merge_histograms, power_histogram
    from corpusmill.sources.copies import count_traffic, read_source
    from corpusmill.storage import Traffic

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
    reasons = tuple((f"rejected {reason}", count) for reason, count in rejected_reasons(counts).items())
    files = Check("files", (("downloaded", downloaded),), (("indexed", counts["files"]),))
    return [files, Check("lines", (("lines", counts["lines"]),), (("documents", counts["documents_out"]), *reasons))]


def text_flow(build: Build, out: int) -> Flow:
    """The flow of text to `out` bytes: from the text that late steps kept, or from what dedup read."""
    from corpusmill.report.facts import Flow

    if build.units("refine"):
        into = build.total("refine", "text_bytes_out") - build.total("refine", "removed_bytes")
        return Flow(into=into, out=out)
    return deduplicated_flow(build, out)


def deduplicated_flow(build: Build, out: int) -> Flow:
    """The flow of the text that dedup read, to `out` bytes."""
    from corpusmill.report.facts import Flow

    into = text_total(build, "text_bytes_out")
    if not build.plan.references:
        return Flow(into=into, out=out, lost={"duplicates": into - out} if into > out else {})
    held = build.total("union", "reference_bytes") if into > out else 0
    lost = {"in references": held, "duplicates": into - out - held}
    return Flow(into=into, out=out, lost={reason: count for reason, count in lost.items() if count})


def _flows(build: Build) -> dict[str, Flow]:
    from corpusmill.report.facts import Flow

    lost = rejected_reasons(build.rollup("index").totals)
    out = build.total("index", "text_bytes_out")
    documents = Flow(into=build.total("index", "lines"), out=build.total("index", "documents_out"), lost=lost)
    return {"documents": documents, "text_bytes": Flow(into=out, out=out)}


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    import numpy as np

    from corpusmill.content import ContentSum
    from corpusmill.content_kernels import texts_sum
    from corpusmill.documents.batch import SEPARATOR
    from corpusmill.documents.quarantine import read_quarantine
    from corpusmill.documents.text_shard import SOURCES_FILE, TEXT_FILE, open_text_shard
    from corpusmill.stages.recounting import BLOCK, contradiction
    from corpusmill.tokens.runs import runs

    text = open_text_shard(folder)
    bounds = text.bounds(0, text.documents)
    separators = sum(int((text.text[at : at + BLOCK] == SEPARATOR[0]).sum()) for at in range(0, len(text.text), BLOCK))
    if separators != text.documents or bool((bounds[1:] <= bounds[:-1]).any()):
        expected = f"{text.documents:,} separators, one at every offset, ascending"
        raise contradiction(folder / TEXT_FILE, expected, f"{separators:,} separators")
    rejected: Counter[str] = Counter()
    for source in text.sources:
        rejected.update(source.rejected)
    with (folder / QUARANTINE).open("rb") as stream:
        kept = Counter(line.reason.value for _, line in read_quarantine(stream, name=str(folder / QUARANTINE)))
    if kept != rejected:
        raise contradiction(folder / QUARANTINE, f"{dict(rejected)}, as {SOURCES_FILE} says", dict(kept))
    counts = {
        "files": len(text.sources),
        "lines": sum(source.lines for source in text.sources),
        "documents_out": text.documents,
        "documents_empty": int((np.diff(bounds) == 1).sum()),
        "text_bytes_out": text.text_bytes,
        "bytes_read": sum(source.line_bytes for source in text.sources),
        **{f"rejected_{reason}": count for reason, count in rejected.items()},
    }
    content = ContentSum()
    for first, last in runs(bounds[1:], BLOCK):
        content += texts_sum(text.text, bounds[first : last + 1], 1, int(unit), first)
    return Recount(counts, {"content": str(content)})


STAGE = Stage(
    "index",
    version=5,
    after=("download",),
    per_shard=True,
    units_of="download",
    inputs=lambda _build, shard: [("download", shard)],
    settings=_settings,
    run=_run,
    stores=True,
    recount=_recount,
    flows=_flows,
    checks=_checks,
    read_until="audit",
)
