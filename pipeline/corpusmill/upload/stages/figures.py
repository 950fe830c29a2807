"""Figures of a finished dataset, from receipts, for the manifest: its accounts, by which the shuffle and every format
hold exactly the records, and those of its card (report/card.py).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.union import held_by_each, ranges_match_check
from corpusmill.engine.ledger import Check, Receipt
from corpusmill.engine.stage import Shown
from corpusmill.engine.work import Identity, Inputs
from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.documents import framed_tokens
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.near_duplicates.stages.near_duplicates import decided_check
from corpusmill.report.card import BenchmarkFigures, CardFigures, DuplicateFigures, NearDuplicateFigures, StageFlow
from corpusmill.shuffle.stages import gather, scatter
from corpusmill.shuffle.stages.budget import shown_total
from corpusmill.storage import is_local
from corpusmill.upload.stages.description import content_by_cell, format_totals

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import Reference


def _exported(build: Build, name: str) -> dict[str, int]:
    return format_totals(build.receipts("export"), name)


def accounts_of(build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    """The shuffle is a permutation, and every format holds exactly the shuffled records."""
    checks = [decided_check(build)] if build.units("near_duplicates") else []
    checks += [ranges_match_check(build)] if build.units("match") else []
    checks += [_kept_check(build, shard) for shard in build.units("writeback")]
    for kind in scatter.held_kinds(build.config.exports):
        checks += _budget_check(build, kind) if kind != "texts" else []
    for kind in scatter.kinds(build):
        checks += gather.permutation_check(build, kind)
    for name in build.config.exports.formats():
        kind = scatter.KINDS[name]
        records, slots = (sum(gather.per_cell(build, kind, what)) for what in ("records", "slots"))
        exported = _exported(build, name)
        framed = records if FORMATS[name].stream else framed_tokens(build, records)
        special = (("special", framed),) if kind == "documents" else ()
        if name != "numpy":
            checks.append(
                Check(f"{name} records", (("shuffled", records),), (("exported", exported.get("records", 0)),))
            )
        left = (("shuffled", slots), *special)
        counted = "bytes" if FORMATS[name].holds_text else "tokens"
        checks.append(Check(f"{name} {counted}", left, (("exported", exported.get("slots", 0)),)))
        checks += _content_checks(build, name)
    if build.config.exports.webdataset is not None:
        sequences, listed = _exported(build, "webdataset").get("records", 0), receipt.counts["listed_sequences"]
        checks.append(Check("webdataset sequences", (("exported", sequences),), (("in manifest.jsonl", listed),)))
    return checks


def _budget_check(build: Build, kind: str) -> list[Check]:
    """Tokens that the budget shows, against the slots of the records that scatter wrote."""
    if not build.units("budget"):
        return []
    added = {"special": "special_tokens", "padding": "pad_tokens", "repeated": "repeated_tokens"}
    others = tuple((label, gather.of_kind(build, kind, count)) for label, count in added.items())
    left = (("shown", shown_total(build, "tokens")), *others)
    return [Check(f"{kind} budget", left, (("places in records", gather.of_kind(build, kind, "slots")),))]


def _kept_check(build: Build, shard: str) -> Check:
    """A shard's kept text as writeback wrote it from the source, against the text that tokenize encoded."""
    written = ContentSum.parse(build.receipt("writeback", shard).details["kept_content"])
    encoded = ContentSum.parse(build.receipt("tokenize", shard).details["text_content"])
    blame = (("writeback", shard), ("tokenize", shard))
    return Check("kept text", (("written back", written),), (("encoded", encoded),), blame)


def _content_checks(build: Build, name: str) -> list[Check]:
    """Every cell's gathered content, against its content in the files of one format."""
    exported = {unit: build.receipt("export", unit) for unit in build.units("export")}
    written = content_by_cell(exported.values(), name)
    gathered = {
        scatter.split_unit(unit)[1]: ContentSum.parse(build.receipt("gather", unit).details["places_content"])
        for unit in build.units("gather")
        if unit.startswith(f"{scatter.KINDS[name]}-")
    }
    return [
        Check(
            f"{name} content",
            (("gathered", content),),
            (("exported", written.get(cell, NOTHING)),),
            blame=tuple(
                ("export", unit) for unit, receipt in exported.items() if cell in content_by_cell([receipt], name)
            ),
        )
        for cell, content in gathered.items()
    ]


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
    near_duplicates: dict[str, Any] | UnsetType = UNSET


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
        near_duplicates=_near_duplicates(inputs, settings) if settings.near_duplicates else None,
        duplicates=_duplicates(inputs, settings),
        benchmarks=_benchmarks(inputs),
    )


def card_inputs(build: Build) -> list[str]:
    """The stages whose receipts give the figures."""
    stages = (build.graph[name] for name in build.graph.before("manifest"))
    return [*(stage.name for stage in stages if stage.shown.flows is not Shown.flows), "union", "benchmarks", "decide"]


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
        "near_duplicates": _how_compared(build),
        "references_by_name": [_name_of(reference) for reference in build.plan.references or ()],
    }


def _how_deduplicated(build: Build) -> dict[str, Any]:
    dedup = build.config.dedup
    fuzzy = {"fuzzy_share": dedup.fuzzy_share} if dedup.fuzzy_share is not None else {}
    return {"mode": dedup.mode, "minimum_bytes": dedup.minimum_bytes, "keep": dedup.keep, **fuzzy}


def _how_compared(build: Build) -> dict[str, Any] | UnsetType:
    near = build.config.near_duplicates
    return near.model_dump(mode="json", include={"similarity", "words", "action", "within"}) if near else UNSET


def _near_duplicates(inputs: Inputs, settings: CardSettings) -> NearDuplicateFigures:
    counts = inputs["decide"].receipt.counts
    return NearDuplicateFigures(
        **(settings.near_duplicates or {}),
        documents=counts["documents"],
        left_out=counts["documents_left_out"],
    )


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
