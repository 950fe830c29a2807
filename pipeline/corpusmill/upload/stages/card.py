"""The figures of a dataset's card (report/card.py), from the receipts of the stages before the manifest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.union import held_by_each
from corpusmill.engine.stage import Shown
from corpusmill.engine.work import Identity, Inputs
from corpusmill.report.card import BenchmarkFigures, CardFigures, DuplicateFigures, StageFlow
from corpusmill.shuffle.stages import scatter
from corpusmill.storage import is_local

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import Reference


class CardSettings(Identity, frozen=True, kw_only=True):
    """The figures that no receipt states; UNSET without a card, but for whether there are `steps`."""

    card: dict[str, Any] | UnsetType = UNSET
    steps: bool | list[str]
    source_files: int | UnsetType = UNSET
    source_bytes: int | UnsetType = UNSET
    source_locations: list[str] | UnsetType = UNSET
    shuffle_seed: int | UnsetType | None = UNSET
    dedup: dict[str, Any] | UnsetType = UNSET
    references_by_name: list[str] | UnsetType = UNSET


STATED = ("source_files", "source_bytes", "source_locations", "steps", "shuffle_seed")


def card_figures(inputs: Inputs, settings: CardSettings) -> CardFigures:
    """Only counts, and no local paths: builds of the same files on two machines have the same card."""
    return CardFigures(
        **{name: getattr(settings, name) for name in STATED},
        flows=tuple(
            StageFlow(stage=stage, quantity=quantity, **flow.model_dump())
            for stage, flows in inputs.flows().items()
            for quantity, flow in sorted(flows.items())
        ),
        duplicates=_duplicates(inputs, settings),
        benchmarks=_benchmarks(inputs),
    )


def card_inputs(build: Build) -> list[str]:
    """The stages whose receipts give the figures."""
    stages = (build.graph[name] for name in build.graph.before("manifest"))
    return [*(stage.name for stage in stages if stage.shown.flows is not Shown.flows), "union", "benchmarks"]


def card_settings(build: Build) -> dict[str, Any]:
    """The values of CardSettings."""
    config = build.config
    if not config.card:
        return {"steps": bool(config.steps or config.decisions)}  # a list of documents to forget alone is not said
    return {
        "card": config.card.model_dump(mode="json"),
        "source_files": len({file.location for file in build.plan.files()}),
        "source_bytes": build.plan.source_bytes(),
        "source_locations": [path for path in config.source.paths if not is_local(path)],
        "steps": [step.called for step in config.steps or ()] + [made.name for made in config.decisions or ()],
        "shuffle_seed": None if scatter.in_source_order(build) else config.shuffle.seed,
        "dedup": _how_deduplicated(build),
        "references_by_name": [_name_of(reference) for reference in build.plan.references or ()],
    }


def _how_deduplicated(build: Build) -> dict[str, Any]:
    dedup = build.config.dedup
    fuzzy = {"fuzzy_share": dedup.fuzzy_share} if dedup.fuzzy_share is not None else {}
    return {"mode": dedup.mode, "minimum_bytes": dedup.minimum_bytes, "keep": dedup.keep, **fuzzy}


def _duplicates(inputs: Inputs, settings: CardSettings) -> DuplicateFigures | None:
    if "union" not in inputs:
        return None
    names = settings.references_by_name or []
    return DuplicateFigures(
        **(settings.dedup or {}),
        documents_touched=inputs.total("union", "documents_touched"),
        documents_emptied=inputs.total("union", "documents_emptied"),
        references=tuple(zip(names, held_by_each([step.receipt for step in inputs.every("union")]), strict=True))
        if names
        else (),
    )


def _name_of(reference: Reference) -> str:
    """The name of a reference in a card, without a path of the building machine."""
    if not is_local(reference.path):
        return reference.path
    return f"a dataset, version {reference.version}" if reference.version else Path(reference.path).name


def _benchmarks(inputs: Inputs) -> tuple[BenchmarkFigures, ...]:
    if "benchmarks" not in inputs:
        return ()
    hits: Counter[str] = Counter()
    for step in inputs.every("decontaminate"):
        hits.update(step.receipt.details["hits"])
    about = inputs["benchmarks"].receipt.details["benchmarks"]
    return tuple(
        BenchmarkFigures(name=benchmark["name"], items=benchmark["items"], hits=hits[benchmark["name"]])
        for benchmark in about
    )
