"""The figures of a dataset's card (report/card.py), from the receipts of the stages before the manifest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Stage
from corpusmill.report.card import BenchmarkFigures, CardFigures, DuplicateFigures, StageFlow
from corpusmill.stages import benchmarks, scatter
from corpusmill.stages.union import held_by_references
from corpusmill.storage import is_local

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.sources.plan import Reference


def card_figures(build: Build) -> CardFigures:
    """Only counts, and no local paths: builds of the same files on two machines have the same card."""
    flows = tuple(
        StageFlow(stage=stage.name, quantity=quantity, **flow.model_dump())
        for stage in _stages_with_flows(build)
        if build.units(stage.name)
        for quantity, flow in sorted(stage.flows(build).items())
    )
    return CardFigures(**_stated(build), flows=flows, duplicates=_duplicates(build), benchmarks=_benchmarks(build))


def card_inputs(build: Build) -> list[str]:
    """The stages whose receipts give the figures."""
    return [*(stage.name for stage in _stages_with_flows(build)), "union", "benchmarks"]


def card_settings(build: Build) -> dict[str, Any]:
    """The figures that no receipt states."""
    return {**_stated(build), "dedup": _how_deduplicated(build), "references_by_name": names_of_references(build)}


def _stages_with_flows(build: Build) -> list[Stage]:
    stages = (build.graph[name] for name in build.graph.before("manifest"))
    return [stage for stage in stages if stage.flows is not Stage.flows]


def _stated(build: Build) -> dict[str, Any]:
    config = build.config
    return {
        "source_files": len({file.location for file in build.plan.files()}),
        "source_bytes": build.plan.source_bytes(),
        "source_locations": [path for path in config.source.paths if not is_local(path)],
        "steps": [step.called for step in config.steps or ()] + [made.name for made in config.decisions or ()],
        "shuffle_seed": None if scatter.in_source_order(build) else config.shuffle.seed,
    }


def _how_deduplicated(build: Build) -> dict[str, Any]:
    dedup = build.config.dedup
    fuzzy = {"fuzzy_share": dedup.fuzzy_share} if dedup.fuzzy_share is not None else {}
    return {"mode": dedup.mode, "minimum_bytes": dedup.minimum_bytes, "keep": dedup.keep, **fuzzy}


def _duplicates(build: Build) -> DuplicateFigures | None:
    if build.config.dedup.mode == "none":
        return None
    return DuplicateFigures(
        **_how_deduplicated(build),
        documents_touched=build.total("union", "documents_touched"),
        documents_emptied=build.total("union", "documents_emptied"),
        references=tuple(zip(names_of_references(build), held_by_references(build), strict=True)),
    )


def names_of_references(build: Build) -> list[str]:
    """The names of references in a card, without paths of the building machine."""
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
