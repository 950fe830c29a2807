"""Predicts what a build will reuse, what it will run, and why, from receipts, before anything runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, Receipt, Step, rerun_requested
from corpusmill.engine.ledger.receipt import parse_receipt
from corpusmill.engine.rollup import is_unchanged
from corpusmill.engine.stage import MANY, StepMissingError
from corpusmill.engine.work_folder.small import is_shared
from corpusmill.errors import CorruptDataError

NEW, EVERY_TIME = "new", "runs every time"
SHOWN = 3  # differences named per step; the rest are counted
SHOWN_REASONS = 10  # per step
WIDTH = 12  # of the steps' names


@dataclass(frozen=True)
class StepPreview:
    """One step. `may run`: an input will run, and this step runs only if that input's output changes."""

    stage: str
    unit: str
    fate: Literal["reuse", "run", "may run"]
    why: str


def preview(build: Build) -> list[StepPreview]:
    """Every step of a planned build, in order; a stage whose units are not known yet has one row."""
    with build.at_this_moment():
        return [row for stage in build.graph.names for row in _stage(build, stage)]


def _stage(build: Build, stage: str) -> Iterator[StepPreview]:
    if not build.graph[stage].reuse:
        yield StepPreview(stage, "", "run", EVERY_TIME)
        return
    try:
        units = build.units(stage)
    except StepMissingError as missing:
        yield StepPreview(stage, "", "may run", f"its units are not known yet: {missing.what}")
        return
    if is_unchanged(build, stage):
        yield from (StepPreview(stage, unit, "reuse", "") for unit in units)
        return
    folders = _folders_of_units(build.home(stage) / stage)
    shared = is_shared(build.work)  # whose steps may have folders that this machine has not seen
    for unit in units:
        if (shared or unit in folders) and build.need_not_run(stage, unit):
            yield StepPreview(stage, unit, "reuse", "")
            continue
        try:
            step = build.step(stage, unit)
        except StepMissingError as missing:
            yield StepPreview(stage, unit, "may run", f"depends on {missing.stage} {missing.unit}, which will run")
            continue
        yield StepPreview(stage, unit, "run", _why_run(step, build.home(stage), folders.get(unit, [])))


def _folders_of_units(stage_folder: Path) -> dict[str, list[Path]]:
    """The step folders of each unit, of any fingerprint; listed once, since a stage may have ten thousand."""
    folders: dict[str, list[Path]] = {}
    for folder in sorted(stage_folder.iterdir()) if stage_folder.is_dir() else ():
        folders.setdefault(folder.name.rpartition("-")[0], []).append(folder)
    return folders


def _why_run(step: Step, work: Path, folders: list[Path]) -> str:
    """Why a step runs: it was requested, is new, is damaged, or something that it depends on changed."""
    place = step.place(work)
    if rerun_requested(place):
        return "it was marked to run again, and has not finished since"
    if os.path.exists(f"{place}/{RECEIPT_NAME}"):  # noqa: PTH110
        with suppress(CorruptDataError):
            if parse_receipt(Path(place, RECEIPT_NAME)).reclaimed:
                return "it freed what a later step needs again"
        return "its outputs were damaged or its receipt was edited"
    if os.path.exists(place):  # noqa: PTH110
        return "an earlier run did not finish it"
    earlier = _newest_receipt(folders)
    if earlier is None:
        return NEW
    changes = [
        *(
            [f"stage version {earlier.stage_version} -> {step.version}"]
            if earlier.stage_version != step.version
            else []
        ),
        *_changed_settings(earlier.settings, step.settings),
        *_changed_inputs(earlier, step),
    ]
    more = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return "changed: " + "; ".join(changes[:SHOWN]) + more


def _newest_receipt(folders: list[Path]) -> Receipt | None:
    """The receipt in these folders that was written last."""
    paths = [folder / RECEIPT_NAME for folder in folders if (folder / RECEIPT_NAME).exists()]
    for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            return parse_receipt(path)
        except CorruptDataError:
            continue
    return None


def _changed_settings(earlier: dict[str, Any], now: dict[str, Any]) -> list[str]:
    names = sorted(key for key in earlier.keys() | now.keys() if earlier.get(key) != now.get(key))
    return [_difference(name, earlier.get(name), now.get(name)) for name in names]


def _difference(name: str, earlier: object, now: object) -> str:
    if isinstance(earlier, list) and isinstance(now, list):
        gone = sum(1 for input in earlier if input not in now)
        new = [input for input in now if input not in earlier]
        first = new[0].get("name", "") if new and isinstance(new[0], dict) else ""
        return f"{name}: {gone} gone, {len(new)} new or changed" + (f" ({first})" if first else "")
    return f"{name} {earlier!r} -> {now!r}"


def _changed_inputs(earlier: Receipt, step: Step) -> list[str]:
    before = {(receipt.stage, receipt.unit): receipt.digest for receipt in earlier.inputs}
    now = {(receipt.stage, receipt.unit): receipt.digest for receipt in step.inputs}
    changed = [_named(*name) for name, digest in now.items() if before.get(name) != digest]
    return changed + [f"{_named(*name)} is gone" for name in sorted(before.keys() - now.keys())]


def _named(stage: str, unit: str) -> str:
    """An input, for people: of many, which of them changed is not known."""
    return f"{stage} {unit.removesuffix(MANY)}".rstrip(" -") if unit.endswith(MANY) else f"{stage} {unit}"


def render_preview(units: list[StepPreview], step_of: Mapping[str, str]) -> str:
    """For people: a line per step with the number of units of each fate, and below it why units run.

    One sentence for a dataset that was never built. Units that may run have no reason of their own: an input will run.
    `step_of`: {stage: its step}, in the order of the steps.
    """
    by_step: dict[str, list[StepPreview]] = {step: [] for step in step_of.values()}
    for row in units:
        by_step[step_of[row.stage]].append(row)
    by_step = {step: rows for step, rows in by_step.items() if rows}
    if all(row.fate == "may run" or row.why in {NEW, EVERY_TIME} for row in units):
        names = list(by_step)
        return f"nothing is built yet: all {len(names)} steps will run, from {names[0]} to {names[-1]}"
    lines = []
    for step, rows in by_step.items():
        fates = [f"{sum(row.fate == fate for row in rows)} {fate}" for fate in ("reuse", "run", "may run")]
        lines.append(f"{step:<{WIDTH}} " + ", ".join(fate for fate in fates if not fate.startswith("0 ")))
        reasons: dict[str, dict[str, None]] = {}
        for row in rows:
            if row.fate == "run":
                reasons.setdefault(row.why, {})[row.unit] = None
        for reason, of_reason in list(reasons.items())[:SHOWN_REASONS]:
            names = [name for name in of_reason if name]
            named = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
            lines.append(f"{'':<{WIDTH}}   run: {reason}" + (f"  [{named}]" if named else ""))
        if len(reasons) > SHOWN_REASONS:
            lines.append(f"{'':<{WIDTH}}   and {len(reasons) - SHOWN_REASONS:,} other reasons")
    if any(row.fate == "may run" for row in units):
        lines.append("`may run`: runs only if an input changes.")
    return "\n".join(lines)
