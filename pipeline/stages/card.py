"""The figures of a dataset's card (report/card.py), from the receipts of the stages before the manifest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.report.card import BenchmarkFigures, CardFigures, DuplicateFigures, StageFlow
from corpusmill.stages import benchmarks, scatter
from corpusmill.stages.union import held_by_references
from corpusmill.storage import is_local

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.sources.plan import Reference


def card_figures(build: Build) -> CardFigures:
    """Counts alone. Paths of this machine are left out: two builds of the same files on two machines have one card."""
    config = build.config
    return CardFigures(
        source_files=len({file.location for file in build.plan.files()}),
        source_bytes=build.plan.source_bytes(),
        source_locations=tuple(path for path in config.source.paths if not is_local(path)),
        flows=_flows(build),
        duplicates=_duplicates(build),
        benchmarks=_benchmarks(build),
        steps=tuple(
            [step.called for step in config.steps or ()] + [decision.name for decision in config.decisions or ()]
        ),
        shuffle_seed=None if scatter.in_source_order(build) else config.shuffle.seed,
    )


def _flows(build: Build) -> tuple[StageFlow, ...]:
    stages = [build.graph[name] for name in build.graph.before("manifest") if build.units(name)]
    return tuple(
        StageFlow(stage=stage.name, quantity=quantity, **flow.model_dump())
        for stage in stages
        for quantity, flow in sorted(stage.flows(build).items())
    )


def _duplicates(build: Build) -> DuplicateFigures | None:
    dedup = build.config.dedup
    if dedup.mode == "none":
        return None
    assert dedup.minimum_bytes is not None
    return DuplicateFigures(
        mode=dedup.mode,
        minimum_bytes=dedup.minimum_bytes,
        keep=dedup.keep,
        documents_touched=build.total("union", "documents_touched"),
        documents_emptied=build.total("union", "documents_emptied"),
        references=tuple(zip(names_of_references(build), held_by_references(build), strict=True)),
    )


def names_of_references(build: Build) -> list[str]:
    """What a card calls references: it names no path of the machine that built the dataset."""
    return [_name_of(reference) for reference in build.plan.references or ()]


def _name_of(reference: Reference) -> str:
    if not is_local(reference.path):
        return reference.path
    return f"a dataset, version {reference.version}" if reference.version else Path(reference.path).name


def _benchmarks(build: Build) -> tuple[BenchmarkFigures, ...]:
    if build.config.decontamination is None:
        return ()
    hits: Counter[str] = Counter()
    for receipt in build.receipts("decontaminate"):
        hits.update(receipt.details["hits"])
    about = build.receipt("benchmarks", benchmarks.UNIT).details["benchmarks"]
    return tuple(
        BenchmarkFigures(name=benchmark["name"], items=benchmark["items"], hits=hits[benchmark["name"]])
        for benchmark in about
    )
