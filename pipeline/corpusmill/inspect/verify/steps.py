"""Finds the folders of a build's steps from their receipts, some of which may be damaged or missing.

A step's folder has its fingerprint in its name, which follows from its inputs' receipts. So a step is located as the
build itself does it, if its inputs have intact receipts. The steps after a damaged one are found among the folders on
disk: those whose receipts name no input of another build.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, InputReceipt, Receipt, Step, read_receipt
from corpusmill.engine.rollup import digest_of_many, read_rollup
from corpusmill.engine.stage import MANY, StepName
from corpusmill.engine.work_folder.small import refresh, refresh_all
from corpusmill.fingerprint import FOLDER_DIGITS
from corpusmill.inspect.verify.finding import DAMAGE, Finding, finding_of


@dataclass(frozen=True)
class StepFolder:
    """The folder where a step's outputs are, or should be; its receipt if intact, else the finding."""

    stage: str
    unit: str
    folder: Path
    receipt: Receipt | None = None
    finding: Finding | None = None


def open_folder(stage: str, unit: str, folder: Path) -> StepFolder:
    """A step's folder with its receipt, if intact and of this folder; outputs are not read."""
    name, path = f"{stage} {unit}", folder / RECEIPT_NAME
    refresh(path)
    try:
        receipt = read_receipt(path)
    except FileNotFoundError:
        if folder.is_dir():
            finding = Finding("a step has no receipt", str(path), f"the receipt of {name}", "nothing")
        else:
            others = ", ".join(other.name for other in _folders(folder.parent) if _unit_of(other) == unit)
            got = f"none; with other settings, inputs or code: {others}" if others else "nothing"
            finding = Finding("a step's folder is missing", str(folder), f"the outputs of {name}", got)
        return StepFolder(stage, unit, folder, finding=finding)
    except DAMAGE as error:
        return StepFolder(stage, unit, folder, finding=finding_of(error, "a receipt cannot be read", path))
    if Step.of(receipt).folder(folder.parents[1]) == folder:
        return StepFolder(stage, unit, folder, receipt)
    got = f"that of {receipt.stage} {receipt.unit}, fingerprint {receipt.fingerprint}"
    finding = Finding("a receipt is not its folder's", str(path), f"that of {name} in {folder.name}", got)
    return StepFolder(stage, unit, folder, finding=finding)


def find_steps(build: Build) -> tuple[list[StepFolder], Exception | None]:
    """Every step after the plan, in order, and why not all could be located; `build` then holds the intact receipts.

    `build` must not search for receipts itself (see Build's `find_receipt`).
    """
    steps: list[StepFolder] = []
    digests: dict[StepName, str] = {}
    elsewhere: set[InputReceipt] = set()
    whole, why = True, None
    for stage in build.graph.names:
        located, error = _locate(build, stage)
        why = why or error
        whole = whole and not error and all(step.receipt for step in located)
        if not whole:
            here = [
                folder
                for folder in _folders(build.home(stage) / stage)
                if folder not in {step.folder for step in located}
            ]
            others = [open_folder(stage, _unit_of(folder), folder) for folder in here]
            located += _behind(build, {step.unit for step in located}, others, digests, elsewhere)
        for receipt in (step.receipt for step in located if step.receipt):
            build.hold(receipt)
            digests[stage, receipt.unit] = receipt.digest
        steps += located
    known = {(step.stage, step.unit) for step in steps}
    inputs = {(receipt.stage, receipt.unit) for step in steps if step.receipt for receipt in step.receipt.inputs}
    named = {(name, unit) for name, of in inputs for unit in _named(build, name, of)}
    lost = [open_folder(stage, unit, build.home(stage) / stage / f"{unit}-*") for stage, unit in sorted(named - known)]
    return [*steps, *lost], why


def _named(build: Build, stage: str, unit: str) -> list[str]:
    """The units that an input names; of many, none if it cannot be known which there were."""
    try:
        return build.named(stage, unit)
    except DAMAGE:
        return []


def _locate(build: Build, stage: str) -> tuple[list[StepFolder], Exception | None]:
    """The steps of a stage whose inputs all have intact receipts, and why that is not every step."""
    located: list[StepFolder] = []
    why = None
    try:
        units = build.units(stage)
    except DAMAGE as error:
        return [], error
    for unit in units:
        try:
            located.append(open_folder(stage, unit, build.step(stage, unit).folder(build.home(stage))))
        except DAMAGE as error:
            why = error
    return located, why


def _behind(
    build: Build,
    units: set[str],
    others: list[StepFolder],
    digests: dict[StepName, str],
    elsewhere: set[InputReceipt],
) -> list[StepFolder]:
    """The folders of a stage's `others` that can be the build's, for units not in `units`; adds the rest to
    `elsewhere`.

    Their inputs do not contradict `digests`, in which some may be missing. Of a unit's folders that with most equal
    inputs is taken, and of these the newest; one with an input in `elsewhere` only if there is no better: two builds
    can share a digest.
    """

    @cache
    def digest(stage: str, unit: str) -> tuple[str | None, bool]:
        return _digest(build, stage, unit, digests)

    def agrees(step: StepFolder) -> bool:
        known = ((item, *digest(item.stage, item.unit)) for item in (step.receipt.inputs if step.receipt else ()))
        return all(not certain or expected in {None, item.digest} for item, expected, certain in known)

    def likelihood(step: StepFolder) -> tuple[int, int, float]:
        inputs = step.receipt.inputs if step.receipt else ()
        rank = 1 if step.receipt is None else 0 if elsewhere.intersection(inputs) else 2
        equal = sum(digest(item.stage, item.unit)[0] == item.digest for item in inputs)
        return rank, equal, step.folder.stat().st_mtime

    possible = [step for step in others if step.unit not in units and agrees(step)]
    taken = {step.unit: step for step in sorted(possible, key=likelihood)}
    foreign = [step.receipt for step in others if step.receipt and step is not taken.get(step.unit)]
    elsewhere.update(InputReceipt(stage=receipt.stage, unit=receipt.unit, digest=receipt.digest) for receipt in foreign)
    return [taken[unit] for unit in sorted(taken)]


def _digest(build: Build, stage: str, unit: str, digests: dict[StepName, str]) -> tuple[str | None, bool]:
    """(the digest that an input has in a build, None if it is not known; whether that is certain).

    It is not where a lost receipt determines which units there are: those that were located may not be all.
    """
    if not unit.endswith(MANY):
        return digests.get((stage, unit)), True
    known = {of: digest for (name, of), digest in digests.items() if name == stage}
    try:
        units = build.named(stage, unit)
        rollup = read_rollup(build.plan_folder, stage, build.units(stage))
    except DAMAGE:
        units, rollup = sorted(of for of in known if of.startswith(unit.removesuffix(MANY))), None
        certain = False
    else:
        known = {**(rollup.digests if rollup else {}), **known}  # a rollup knows those of lost receipts, too
        certain = True
    if not units or not known.keys() >= set(units):
        return None, False
    return digest_of_many(b"".join(bytes.fromhex(known[of]) for of in units)), certain


def _folders(parent: Path) -> list[Path]:
    refresh_all(parent, RECEIPT_NAME)
    return sorted(parent.glob(f"*-{'[0-9a-f]' * FOLDER_DIGITS}"))


def _unit_of(folder: Path) -> str:
    return folder.name[: -FOLDER_DIGITS - 1]
