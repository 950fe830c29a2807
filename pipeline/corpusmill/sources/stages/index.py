"""Index: parses every line of a shard's source files once, into the text shard that all later stages read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.engine.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.errors import RejectedDocumentsError
from corpusmill.kernels import advance
from corpusmill.kernels.content import ContentSum
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.sources.copies import count_traffic, libraries_of, read_source
from corpusmill.sources.parts import file_of_part, shard_sources
from corpusmill.sources.stages.download import local_copies
from corpusmill.storage import Traffic

with lazily:
    import numpy as np

    from corpusmill.documents import batch as documents_batch
    from corpusmill.documents import quarantine as documents_quarantine
    from corpusmill.documents import text_shard
    from corpusmill.engine import recounting
    from corpusmill.kernels import content_kernels, slices
    from corpusmill.report import histograms


if TYPE_CHECKING:
    from corpusmill.documents.batch import DocumentBatch
    from corpusmill.documents.text_shard import TextShard, TextShardWriter
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import SourceFile
    from corpusmill.sources.copies import SourceCopy, TextFields

QUARANTINE = "quarantine.jsonl"
RENAMED = "quarantine"  # the stage that names the rejected lines of cut files as the user does
EXAMPLES = 5


def text_stage(build: Build, shard: str) -> str:
    """The stage whose text of a shard dedup reads: index, or the last stage before dedup that changes it."""
    near = build.config.near_duplicates
    return "near_duplicates" if near is not None and near.action == "remove" else compared_stage(build, shard)


def final_stage(build: Build, shard: str) -> str:
    """The stage whose text of a shard is written back and tokenized: what dedup read, or what late steps made of it."""
    return "refine" if build.units("refine") else text_stage(build, shard)


def compared_stage(build: Build, shard: str) -> str:
    """The stage whose text of a shard is compared for near-duplicates: decontaminate if it changes texts, else the
    stage before it.
    """
    changing = build.config.decontamination is not None and build.config.decontamination.changes_text()
    return "decontaminate" if changing else filtered_stage(build, shard)


def filtered_stage(build: Build, shard: str) -> str:
    """The stage whose text of a shard is searched for benchmark items: filter if it runs on that shard, else index."""
    return "filter" if build.has_unit("filter", shard) else "index"


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
    rejected = documents_batch.malformed(reasons)
    allowed = build.config.source.max_rejected_share
    if rejected / max(lines, 1) <= allowed:
        return
    worst = max(build.units("index"), key=lambda shard: _malformed(build.receipt("index", shard)))
    examples = [f"{file} line {line}: {reason}" for file, line, reason in rejected_examples(build, worst)]
    raise RejectedDocumentsError(
        f"documents.too_many_malformed: {rejected:,} of {lines:,} lines are malformed",
        where="\n".join(examples),
        expected=f"at most {allowed:.4%} (source.max_rejected_share)",
        got=f"{rejected / lines:.4%}: " + ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items())),
        details=(("quarantine", quarantine_of(build, worst)),),
        next_step=documents_quarantine.advice_on(quarantine_of(build, worst)) or _next_step(build, reasons),
    )


def _next_step(build: Build, reasons: Mapping[str, int]) -> str:
    """What to do about rejected lines; where most lack their text, another field than the configuration's has it."""
    if reasons.get("missing_text", 0) + reasons.get("text_not_a_string", 0) > sum(reasons.values()) / 2:
        return f"name the field that holds the text in source.text_field, now {build.config.source.text_field!r}"
    return f"fix the source, or {ALLOW_MORE}"


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
    return build.folder(RENAMED if build.has_unit(RENAMED, shard) else "index", shard, QUARANTINE) / QUARANTINE


def _malformed(receipt: Receipt) -> int:
    return documents_batch.malformed(rejected_reasons(receipt.counts))


class Settings(Identity, frozen=True, kw_only=True):
    """The keys of a document, and the libraries that read them. `fields`: those that steps, decisions or the budget ask
    for; UNSET if there are none.
    """

    text_field: str
    id_field: str
    libraries: dict[str, str]
    fields: list[str] | UnsetType = UNSET


def parsing_libraries(files: Iterable[SourceFile]) -> dict[str, str]:
    """The versions of the libraries that read these files."""
    return versions_of("orjson", "msgspec", *libraries_of(file.name for file in files))


def _identity(build: Build, shard: str) -> Settings:
    source, libraries = build.config.source, parsing_libraries(build.plan.shards[int(shard)])
    fields = build.plan.fields or UNSET
    return Settings(text_field=source.text_field, id_field=source.id_field, libraries=libraries, fields=fields)


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:

    shard = int(inputs.unit)
    counts: Counter[str] = Counter(files=0, lines=0, documents_out=0, documents_empty=0, text_bytes_out=0, bytes_read=0)
    examples: list[dict[str, Any]] = []
    lengths = []
    traffic = Traffic()
    content = ContentSum()
    advance.begin(sum(file.size_bytes for file in inputs.source.files))
    fields = settings.fields or ()
    writing = text_shard.TextShardWriter(folder, fields=bool(fields))
    with writing as writer, (folder / QUARANTINE).open("wb") as quarantine:
        for copy in local_copies(inputs["downloaded"], inputs.source, traffic):
            for batch in read_texts(copy, settings, writer, counts, examples, fields):
                first = writer.documents - batch.documents
                content += content_kernels.texts_sum(batch.text, batch.bounds.astype(np.uint64), 1, shard, first)
                documents_quarantine.append_rejections(quarantine, batch)
                counts["documents_empty"] += int(np.count_nonzero(batch.text_lengths == 0))
                lengths.append(histograms.power_histogram(batch.text_lengths))
    counts["documents_out"], counts["text_bytes_out"] = writer.documents, writer.text_bytes
    details = {
        "content": str(content),
        "examples": examples,
        "document_bytes": histograms.merge_histograms(lengths).model_dump(),
    }
    return Outcome(counts=dict(counts), details=details, traffic=count_traffic(traffic))


def read_texts(
    copy: SourceCopy,
    source: TextFields,
    writer: TextShardWriter,
    counts: Counter[str],
    examples: list[dict[str, Any]],
    fields: Sequence[str] = (),
) -> Iterator[DocumentBatch]:
    """Write the texts of a source file, and the fields that are asked for, to a text shard; gives each batch once it is
    written.

    `counts` and `examples` receive what is read and rejected, and the places of the first rejected lines.
    """
    writer.start_source(copy.name)
    counts["files"] += 1
    for batch in read_source(copy, source, fields):
        writer.append(batch)
        counts["lines"] += batch.lines
        counts["bytes_read"] += batch.line_bytes
        for rejection in batch.rejections:
            counts[f"rejected_{rejection.reason.value}"] += 1
            if len(examples) < EXAMPLES and rejection.reason is not documents_batch.RejectionReason.BLANK_LINE:
                line, reason = rejection.line_number + 1, rejection.reason.value
                examples.append({"source": copy.name, "line": line, "reason": reason})
        advance.note(batch.line_bytes, 0)
        yield batch


def recount_texts(text: TextShard) -> dict[str, int]:
    """The counts that a text shard's own files give."""
    rejected: Counter[str] = Counter()
    for source in text.sources:
        rejected.update(source.rejected)
    return {
        "files": len(text.sources),
        "lines": sum(source.lines for source in text.sources),
        "documents_out": text.documents,
        "text_bytes_out": text.text_bytes,
        "bytes_read": sum(source.line_bytes for source in text.sources),
        **{f"rejected_{reason}": count for reason, count in rejected.items()},
    }


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    counts = receipt.counts
    downloaded = build.receipt("download", shard).counts["files"]
    reasons = tuple((f"rejected {reason}", count) for reason, count in rejected_reasons(counts).items())
    files = Check("files", (("downloaded", downloaded),), (("indexed", counts["files"]),))
    return [files, Check("lines", (("lines", counts["lines"]),), (("documents", counts["documents_out"]), *reasons))]


def text_flow(build: Build, out: int) -> Flow:
    """The flow of text to `out` bytes: from the text that late steps kept, or from what dedup read."""
    if build.units("refine"):
        into = build.total("refine", "text_bytes_out") - build.total("refine", "removed_bytes")
        return Flow(into=into, out=out)
    return deduplicated_flow(build, out)


def deduplicated_flow(build: Build, out: int) -> Flow:
    """The flow of the text that dedup read, to `out` bytes."""
    into = text_total(build, "text_bytes_out")
    if not build.plan.references:
        return Flow(into=into, out=out, lost={"duplicates": into - out} if into > out else {})
    held = build.total("union", "reference_bytes") if into > out else 0
    lost = {"in references": held, "duplicates": into - out - held}
    return Flow(into=into, out=out, lost={reason: count for reason, count in lost.items() if count})


def _flows(build: Build) -> dict[str, Flow]:
    lost = rejected_reasons(build.rollup("index").totals)
    out = build.total("index", "text_bytes_out")
    documents = Flow(into=build.total("index", "lines"), out=build.total("index", "documents_out"), lost=lost)
    return {"documents": documents, "text_bytes": Flow(into=out, out=out)}


def _recount(_build: Build, unit: str, folder: Path) -> Recount:

    text = text_shard.open_text_shard(folder)
    bounds = text.bounds(0, text.documents)
    separators = sum(
        int((text.text[at : at + recounting.BLOCK] == documents_batch.SEPARATOR[0]).sum())
        for at in range(0, len(text.text), recounting.BLOCK)
    )
    if separators != text.documents or bool((bounds[1:] <= bounds[:-1]).any()):
        expected = f"{text.documents:,} separators, one at every offset, ascending"
        raise recounting.contradiction(folder / text_shard.TEXT_FILE, expected, f"{separators:,} separators")
    counts = recount_texts(text)
    rejected = rejected_reasons(counts)
    with (folder / QUARANTINE).open("rb") as stream:
        kept = Counter(
            line.reason.value for _, line in documents_quarantine.read_quarantine(stream, name=str(folder / QUARANTINE))
        )
    if kept != rejected:
        raise recounting.contradiction(
            folder / QUARANTINE, f"{rejected}, as {text_shard.SOURCES_FILE} says", dict(kept)
        )
    counts["documents_empty"] = int((np.diff(bounds) == 1).sum())
    content = ContentSum()
    for first, last in slices.runs(bounds[1:], recounting.BLOCK):
        content += content_kernels.texts_sum(text.text, bounds[first : last + 1], 1, int(unit), first)
    return Recount(counts, {"content": str(content)})


STAGE = Stage(
    "index",
    version=5,
    after=("download",),
    per_shard=True,
    units_of="download",
    work=Work(Settings, _identity, lambda _build, shard: {"downloaded": [("download", shard)]}, _run, shard_sources),
    recount=_recount,
    checks=_checks,
    read_until="audit",
    schedule=Schedule(stores=True),
    shown=Shown(flows=_flows),
)
