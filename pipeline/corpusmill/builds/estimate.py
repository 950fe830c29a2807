"""Estimate: build a sample of the dataset, and scale the result. The real build is not touched.

The sample (sampling.py says how its lines are drawn) is one more dataset: a plan of its own over the drawn lines, in a
temporary work folder, which the ordinary run builds. Its plan says which file and line each of them has, for decisions
and steps; decisions about documents outside of the sample match nothing, which is no error. Counts and bytes are those
of the sample times the bytes of all lines per byte of a drawn line. A sample of everything is exact.

Duplicates are the exception. Text repeats less often within a sample than within the whole, so the duplicate share is a
lower bound, and where duplicates are removed, the token count is only an upper bound.

Time is the seconds of the sample's steps, scaled and divided by the cores, and what loading takes. For that the sample
is built twice: what the first build takes longer is libraries, the tokenizer and kernels. One process builds it, so
cores that wait for each other's memory, and disks, are not seen: a whole build takes longer by that.

References (`dedup.against`) are not sampled: a sample would miss most of their matches. Their cost assumes as much text
in a stored byte as in the dataset's sources, indexed and compared at the sample's speed.

Price: one pass over the drawn files (decompression), and two builds of the sample. Where steps or decisions see lines,
files that are cut are read as a whole.

What it moves between its machines and a work folder in a bucket, requests and bytes, is counted from the receipts of a
finished build, which may be a sample's, by what the code does for each step:

    a step      STEP_REQUESTS: its receipt is looked for before the work and at the commit, and is written; what was
                sent is listed, and so are marks of the plan
    an output   one request; of more than 8 MiB one per part, one to begin and one to complete. `.blocks` is an output
    an input    of a machine that has nothing yet: its receipt, its `.blocks`, one request per 8 MiB of each output
    a stage     STAGE_REQUESTS: the sums of its receipts

From a sample to the whole: shards are counted; of other stages there are as many units as before, or as many as hold
UNIT_BYTES each. Where a step reads little of an input, the count of all of it is too high; listings longer than a page,
retries, `reclaim: eager`, references and the lease are not counted.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from corpusmill.builds.graph import open_build
from corpusmill.builds.plan import plan_sources, write_plan
from corpusmill.builds.preflight import text_of_references
from corpusmill.builds.room import held_by, held_of_references, moments, needed_memory, scaled
from corpusmill.config import DatasetConfig, work_of
from corpusmill.config.epochs import shown_share
from corpusmill.engine.estimates import Estimate, keep_estimate
from corpusmill.engine.plan import DrawnLines, SourceFile, group_into_shards
from corpusmill.engine.work_folder.small import is_shared
from corpusmill.errors import SourceError
from corpusmill.export.formats import FORMATS
from corpusmill.lazy import lazily
from corpusmill.report.figures import bytes_text, seconds_text
from corpusmill.shuffle.stages.budget import amounts_of
from corpusmill.sources.stages.index import final_stage
from corpusmill.storage import list_sources
from corpusmill.storage.mirrored import cache_folder
from corpusmill.storage.s3_multipart import PART_BYTES
from corpusmill.tokens.stages.tokenize import locked

with lazily:
    import numpy as np

    from corpusmill.builds import local, sampling
    from corpusmill.documents import text_shard
    from corpusmill.sources import survey
    from corpusmill.tokens import token_shard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.builds.sampling import DrawnFile
    from corpusmill.engine.build import Build
    from corpusmill.engine.ledger import Receipt
    from corpusmill.engine.plan import Plan


STEP_REQUESTS, STAGE_REQUESTS = 5, 3
UNIT_BYTES = 256 << 20


class Moved(NamedTuple):
    """Requests and bytes of all machines together."""

    requests: int
    bytes: int


def moved_by(build: Build, shards: int, times: Callable[[str], float] = lambda _: 1.0) -> tuple[Moved, Moved]:
    """What one machine that keeps its cache moves; and what machines move that each run one stage with an empty cache.

    build    a finished build
    shards   of the whole
    times    bytes of a stage in the whole for each byte of it here
    """
    grown = shards / max(1, len(build.plan.shards))
    stages = {stage.name: build.receipts(stage.name) for stage in build.graph}
    units = {name: _units(build, name, stages[name], grown, times(name)) for name in stages}
    receipts = {(receipt.stage, receipt.unit): receipt for of_stage in stages.values() for receipt in of_stage}
    written = read = written_bytes = read_bytes = 0.0
    for name, of_stage in stages.items():
        written += STAGE_REQUESTS
        read += STAGE_REQUESTS
        for receipt in of_stage:
            each = times(name) / units[name]
            written += units[name] * (STEP_REQUESTS + 1 + sum(_puts(size * each) for size in _sizes(receipt)))
            written_bytes += times(name) * sum(_sizes(receipt))
        for stage, unit in {step for receipt in of_stage for step in build.inputs(name, receipt.unit)}:
            if (origin := receipts.get((stage, unit))) is not None:  # the plan is not of a stage
                each = times(stage) / units[stage]
                read += units[stage] * (2 + sum(max(1, math.ceil(size * each / PART_BYTES)) for size in _sizes(origin)))
                read_bytes += times(stage) * sum(_sizes(origin))
    return (
        Moved(round(written), round(written_bytes)),
        Moved(round(written + read), round(written_bytes + read_bytes)),
    )


def _units(build: Build, stage: str, receipts: list[Receipt], grown: float, times: float) -> float:
    """Units of a stage in the whole for each of this build."""
    if build.graph[stage].per_shard:
        return grown
    size_bytes = sum(sum(_sizes(receipt)) for receipt in receipts) / max(1, len(receipts))
    return max(1.0, size_bytes * times / UNIT_BYTES)


def _sizes(receipt: Receipt) -> list[int]:
    return [output.size_bytes for output in receipt.outputs]


def _puts(size_bytes: float) -> int:
    return 1 if size_bytes <= PART_BYTES else math.ceil(size_bytes / PART_BYTES) + 2


# Stages that process references, too; the second ones where near-duplicates of them are sought.
OF_REFERENCES = {"index", "anchor", "shared", "context", "settle", "border", "match"}
NEAR_REFERENCES = {"sign", "propose", "sets"}
OF_SHOWN = {"scatter", "gather", "export", "manifest", "upload"}  # stages that process what a budget shows


def estimate_dataset(config: DatasetConfig, *, report: Callable[[str], object] = lambda _: None) -> Estimate:
    """Sample, build the sample, scale; the result is also written to `<work_folder>/<name>/estimate.json`.

    `report` is called with a line of text when each phase begins. SourceError if the sample holds no line of the
    sources, or if no line has text under `source.text_field`.
    """
    config = locked(config)
    listing, plan = plan_sources(config)
    field = config.source.text_field
    survey.require_text_field(survey.survey_sources(listing.files, config.source.endpoint, fields=(field,)), field)
    by_line = config.steps or any(not isinstance(decision.key, str) for decision in config.listed_decisions())
    files = [SourceFile.of(file) for file in listing.files] if by_line else [*plan.files()]
    seed = config.shuffle.seed or 0
    drawn, share = sampling.draw_files(files, config.estimate.sample_bytes, seed)
    source_bytes = plan.source_bytes()
    report(f"sampling {bytes_text(round(share * source_bytes))} of {bytes_text(source_bytes)} of sources")
    work = work_of(config)
    place = cache_folder() if is_shared(work) else work  # in its mirror, all of the sample would go to the bucket
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".estimate-", dir=place) as scratch:
        sample = Path(scratch, "sample")
        sampling.write_sample(config, drawn, share, seed, sample, plan.fields or ())
        if not any(len(document.numbers) for document in drawn):
            raise SourceError("estimate.empty_sample: the sample has no line", next_step="raise estimate.sample_bytes")
        stored = source_bytes * share / max(1, sum(int(document.bytes.sum()) for document in drawn))
        paths = [listing.path_of[document.file.location] for document in drawn]
        builds = []
        for what in ("first", "second"):
            report(f"building the sample: the {what} of two times")
            builds.append(_built(config, plan, drawn, paths, share, stored, Path(scratch, what)))
        first, build = builds
        loading = max(0.0, _seconds(first) - _seconds(build))
        estimate = _scaled(config, plan, build, drawn, paths, share, stored, loading)
    keep_estimate(estimate, config, listing.files, work)
    return estimate


def _built(
    config: DatasetConfig,
    plan: Plan,
    drawn: list[DrawnFile],
    paths: list[int],
    share: float,
    stored: float,
    root: Path,
) -> Build:
    """Build the sample, which lies beside `root`, below it. `paths`: the entry of `source.paths` of each drawn file.
    `stored`: bytes of a source file per byte of its lines, by which shards of the sample hold as much text as those of
    the whole.
    """
    sample = root.with_name("sample")
    files = [
        replace(SourceFile.of(file), drawn=DrawnLines(document.file.name, document.numbers.tolist()))
        for file, document in zip(list_sources([str(sample)], (".jsonl",)), drawn, strict=True)
    ]
    of_part = {"max_unmatched_share": 1.0}
    changes = {
        "source": config.source.model_copy(
            update={
                "paths": [str(sample)] * len(config.source.paths),
                "endpoint_url": None,
                "anonymous": None,
                "requester_pays": None,
            }
            | ({} if share == 1 else {"max_rejected_share": 1.0})  # a line is a large share of few
        ),
        "dedup": config.dedup.model_copy(update={"against": None}),
        "destinations": [config.destinations[0].model_copy(update={"path": str(root / "out"), "endpoint_url": None})],
        "work_folder": str(root / "work"),
        "reclaim": "keep",
        "budget": None,
        "near_duplicates": config.near_duplicates and config.near_duplicates.model_copy(update={"most_removed": 1.0}),
        "forget": config.forget and config.forget.model_copy(update=of_part),
    }
    if share < 1:
        changes["decisions"] = [
            each.model_copy(update=of_part) if each.path else each for each in config.decisions or ()
        ] or None
    shards = group_into_shards(files, max(1, round(config.source.shard_bytes / stored)))
    path_of = {file.location: path for file, path in zip(files, paths, strict=True)}
    of_shards = [[path_of[file.location] for file in shard] for shard in shards] if config.near_duplicates else None
    of_sample = replace(plan, shards=shards, uncut=None, others=None, paths=of_shards, references=None)
    receipt = write_plan(config.model_copy(update=changes), of_sample)
    local.run_build(receipt, workers=1)
    return open_build(receipt)


def _scaled(
    config: DatasetConfig,
    plan: Plan,
    build: Build,
    drawn: list[DrawnFile],
    paths: list[int],
    share: float,
    stored: float,
    loading: float,
) -> Estimate:
    """`build`: of the sample. `paths`: the entry of `source.paths` of each drawn file. `stored`: see `_built`.
    `loading`: seconds.
    """
    tokens = _tokens_by_file(build, drawn)
    total = sampling.total_of(tokens, drawn, share)
    path_tokens = [0] * len(config.source.paths)
    for path, of_file in zip(paths, tokens, strict=True):
        path_tokens[path] += int(of_file.sum())
    shown = shown_share(amounts_of(config), [round(total.scale * each) for each in path_tokens])

    def times(stage: str) -> float:
        # Deduplicated documents are compressed as their sources are.
        return total.scale * (shown if stage in OF_SHOWN else 1.0) * (stored if stage == "writeback" else 1.0)

    text_bytes = build.total("index", "text_bytes_out")
    reference_text_bytes = text_of_references(config, plan)
    receipts = [receipt for stage in build.graph.names for receipt in build.receipts(stage)]
    of_both = OF_REFERENCES | (NEAR_REFERENCES if config.near_duplicates_of_references else set())
    of_references = sum(receipt.seconds for receipt in receipts if receipt.stage in of_both)
    seconds = sum(
        total.scale * (shown if receipt.stage in OF_SHOWN else 1.0) * receipt.seconds for receipt in receipts
    ) + of_references * reference_text_bytes / max(1, text_bytes)
    removes = "remove" in (config.dedup.mode, config.near_duplicates and config.near_duplicates.action)
    removing = removes and (share < 1 or bool(plan.references))  # of what the sample has no copy of
    removed = build.total("union", "removed_bytes") if config.dedup.mode != "none" else 0
    cores = os.cpu_count() or 1
    with_tokens = build.total("tokenize", "documents_out") - build.total("tokenize", "documents_empty")
    documents, shown_tokens = round(times("export") * with_tokens), shown * total.estimate
    held_out = {
        name: FORMATS[name].held_out(config.exports, documents, round(shown_tokens))
        for name in config.exports.formats()
    }
    return Estimate(
        sampled_text_bytes=text_bytes,
        scale=total.scale,
        text_bytes=round(total.scale * text_bytes),
        tokens=round(total.estimate),
        tokens_low=0 if removing else round(total.low),
        tokens_high=round(total.high),
        duplicate_share=removed / text_bytes if text_bytes else 0.0,
        near_duplicate_share=_near_duplicate_share(build),
        cores=cores,
        hours=(loading + seconds / cores) / 3600,
        peak_rss_bytes=max(receipt.peak_rss_bytes for receipt in receipts),
        most_rss_bytes=max(
            (size_bytes for stage, (_, size_bytes) in needed_memory(config).items() if build.units(stage)), default=0
        ),
        output_bytes={
            name: round(shown * total.scale * _exported_bytes(build, name)) for name in config.exports.formats()
        },
        held=[scaled(row, times(row.stage)) for row in held_by(build)],
        moved=moved_by(build, len(plan.shards), times) if is_shared(work_of(config)) else (),
        shown_tokens=round(shown_tokens) if shown != 1 else None,
        documents=documents,
        held_out={name: share for name, share in held_out.items() if share},
        reference_bytes=plan.reference_bytes() if plan.references else None,
        held_of_references=held_of_references(config, reference_text_bytes) if plan.references else (),
    )


def _near_duplicate_share(build: Build) -> float | None:
    """The share of the sample's documents that are near-duplicates of an earlier one."""
    if not build.units("near_duplicates"):
        return None
    left_out, documents = (build.total("near_duplicates", f"documents_{what}") for what in ("left_out", "in"))
    return left_out / documents if documents else 0.0


def _seconds(build: Build) -> float:
    return sum(receipt.seconds for stage in build.graph.names for receipt in build.receipts(stage))


def _tokens_by_file(build: Build, drawn: list[DrawnFile]) -> list[NDArray[np.int64]]:
    """int64 tokens of every drawn line, 0 for one that is no document, one array per drawn file."""

    files = zip(build.plan.files(), drawn, strict=True)
    tokens = {file.name: np.zeros(len(document.numbers), np.int64) for file, document in files}
    for shard in build.units("tokenize"):
        ends = np.asarray(token_shard.open_token_shard(build.folder("tokenize", shard)).ends)
        lengths = np.diff(ends, prepend=np.uint64(0)).astype(np.int64)
        text = text_shard.open_text_shard(build.folder(final_stage(build, shard), shard))
        for source in text.sources:
            own = slice(source.first_document, source.first_document + source.documents)
            tokens[source.path][text.line_numbers[own].astype(np.int64)] = lengths[own]
    return list(tokens.values())


def _exported_bytes(build: Build, format_name: str) -> int:
    """Bytes of a format's files, told by their names: one unit may write two formats that hold the same tokens."""
    outputs = [output for receipt in build.receipts("export") for output in receipt.outputs]
    return sum(output.size_bytes for output in outputs if output.name.startswith(f"{format_name}/"))


def _tokens_in_words(estimate: Estimate) -> str:
    tokens, low, high = f"{estimate.tokens:,}", f"{estimate.tokens_low:,}", f"{estimate.tokens_high:,}"
    if estimate.tokens_low or not estimate.tokens:
        return f"{tokens} ({low} to {high})"
    more = [] if estimate.scale <= 1 else ["is no more repetitive than the sample"]
    more += [] if estimate.reference_bytes is None else ["has nothing of the references"]
    return f"at most {high}; {tokens} if the whole {' and '.join(more)}"


def _memory_in_words(estimate: Estimate) -> str:
    measured = f"{bytes_text(estimate.peak_rss_bytes)} a worker"
    if estimate.most_rss_bytes <= estimate.peak_rss_bytes:
        return measured
    return f"{measured}; with more text or repeats up to {bytes_text(estimate.most_rss_bytes)}, as configured"


def _references_in_words(estimate: Estimate) -> list[tuple[str, str]]:
    if estimate.reference_bytes is None:
        return []
    scratch = bytes_text(sum(row[1] + row[2] for row in estimate.held_of_references))
    read = bytes_text(estimate.reference_bytes)
    return [("references", f"{read} to read, {scratch} of text and anchors in the work folder")]


def _moved_in_words(estimate: Estimate) -> list[tuple[str, str]]:
    by = ("by one machine that keeps its cache", "if each stage runs on a machine with an empty one")
    return [
        ("bucket", f"{requests:,} requests, {bytes_text(size_bytes)}, {whose}")
        for (requests, size_bytes), whose in zip(estimate.moved, by, strict=False)
    ]


def render_estimate(estimate: Estimate) -> str:
    """For people."""
    share = f"{estimate.duplicate_share:.1%} of the text"
    whole = estimate.scale <= 1
    why = [] if whole else ["the whole is more repetitive than a sample"]
    why += [] if estimate.reference_bytes is None else ["references are not compared"]
    bound = f"at least {{}} ({', '.join(why)})" if why else "{}"
    near = estimate.near_duplicate_share is not None and f"{estimate.near_duplicate_share:.1%} of the documents"
    drawn = "all of it" if whole else f"1 in {estimate.scale:,.1f}"
    rows = [
        ("sampled", f"{bytes_text(estimate.sampled_text_bytes)} of text, {drawn}"),
        ("text", bytes_text(estimate.text_bytes)),
        ("tokens", _tokens_in_words(estimate)),
        *([("budget", f"{estimate.shown_tokens:,} tokens shown")] if estimate.shown_tokens is not None else []),
        *([("near-duplicates", bound.format(near))] if near else []),
        ("duplicates", bound.format(share)),
        *_references_in_words(estimate),
        ("time", f"{seconds_text(3600 * estimate.hours)} on {estimate.cores} cores like these"),
        ("memory", _memory_in_words(estimate)),
        *(
            ("peak disk", f"{bytes_text(max(work for work, _ in timeline))} in the work folder with reclaim: {reclaim}")
            for reclaim, timeline in moments([*estimate.held, *estimate.held_of_references]).items()
        ),
        *_moved_in_words(estimate),
        *((name, bytes_text(size)) for name, size in estimate.output_bytes.items()),
        *(("held out", f"{share:.1%} of {name}") for name, share in estimate.held_out.items()),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {figure}" for name, figure in rows)
