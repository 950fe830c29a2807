"""Gather: stage 2 of the shuffle, per cell and kind of record. Units are such as `documents-00003`: kind and cell.

In source order a cell is a shard, and gathering it writes its records with their provenance.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import MANY, Recount, Schedule, Shown, Stage, StepName, whole
from corpusmill.engine.work import Identity, Input, Inputs, Resources, Work
from corpusmill.kernels.content import add_up
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.shuffle.stages import scatter
from corpusmill.shuffle.stages.budget import shown_total

with lazily:
    import numpy as np

    from corpusmill.engine import recounting
    from corpusmill.shuffle import cells
    from corpusmill.tokens import token_shard


if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.tokens.token_shard import Provenance


def per_cell(build: Build, kind: str, what: str) -> list[int]:
    """Records (or slots) of every cell of a kind, summed over the shards; known before anything is gathered."""
    per_cell: list[int] = build.rollup("scatter").details.get(f"{kind} {what}", [])
    return per_cell


def scattered_units(build: Build, kind: str) -> list[str]:
    """The scatter units of one kind of record, in order of shard."""
    return build.named("scatter", f"{kind}-{MANY}")


def provenance(gathered: Input) -> Provenance:
    """The ends and origins of the records of a gathered cell; kept even when its tokens were reclaimed."""
    with gathered.opened(token_shard.PROVENANCE) as folder:
        return token_shard.open_provenance(folder / token_shard.PROVENANCE)


def permutation_check(build: Build, kind: str) -> list[Check]:
    """Content before and after: the shuffle lost, duplicated and changed no record."""
    before = [build.receipt("scatter", unit) for unit in scattered_units(build, kind)]
    after = [build.receipt("gather", unit) for unit in build.units("gather") if unit.startswith(f"{kind}-")]
    scattered, gathered = (add_up(count.details["content"] for count in side) for side in (before, after))
    blame = tuple(("gather", unit) for unit in build.units("gather") if unit.startswith(f"{kind}-"))
    return [Check(f"{kind} content", (("scattered", scattered),), (("gathered", gathered),), blame)]


def _units(build: Build) -> list[str]:
    return [f"{kind}-{cell:05d}" for kind in scatter.kinds(build) for cell in range(scatter.cells(build))]


class Settings(Identity, frozen=True, kw_only=True):
    """Which cell it is."""

    kind: str
    cell: int


def _inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    if scatter.in_source_order(build):
        return {"shard": [("scatter", unit)]}
    return {"shards": whole(build, "scatter", kind=f"{scatter.split_unit(unit)[0]}-")}


def _identity(_build: Build, unit: str) -> Settings:
    kind, cell = scatter.split_unit(unit)
    return Settings(kind=kind, cell=cell)


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    cell = settings.cell
    if "shard" in inputs:
        own = inputs["shard"].blocks
        gathered = cells.gather_shard(cells.open_scattered(own.folder, 0, own.open), cell, folder)
    else:
        scattered = [step.blocks for step in inputs.every("shards")]
        gathered = cells.gather_cell([cells.open_scattered(of.folder, cell, of.open) for of in scattered], cell, folder)
    size = (folder / "tokens").stat().st_size
    counts = {"records": gathered.records, "slots": gathered.tokens, "bytes_read": size}
    return Outcome(counts=counts, details={"content": str(gathered.content), "places_content": str(gathered.places)})


def _checks(build: Build, unit: str, receipt: Receipt) -> list[Check]:
    kind, cell = scatter.split_unit(unit)
    return [
        Check(
            what,
            (("scattered into the cell", per_cell(build, kind, what)[cell]),),
            (("gathered", receipt.counts[what]),),
        )
        for what in ("records", "slots")
    ]


def of_kind(build: Build, kind: str, count: str) -> int:
    """One count summed over the scatter steps of a kind of record."""
    return sum(build.receipt("scatter", unit).counts[count] for unit in scattered_units(build, kind))


def _flows(build: Build) -> dict[str, Flow]:
    packed = next(iter(build.config.exports.context_tokens()), None)
    if packed is None:
        return {}
    tokens = shown_total(build, "tokens")
    kinds = {"special": "special_tokens", "padding": "pad_tokens", "repeated by overlap": "repeated_tokens"}
    gained = {name: count for name, key in kinds.items() if (count := of_kind(build, packed, key))}
    return {"tokens": Flow(into=tokens, out=tokens + sum(gained.values()), gained=gained)}


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    cell = token_shard.open_record_shard(folder)
    recounting.require_ascending(folder / "records", cell.ends)
    counts = {"records": cell.records, "slots": len(cell.tokens), "bytes_read": cell.tokens.nbytes}
    places = np.arange(cell.records, dtype=np.uint64)
    details = {
        "content": str(recounting.records_content(cell.tokens, cell.ends, cell.shards, cell.ordinals)),
        "places_content": str(recounting.records_content(cell.tokens, cell.ends, scatter.split_unit(unit)[1], places)),
    }
    return Recount(counts, details, complete=True)


STAGE = Stage(
    "gather",
    version=3,
    after=("scatter",),
    units=_units,
    work=Work(Settings, _identity, _inputs, _run),
    recount=_recount,
    checks=_checks,
    reclaimed=("tokens",),
    read_until="export",
    schedule=Schedule(
        memory=lambda config: ("shuffle.memory", int(config.shuffle.memory)), task=scatter.number_of_unit
    ),
    shown=Shown(unit_word="cell", flows=_flows),
)
