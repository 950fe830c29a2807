"""Estimate: build a sample of the dataset, and scale the result. The real build is not touched.

Every line of the dataset has the same chance to be in the sample, and none is in it twice (sampling.py says how they
are drawn, why the estimated total is unbiased, and what its interval holds). Reading the beginning of each file instead
would bias it, as it biased BigScience's one-gigabyte samples.

Duplicates are the exception. Text repeats less often within a sample than within the whole, so the duplicate share is a
lower bound, and where duplicates are removed, the token count is only an upper bound.

Time is a fixed part (imports, the tokenizer) and a rate. `corpusmill build` builds an eighth of the sample and all of
it, on up to four cores, since cores that share a memory are slower than one alone; the rate is the extra time that all
takes. Both keep their files (`reclaim: keep`), which takes longer than deleting them early, as a build of more than
the memory holds does. What one step does (uploads, manifests) is not divided by the number of cores.

References (`dedup.against`) are not sampled: a sample would miss most of their matches. Their cost assumes as much text
in a stored byte as in the dataset's sources, indexed and compared at the sample's speed.

Decisions and steps see the file and line that each sampled document has in the dataset (sources/sampled.py). Decisions
about documents outside of the sample match nothing, which is no error.

Price: one pass over the drawn files (decompression), and two builds of the sample and two of an eighth of it in a
scratch folder. If decisions name files and lines, also a pass over the earlier parts of files that are cut.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from corpusmill.config import DatasetConfig, work_of
from corpusmill.engine.estimates import Estimate, keep_estimate, last_estimate
from corpusmill.epochs import shown_share
from corpusmill.errors import SourceError
from corpusmill.mirrored import cache_folder
from corpusmill.report.figures import bytes_text, seconds_text
from corpusmill.stages.budget import amounts_of
from corpusmill.work_folder.small import is_shared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.engine.build import Build
    from corpusmill.ledger import Receipt

EIGHTH = 8
# Stages that process references, too.
OF_REFERENCES = {"index", "anchor", "suffix_array", "shared", "context", "settle", "border", "match"}
OF_SHOWN = {"scatter", "gather", "export", "manifest", "upload"}  # stages that process what a budget shows


def estimate_dataset(config: DatasetConfig, *, tell: Callable[[str], object] = lambda _: None) -> Estimate:
    """Sample, build the sample, scale; the result is also written to `<work_folder>/<name>/estimate.json`.

    `tell` is called with a line of text when each phase begins. SourceError if the sample holds no line of the sources,
    or if no line has text under `source.text_field`.
    """
    from corpusmill.builds.disk import held_of_references
    from corpusmill.builds.local import worker_count
    from corpusmill.builds.plan import list_dataset
    from corpusmill.builds.preflight import text_of_references
    from corpusmill.builds.references import plan_references
    from corpusmill.builds.sampling import draw_files, lines_before, write_sample
    from corpusmill.sources.plan import plan_files
    from corpusmill.sources.survey import require_text_field, survey_sources
    from corpusmill.stages.tokenize import locked

    config = locked(config)
    listing = list_dataset(config)
    files = listing.files
    require_text_field(survey_sources(files, config.source.endpoint_url), config.source.text_field)
    plan = plan_files(files, config.source.shard_bytes, config.source.endpoint_url)
    seed = config.shuffle.seed or 0
    sampled = min(config.estimate.sample_bytes, plan.source_bytes())
    tell(f"sampling {bytes_text(sampled)} of {bytes_text(plan.source_bytes())} of sources")
    drawn, share = draw_files([file for shard in plan.shards for file in shard], config.estimate.sample_bytes, seed)
    work = work_of(config)
    place = cache_folder() if is_shared(work) else work  # in its mirror, all of the sample would go to the bucket
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".estimate-", dir=place) as scratch:
        root = Path(scratch)
        sample, before = root / "sample", lines_before(config, plan.files(), drawn, tell=tell)
        if not write_sample(config, drawn, share, seed, sample, before):
            raise SourceError("the sample holds no line", next_step="raise estimate.sample_bytes")
        _write_eighth(sample, root / "eighth")
        sample_config = _of_part(config, any_rejected=True)
        tell("building an eighth of the sample, then all of it")
        eighth_has_text = _has_text(sample_config, root / "eighth", root / "cold")
        build = _built(config if share == 1 else _of_part(config), sample, root / "whole")
        paths = [listing.path_of[document.file.location] for document in drawn]
        shards = len(plan.shards) if is_shared(work) else None
        shown = _shown(config, _tokens_by_file(build), paths, share)
        tell("building it again, by a program of its own, to measure time and memory")
        stored = plan.source_bytes() * share / max(1, build.plan.source_bytes())
        shard_bytes = round(config.source.shard_bytes / stored)  # a shard of the sample is to hold as much text
        as_large = sample_config.source.model_copy(update={"shard_bytes": shard_bytes})
        timed_config = sample_config.model_copy(update={"source": as_large})
        eighth = root / "eighth" if share < 1 and eighth_has_text else None
        needs = _seconds_and_memory(timed_config, sample, eighth, worker_count(None, plan.source_bytes()), share, shown)
        estimate = _scaled(build, [line.chance for line in drawn], share, needs, stored, shown, shards)
        references = msgspec.structs.replace(plan, references=plan_references(config, files))
        if references.references:
            size, text_bytes = references.reference_bytes(), text_of_references(config, references)
            hours = _reference_seconds(build) * text_bytes / estimate.cores / 3600
            held = held_of_references(config, text_bytes)
            estimate = replace(estimate, hours=estimate.hours + hours, reference_bytes=size, held_of_references=held)
    keep_estimate(estimate, config, files, work)
    return estimate


def _seconds_and_memory(
    config: DatasetConfig, sample: Path, eighth: Path | None, cores: int, share: float, shown: float
) -> tuple[float, int]:
    """Seconds of the whole build on so many cores, and bytes of memory of a worker. Without `eighth` only the sample is
    timed; `shown`: see `_shown`.
    """
    from corpusmill.builds.timing import MOST_WORKERS, Timed, scaled_seconds, timed_build

    workers = min(cores, MOST_WORKERS)

    def timed(part: Path) -> Timed:
        sampled = _of_sample(config, part, part.with_name(f"timed-{part.name}"))
        return timed_build(sampled, workers, dict.fromkeys(OF_SHOWN, shown))

    whole = timed(sample)
    return scaled_seconds(timed(eighth) if eighth else whole, whole, 1 / share, cores / workers), whole.peak_rss_bytes


def _reference_seconds(build: Build) -> float:
    """Seconds per byte of text that a finished build spent in the stages that references go through, too."""
    seconds = sum(receipt.seconds for receipt in _all_receipts(build) if receipt.stage in OF_REFERENCES)
    return seconds / max(1, build.total("index", "text_bytes_out"))


def _write_eighth(sample: Path, folder: Path) -> None:
    """Every eighth line of the sample, and its longest one: one with text, if there is any."""
    from corpusmill.builds.sampling import SampleWriter, read_sample
    from corpusmill.sources.sampled import read_table

    sampled = read_table(sample.with_suffix(".json"))
    eighth = SampleWriter(folder, sampled.files)
    eighth.write(islice(read_sample(sample, sampled), 0, None, EIGHTH))
    eighth.write([max(read_sample(sample, sampled), key=lambda drawn: len(drawn[2]))])
    eighth.finish()


def _of_part(config: DatasetConfig, *, any_rejected: bool = False) -> DatasetConfig:
    """The configuration for a part of the documents, where decisions about the others match nothing. `any_rejected`:
    every line may be rejected; one is a large share of few.
    """
    partly = [decision.model_copy(update={"max_unmatched_share": 1.0}) for decision in config.decisions or ()]
    most_rejected = 1.0 if any_rejected else config.source.max_rejected_share
    source = config.source.model_copy(update={"max_rejected_share": most_rejected})
    return config.model_copy(update={"decisions": partly or None, "source": source})


def _of_sample(config: DatasetConfig, sample: Path, root: Path) -> DatasetConfig:
    """The configuration of a sample's build below `root`, where its documents have their own files and lines."""
    from corpusmill.sources.sampled import SAMPLED

    changes = {
        "source": config.source.model_copy(update={"paths": [str(sample)], "endpoint_url": None}),
        "dedup": config.dedup.model_copy(update={"against": None}),  # see above
        "destinations": [config.destinations[0].model_copy(update={"path": str(root / "out"), "endpoint_url": None})],
        "work_folder": str(root / "work"),
        "reclaim": "keep",
        "budget": None,
    }
    sample_config = config.model_copy(update=changes)
    work_of(sample_config).mkdir(parents=True)
    shutil.copy(sample.with_suffix(".json"), work_of(sample_config) / SAMPLED)
    return sample_config


def _has_text(config: DatasetConfig, sample: Path, root: Path) -> bool:
    """Build a part of the sample, before anything is measured; whether steps and decisions left any of its text."""
    try:
        _built(config, sample, root)
    except SourceError:
        return False  # of few lines; if nothing of the whole sample is left either, building that raises it
    return True


def _built(config: DatasetConfig, sample: Path, root: Path) -> Build:
    from corpusmill.builds.local import build_dataset
    from corpusmill.stages.graph import open_build

    return open_build(build_dataset(_of_sample(config, sample, root), workers=1))


def compare_with_actual(build: Build) -> str:
    """For people: the last estimate against the finished build; "" if it was of other sources or settings."""
    last = last_estimate(build)
    if last is None:
        return ""
    tokens = build.total("tokenize", "tokens")
    inside = "within" if last.tokens_low <= tokens <= last.tokens_high else "OUTSIDE"
    rows = [f"estimated  {last.tokens:,} tokens; got {tokens:,}, {inside} {last.tokens_low:,} to {last.tokens_high:,}"]
    text_bytes = build.total("index", "text_bytes_out")
    rows.append(f"           {bytes_text(last.text_bytes)} of text; got {bytes_text(text_bytes)}")
    for name, size in last.output_bytes.items():
        rows.append(f"           {bytes_text(size)} of {name}; got {bytes_text(_exported_bytes(build, name))}")
    return "\n".join(rows)


def _shown(config: DatasetConfig, tokens: list[NDArray[np.int64]], paths: list[int], share: float) -> float:
    """Tokens that the budget shows for each token there is; `tokens` and `paths`: of each drawn file."""
    path_tokens = [0.0] * len(config.source.paths)
    for path, of_file in zip(paths, tokens, strict=True):
        path_tokens[path] += float(of_file.sum()) / share
    return shown_share(amounts_of(config), list(map(round, path_tokens)))


def _scaled(
    build: Build,
    chances: list[float],
    share: float,
    needs: tuple[float, int],
    stored: float,
    shown: float,
    shards: int | None,
) -> Estimate:
    """`needs`: the seconds of the whole build, and the memory of a worker. `stored`: bytes of a source file per byte of
    its lines, which the sample holds uncompressed. `shown`: see `_shown`. `shards`: their number in the whole, if its
    work folder is in a bucket.
    """
    from corpusmill.builds.disk import held_by, scaled
    from corpusmill.builds.memory import needed_memory
    from corpusmill.builds.moved import moved_by
    from corpusmill.builds.sampling import total_of

    total = total_of(_tokens_by_file(build), chances, share)
    text_bytes = build.total("index", "text_bytes_out")
    scale = 1 / share
    removing = build.config.dedup.mode == "remove" and share < 1
    removed = build.total("union", "removed_bytes") if build.config.dedup.mode != "none" else 0

    def times(stage: str) -> float:
        # Deduplicated documents are compressed as their sources are.
        return scale * (shown if stage in OF_SHOWN else 1.0) * (stored if stage == "writeback" else 1.0)

    return Estimate(
        sampled_text_bytes=text_bytes,
        scale=scale,
        text_bytes=round(scale * text_bytes),
        tokens=round(total.estimate),
        tokens_low=0 if removing else round(total.low),
        tokens_high=round(total.high),
        duplicate_share=removed / text_bytes if text_bytes else 0.0,
        cores=os.cpu_count() or 1,
        hours=needs[0] / 3600,
        peak_rss_bytes=needs[1],
        most_rss_bytes=max(
            (size_bytes for stage, (_, size_bytes) in needed_memory(build.config).items() if build.units(stage)),
            default=0,
        ),
        output_bytes={
            name: round(shown * scale * _exported_bytes(build, name)) for name in build.config.exports.formats()
        },
        held=[scaled(row, times(row.stage)) for row in held_by(build)],
        moved=moved_by(build, shards, times) if shards else (),
        shown_tokens=round(shown * total.estimate) if shown != 1 else None,
    )


def _tokens_by_file(build: Build) -> list[NDArray[np.int64]]:
    """int64 tokens of every document, one array per drawn file."""
    import numpy as np

    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.sources.sampled import SAMPLED, read_table
    from corpusmill.stages.index import final_stage
    from corpusmill.tokens.token_shard import open_token_shard

    sampled = read_table(build.work / SAMPLED)
    tokens: list[list[NDArray[np.int64]]] = [[] for _ in sampled.files]
    for shard in build.units("tokenize"):
        ends = np.asarray(open_token_shard(build.folder("tokenize", shard)).ends)
        lengths = np.diff(ends, prepend=np.uint64(0)).astype(np.int64)
        text = open_text_shard(build.folder(final_stage(build, shard), shard))
        for source in text.sources:
            own = slice(source.first_document, source.first_document + source.documents)
            lines = text.line_numbers[own].astype(np.int64)
            drawn = np.array([number for number, _ in sampled.lines[source.path]], np.int64)[lines]
            for number in np.unique(drawn).tolist():
                tokens[number].append(lengths[own][drawn == number])
    return [np.concatenate([np.empty(0, np.int64), *pieces]) for pieces in tokens]


def _all_receipts(build: Build) -> list[Receipt]:

    return [receipt for stage in build.graph.names for receipt in build.receipts(stage)]


def _exported_bytes(build: Build, format_name: str) -> int:
    """Bytes of a format's files, told by their names: one unit may write two formats that hold the same tokens."""
    outputs = [output for receipt in build.receipts("export") for output in receipt.outputs]
    return sum(output.size_bytes for output in outputs if output.name.startswith(f"{format_name}/"))


def _tokens_in_words(estimate: Estimate) -> str:
    tokens, low, high = f"{estimate.tokens:,}", f"{estimate.tokens_low:,}", f"{estimate.tokens_high:,}"
    if estimate.tokens_low or not estimate.tokens:
        return f"{tokens} ({low} to {high})"
    return f"at most {high}; {tokens} if the whole is no more repetitive than the sample"


def _memory_in_words(estimate: Estimate) -> str:
    measured = f"{bytes_text(estimate.peak_rss_bytes)} a worker"
    if estimate.most_rss_bytes <= estimate.peak_rss_bytes:
        return measured
    return f"{measured}; with more text or repeats up to {bytes_text(estimate.most_rss_bytes)}, as configured"


def _references_in_words(estimate: Estimate) -> list[tuple[str, str]]:
    if estimate.reference_bytes is None:
        return []
    scratch = bytes_text(sum(row[1] + row[2] for row in estimate.held_of_references))
    return [
        (
            "references",
            f"{bytes_text(estimate.reference_bytes)} to read, {scratch} of text and anchors in the work folder",
        )
    ]


def _moved_in_words(estimate: Estimate) -> list[tuple[str, str]]:
    by = ("by one machine that keeps its cache", "if each stage runs on a machine with an empty one")
    return [
        ("bucket", f"{requests:,} requests, {bytes_text(size_bytes)}, {whose}")
        for (requests, size_bytes), whose in zip(estimate.moved, by, strict=False)
    ]


def render_estimate(estimate: Estimate) -> str:
    """For people."""
    from corpusmill.builds.disk import moments

    share = f"{estimate.duplicate_share:.1%} of the text"
    whole = estimate.scale <= 1
    drawn = "all of it" if whole else f"1 in {estimate.scale:,.1f}"
    rows = [
        ("sampled", f"{bytes_text(estimate.sampled_text_bytes)} of text, {drawn}"),
        ("text", bytes_text(estimate.text_bytes)),
        ("tokens", _tokens_in_words(estimate)),
        *([("budget", f"{estimate.shown_tokens:,} tokens shown")] if estimate.shown_tokens is not None else []),
        ("duplicates", share if whole else f"at least {share} (the whole is more repetitive than a sample)"),
        *_references_in_words(estimate),
        ("time", f"{seconds_text(3600 * estimate.hours)} on {estimate.cores} cores like these"),
        ("memory", _memory_in_words(estimate)),
        *(
            ("peak disk", f"{bytes_text(max(work for work, _ in timeline))} in the work folder with reclaim: {reclaim}")
            for reclaim, timeline in moments([*estimate.held, *estimate.held_of_references]).items()
        ),
        *_moved_in_words(estimate),
        *((name, bytes_text(size)) for name, size in estimate.output_bytes.items()),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {figure}" for name, figure in rows)
