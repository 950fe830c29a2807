"""What building again changes: nothing, so that a scheduler need not start its tasks; or what one shard changes.

**Nothing** (`last_report`): the plan has delivered; every stage is unchanged (engine/rollup.py), its report included;
each destination lists the version's files with their sizes, and `latest` is that version there. A hub is not asked: an
upload to it is one commit, which finds out. What a destination's files contain is read by `corpusmill verify`, or by a
run with `verify`. Price: that of engine/rollup.py, and one listing per destination.

**One shard**: request its steps again from a stage on, run what depends on it, and report what changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.builds.chain import STEPS
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.preflight import require_tokenizer
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, request_rerun
from corpusmill.engine.rollup import is_unchanged
from corpusmill.engine.runs import DELIVERED, begin_run, why_latest_stays
from corpusmill.engine.stage import StepMissingError
from corpusmill.engine.work_folder.small import refresh, write
from corpusmill.errors import ConfigError, CorpusmillError
from corpusmill.storage import is_hub
from corpusmill.storage.mirrored import path_of
from corpusmill.upload.stages.description import latest_version
from corpusmill.upload.stages.manifest import dataset_version
from corpusmill.upload.stages.report import UNIT
from corpusmill.upload.stages.upload import destination_folder, require_delivered

if TYPE_CHECKING:
    pass


BEFORE = ".before.json"
FIRST_STAGES = {
    step.name: next(stage for stage in GRAPH.per_shard if stage in step.stages)
    for step in STEPS.values()
    if not set(step.stages).isdisjoint(GRAPH.per_shard)
}
"""{step of which a shard can be done again: the stage that begins it}"""

Digests = dict[tuple[str, str], str]


@dataclass(frozen=True)
class DigestChange:
    """One step whose receipt's digest changed by reprocessing (None: there was no receipt)."""

    stage: str
    unit: str
    before: str | None
    after: str | None


def ask_for_shard(build: Build, stage: str, shard: str) -> list[tuple[str, str]]:
    """Request what one shard needs again, from a step on, or from a stage; returns what had finished, as (stage, unit).

    Nothing is removed: their outputs stay until they have run (ledger/finished.py). ConfigError for a step that does
    not work on shards, or a shard that is not planned.
    """
    stage = FIRST_STAGES.get(stage, stage)
    if stage not in GRAPH.per_shard:
        raise ConfigError(
            "reprocess.step_without_shards: this step does not process shards",
            got=stage,
            expected=", ".join(FIRST_STAGES),
            next_step="choose one of these; what depends on it is rebuilt, too",
        )
    names = build.plan.shard_names()
    if shard not in names:
        raise ConfigError(
            "reprocess.no_such_shard: there is no such shard",
            got=shard,
            expected=f"{names[0]} to {names[-1]}",
            next_step="a document's shard is shown on the dataset's page, a run's tab and by `corpusmill locate`",
        )
    asked = []
    for later in (later for later in GRAPH.per_shard if later == stage or stage in GRAPH.before(later)):
        for unit in [other for other in build.units(later) if other.split("-")[-1] == shard]:
            try:
                folder = build.step(later, unit).folder(build.work)
            except StepMissingError:
                continue
            if refresh(folder / RECEIPT_NAME):
                request_rerun(folder)
                asked.append((later, unit))
    return asked


def digests(build: Build) -> Digests:
    """The receipt digest of every step that has a valid one, except of stages that run every time."""
    digests_by_step: Digests = {}
    for stage in (stage.name for stage in build.graph if stage.reuse):
        try:
            units = build.units(stage)
        except StepMissingError:
            continue
        digests_by_step.update(
            {(stage, unit): receipt.digest for unit in units if (receipt := build.find(stage, unit))}
        )
    return digests_by_step


def begin(last_plan: Path, stage: str, shard: int) -> Path:
    """For a scheduler: plan the configuration of `last_plan` again and request the shard's steps; the new plan's
    receipt.

    The digests from before are kept beside the plan for `finish`. `latest` moves only if it follows `last_plan`.
    """
    last = open_build(last_plan)
    stays = why_latest_stays(last_plan)
    plan_receipt = begin_run(plan_dataset(last.config), latest_stays=stays)
    build = open_build(plan_receipt)
    require_tokenizer(build)
    before = digests(last) | digests(build)  # if the sources changed, the last plan's steps are the state before
    asked = ask_for_shard(build, stage, f"{shard:05d}")
    memory = {"before": [[*step, digest] for step, digest in before.items()], "asked": asked}
    write(plan_receipt.parent / BEFORE, json.dumps(memory).encode())
    return plan_receipt


def finish(plan_receipt: str | Path) -> str:
    """For a scheduler: what changed since `begin`, in words."""
    asked, before = remembered(plan_receipt)
    return render_comparison(asked, before, digests(open_build(plan_receipt)))


def remembered(plan_receipt: str | Path) -> tuple[list[tuple[str, str]], Digests]:
    """What the newest `begin` of this plan wrote: the steps that it requested, and the digests before."""
    path = path_of(plan_receipt).with_name(BEFORE)
    refresh(path, again=True)
    memory = json.loads(path.read_bytes())
    before = {(stage, unit): digest for stage, unit, digest in memory["before"]}
    return [(stage, unit) for stage, unit in memory.get("asked", ())], before


def compare(before: Digests, after: Digests) -> list[DigestChange]:
    """What changed between two states of a build; empty if reprocessing wrote the same bytes."""
    keys = list(dict.fromkeys([*before, *after]))
    return [
        DigestChange(stage, unit, before.get((stage, unit)), after.get((stage, unit)))
        for stage, unit in keys
        if before.get((stage, unit)) != after.get((stage, unit))
    ]


def render_comparison(asked: list[tuple[str, str]], before: Digests, after: Digests) -> str:
    """For people: what was repeated, and for every stage how many outputs changed, the changed ones by name."""
    changes = compare(before, after)
    lines = ["done again  " + ", ".join(f"{stage} {unit}" for stage, unit in asked)]
    for stage in dict.fromkeys(stage for stage, _ in after):
        changed = [change for change in changes if change.stage == stage]
        total = sum(1 for name, _ in after if name == stage)
        lines.append(f"{stage:<10}  {total - len(changed):>5,} unchanged  {len(changed):>5,} changed")
        for change in changed:
            lines.append(
                f"              {change.unit}  {(change.before or 'none')[:12]} -> {(change.after or 'none')[:12]}"
            )
    return "\n".join(lines)


def last_report(build: Build) -> Path | None:
    """The receipt of the last report, if building again would change nothing; else None."""
    delivered = refresh(build.plan_folder / DELIVERED)
    if not delivered or not all(is_unchanged(build, stage) for stage in build.graph.names):
        return None
    try:
        if not all(_holds(build, unit) for unit in build.units("upload")):
            return None
        return build.step_folder("report", UNIT) / RECEIPT_NAME
    except (StepMissingError, CorpusmillError, OSError):  # the run will tell
        return None


def _holds(build: Build, unit: str) -> bool:
    destination = build.config.destinations[int(unit)]
    if is_hub(destination.path):
        return False
    folder = destination_folder(build, unit)
    require_delivered(build, folder, destination.endpoint_url)
    return latest_version(folder.rpartition("/")[0], endpoint_url=destination.endpoint_url) == dataset_version(build)
