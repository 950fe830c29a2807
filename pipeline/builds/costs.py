"""What a build will cost, before it runs: peak disk, and for a refresh the bytes read and written.

Each stage's totals in the last delivered build are scaled by the share of it that runs: by the source bytes of its
shards, or by the number of its units. A refresh of one percent of the sources may still rewrite all shuffled exports,
since one appended record moves others.
"""

from __future__ import annotations

from dataclasses import dataclass

from corpusmill.builds.disk import render_disk
from corpusmill.builds.preflight import needed_room
from corpusmill.engine.build import Build
from corpusmill.engine.preview import StepPreview
from corpusmill.engine.runs import delivered_plans
from corpusmill.engine.stage import StepMissingError
from corpusmill.engine.standing import stands
from corpusmill.errors import CorruptDataError
from corpusmill.ledger import Receipt
from corpusmill.report.figures import bytes_text
from corpusmill.stages.graph import open_build

DELIVERING = ("export", "writeback")


@dataclass(frozen=True)
class StageCost:
    """At most how many bytes the steps of one stage read and write; `again_bytes` of them had been reclaimed."""

    stage: str
    read_bytes: int
    written_bytes: int
    again_bytes: int = 0


def stated_costs(build: Build, steps: list[StepPreview]) -> str:
    """For people: peak disk, and if a build of the dataset was delivered before, what this one does again."""
    needed, stated_by = needed_room(build.config, build.plan, build.work)
    stated = render_disk(needed, reclaim=build.config.reclaim, stated_by=stated_by)
    delivered = delivered_plans(build.work)
    if not delivered:
        return stated
    last = build if delivered[0] == build.plan_receipt else open_build(delivered[0])
    try:
        return f"{stated}\n{render_costs(refresh_costs(build, last, steps))}"
    except CorruptDataError as error:  # damaged, or of an older version
        return f"{stated}\nrefresh     unknown, because the last build's plan cannot be read: {error}"


def refresh_costs(build: Build, last: Build, previewed: list[StepPreview]) -> list[StageCost]:
    """Upper bounds by stage for a planned build, from the receipts of the `last` one: every step that may run counts.
    Stages that read and write nothing are left out.
    """
    steps: dict[str, list[StepPreview]] = {}
    for step in previewed:
        steps.setdefault(step.stage, []).append(step)
    grown = build.plan.source_bytes() / max(1, last.plan.source_bytes())
    costs = [_stage_cost(build, last, stage, steps, grown) for stage in steps if build.graph[stage].reuse]
    sent = sum(cost.written_bytes for cost in costs if cost.stage in DELIVERING) * len(build.config.destinations)
    return [cost for cost in (*costs, StageCost("upload", sent, sent)) if cost.read_bytes or cost.written_bytes]


def _stage_cost(build: Build, last: Build, stage: str, steps: dict[str, list[StepPreview]], grown: float) -> StageCost:
    read, written, lost = _moved(last, stage)
    units = [step.unit for step in steps[stage]]
    running = [step.unit for step in steps[stage] if step.fate != "reuse"]
    again = bool(lost) and _is_read_again(build, stage, steps)
    share = 1.0 if again or not units[0] else _weight(build, running) / _weight(build, units)
    return StageCost(stage, round(share * grown * read), round(share * grown * written), lost if again else 0)


def _moved(last: Build, stage: str) -> tuple[int, int, int]:
    """(bytes that the steps of a stage read, that they wrote, that they gave back of these)."""
    if stands(last, stage):
        noted = last.standings[stage]
        return last.total(stage, "bytes_read"), noted.written_bytes, noted.given_back_bytes
    receipts = _receipts(last, stage)
    return (
        sum(receipt.counts.get("bytes_read", 0) for receipt in receipts),
        sum(receipt.written_bytes() for receipt in receipts),
        sum(receipt.written_bytes(receipt.given_back) for receipt in receipts),
    )


def _is_read_again(build: Build, stage: str, steps: dict[str, list[StepPreview]]) -> bool:
    """Whether any step of the last stage that reads what this one gives back may run."""
    reader = build.graph[stage].read_until
    return build.graph[reader].reuse and any(step.fate != "reuse" for step in steps.get(reader, ()))


def _weight(build: Build, units: list[str]) -> int:
    """Source bytes of the shards in `units`, which end in a shard's number; other units count 1 each."""
    shards = dict(zip(build.plan.shard_names(), build.plan.shards, strict=True))
    names = [unit.rpartition("-")[2] for unit in units]
    if not shards.keys() >= set(names):
        return len(units)
    return sum(1 + sum(file.size_bytes for file in shards[name]) for name in names)


def _receipts(build: Build, stage: str) -> list[Receipt]:
    """Receipts of the units that finished and were not garbage-collected since."""
    try:
        return [receipt for unit in build.units(stage) if (receipt := build.find(stage, unit))]
    except StepMissingError:
        return []


def render_costs(costs: list[StageCost]) -> str:
    """For people: a line a stage, and the totals."""
    if not costs:
        return "refresh     nothing to read and nothing to write"
    lines = ["refresh     at most, by the last build's totals"]
    for cost in costs:
        again = f", {bytes_text(cost.again_bytes)} of it freed before" if cost.again_bytes else ""
        lines.append(_cost_text(cost.stage, cost.read_bytes, cost.written_bytes) + again)
    read, written = sum(cost.read_bytes for cost in costs), sum(cost.written_bytes for cost in costs)
    return "\n".join([*lines, _cost_text("together", read, written)])


def _cost_text(name: str, read_bytes: int, written_bytes: int) -> str:
    return f"  {name:<10} reads {bytes_text(read_bytes):>9}  writes {bytes_text(written_bytes):>9}"
