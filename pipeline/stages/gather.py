"""Gather: stage 2 of the shuffle, per cell and kind of record. Units are such as `documents-00003`: kind and cell.

In source order a cell is a shard, and gathering it writes its records with their provenance.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.content import add_up
from corpusmill.engine.stage import MANY, Recount, Stage, whole
from corpusmill.ledger import Check, Outcome, Receipt
from corpusmill.stages import scatter
from corpusmill.stages.budget import shown_total

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.report.facts import Flow
    from corpusmill.tokens.record_shard import Provenance


def per_cell(build: Build, kind: str, what: str) -> list[int]:
    """Records (or slots) of every cell of a kind, summed over the shards; known before anything is gathered."""
    per_cell: list[int] = build.rollup("scatter").details.get(f"{kind} {what}", [])
    return per_cell


def scattered_units(build: Build, kind: str) -> list[str]:
    """The scatter units of one kind of record, in order of shard."""
    return build.named("scatter", f"{kind}-{MANY}")


def provenance(build: Build, kind: str, cell: int) -> Provenance:
    """The ends and origins of the records of a gathered cell; kept even when its tokens were given back."""
    from corpusmill.tokens.record_shard import PROVENANCE, open_provenance

    with build.opened("gather", f"{kind}-{cell:05d}", PROVENANCE) as folder:
        return open_provenance(folder / PROVENANCE)


def permutation_check(build: Build, kind: str) -> list[Check]:
    """Content before and after: the shuffle lost, duplicated and changed no record."""
    before = [build.receipt("scatter", unit) for unit in scattered_units(build, kind)]
    after = [build.receipt("gather", unit) for unit in build.units("gather") if unit.startswith(f"{kind}-")]
    scattered, gathered = (add_up(count.details["content"] for count in side) for side in (before, after))
    blame = tuple(("gather", unit) for unit in build.units("gather") if unit.startswith(f"{kind}-"))
    return [Check(f"{kind} content", (("scattered", scattered),), (("gathered", gathered),), blame)]


def _units(build: Build) -> list[str]:
    return [f"{kind}-{cell:05d}" for kind in scatter.kinds(build) for cell in range(scatter.cells(build))]


def _inputs(build: Build, unit: str) -> list[tuple[str, str]]:
    if scatter.in_source_order(build):
        return [("scatter", unit)]
    return whole(build, "scatter", kind=f"{scatter.split_unit(unit)[0]}-")


def _settings(_build: Build, unit: str) -> dict[str, Any]:
    kind, cell = scatter.split_unit(unit)
    return {"kind": kind, "cell": cell}


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    from corpusmill.shuffle.gather import gather_cell, gather_shard
    from corpusmill.shuffle.scatter import open_scattered

    _, cell = scatter.split_unit(unit)
    scattered = [build.blocks(stage, of) for stage, of in build.inputs("gather", unit)]
    if scatter.in_source_order(build):
        gathered = gather_shard(open_scattered(scattered[0].folder, 0, scattered[0].open), cell, folder)
    else:
        slices = [open_scattered(blocks.folder, cell, blocks.open) for blocks in scattered]
        gathered = gather_cell(slices, cell, folder)
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
    from corpusmill.report.facts import Flow

    if "contexts" not in scatter.kinds(build):
        return {}
    tokens = shown_total(build, "tokens")
    kinds = {"special": "special_tokens", "padding": "pad_tokens", "repeated by overlap": "repeated_tokens"}
    gained = {name: count for name, key in kinds.items() if (count := of_kind(build, "contexts", key))}
    return {"tokens": Flow(into=tokens, out=tokens + sum(gained.values()), gained=gained)}


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    import numpy as np

    from corpusmill.stages.recounting import records_content, require_ascending
    from corpusmill.tokens.record_shard import open_record_shard

    cell = open_record_shard(folder)
    require_ascending(folder / "records", cell.ends)
    counts = {"records": cell.records, "slots": len(cell.tokens), "bytes_read": cell.tokens.nbytes}
    places = np.arange(cell.records, dtype=np.uint64)
    details = {
        "content": str(records_content(cell.tokens, cell.ends, cell.shards, cell.ordinals)),
        "places_content": str(records_content(cell.tokens, cell.ends, scatter.split_unit(unit)[1], places)),
    }
    return Recount(counts, details, complete=True)


STAGE = Stage(
    "gather",
    version=3,
    after=("scatter",),
    units_after=("tokenize",),
    group="shuffle",
    unit_word="cell",
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    memory=lambda config: ("shuffle.memory", int(config.shuffle.memory)),
    flows=_flows,
    checks=_checks,
    reclaimed=("tokens",),
    read_until="export",
    task=scatter.number_of_unit,
)
