"""Finds the folders of a build's steps from their receipts, and checks each receipt against its files and accounts.

A step's folder has its fingerprint in its name, which follows from its inputs' receipts. So a step is located as the
build itself does it, if its inputs have intact receipts. The steps after a damaged one are found among the folders on
disk: those whose receipts name no input of another build.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import xxhash

from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, InputReceipt, Receipt, Step, output_file, read_receipt
from corpusmill.engine.ledger.blocks import Blocks, read_digests
from corpusmill.engine.ledger.lock import LOCK_NAME
from corpusmill.engine.ledger.receipt import BLOCKS_NAME
from corpusmill.engine.rollup import digest_of_many, read_rollup
from corpusmill.engine.stage import MANY, StepName
from corpusmill.engine.work_folder.outputs import sent, sent_digest
from corpusmill.engine.work_folder.small import refresh, refresh_all
from corpusmill.fingerprint import FOLDER_DIGITS
from corpusmill.inspect.verify.finding import DAMAGE, ELSEWHERE, Finding, finding_of
from corpusmill.storage.mirrored import address_of


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


def check_files(folder: Path, receipt: Receipt) -> tuple[list[Finding], int, int]:
    """Check that every output exists, with its size and digest, and no other file; (findings, files and bytes read).

    Hidden files (a name or a folder that starts with a dot) and `*.partial` are temporary files and locks: those that
    a killed writer left are never read, and not reported.
    """
    if receipt.attempt:
        return _check_objects(folder, receipt)
    findings: list[Finding] = []
    there = _files_below(folder)
    files = read_bytes = 0
    for output in receipt.outputs:
        path = there.pop(output.name, None)
        if output.name in receipt.reclaimed:
            continue
        if path is None or not path.is_file():
            expected = f"{output.size_bytes:,} bytes, {output.digest}"
            findings.append(Finding("an output is missing", str(folder / output.name), expected, "nothing"))
            continue
        size = path.stat().st_size
        if size != output.size_bytes:
            what = "an output is truncated" if size < output.size_bytes else "an output has bytes after its end"
            where = f"{path}, byte {min(size, output.size_bytes)}"
            findings.append(Finding(what, where, f"{output.size_bytes:,} bytes", f"{size:,} bytes"))
            continue
        got = output_file(path, output.name, output.algorithm)
        files, read_bytes = files + 1, read_bytes + size
        if got != output:
            what = "an output's bytes differ from those that were written"
            findings.append(Finding(what, str(path), output.digest, got.digest))
    if (digests := xxhash.xxh3_128_hexdigest(read_digests(folder))) != receipt.blocks:
        what = "the digests of the outputs' blocks differ from those that were written"
        findings.append(Finding(what, str(folder / BLOCKS_NAME), f"xxh3_128 {receipt.blocks}", f"xxh3_128 {digests}"))
    for name in sorted(there):
        if not _is_temporary(name):
            what = "a file next to the outputs is in no receipt"
            findings.append(Finding(what, str(there[name]), "only the outputs and the receipt", name))
    return findings, files, read_bytes


def _check_objects(folder: Path, receipt: Receipt) -> tuple[list[Finding], int, int]:
    """As check_files, for a step in a bucket, whose outputs are then in the cache, too, for the recounts."""
    findings: list[Finding] = []
    sizes = sent(folder, receipt.attempt)
    files = read_bytes = 0
    for output in receipt.outputs:
        size = sizes.pop(output.name, None)
        if output.name in receipt.reclaimed:
            continue
        where = address_of(folder / output.name)
        if size != output.size_bytes:
            got = "nothing" if size is None else f"{size:,} bytes"
            findings.append(
                Finding("an output is missing", where, f"{output.size_bytes:,} bytes, {output.digest}", got)
            )
            continue
        digest = f"{output.algorithm}:{sent_digest(folder, receipt.attempt, output.name, size, output.algorithm)}"
        files, read_bytes = files + 1, read_bytes + size
        if digest != output.digest:
            what = "an output's bytes differ from those that were written"
            findings.append(Finding(what, where, output.digest, digest))
    if not findings:
        Blocks(folder, receipt).require(
            output.name for output in receipt.outputs if output.name not in receipt.reclaimed
        )
    sizes.pop(BLOCKS_NAME, None)
    for name in sorted(sizes):
        what = "an object next to the outputs is in no receipt"
        findings.append(Finding(what, address_of(folder / name), "only the outputs", name))
    return findings, files, read_bytes


def _files_below(folder: Path) -> dict[str, Path]:
    """All files and links below the folder, by relative name, without receipt and lock."""
    sizes = {}
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in [*names, *folders]):
            if path.is_symlink() or not path.is_dir():
                sizes[path.relative_to(folder).as_posix()] = path
    return {name: path for name, path in sizes.items() if name not in {RECEIPT_NAME, LOCK_NAME}}


def _is_temporary(name: str) -> bool:
    return name.endswith(".partial") or any(part.startswith(".") for part in name.split("/"))


def check_accounts(build: Build, folder: Path, receipt: Receipt) -> list[Finding]:
    """Check the stage's balance, computed again from the receipts of the step and its neighbours."""
    name, path = f"{receipt.stage} {receipt.unit}", str(folder / RECEIPT_NAME)
    try:
        checks = build.graph[receipt.stage].checks(build, receipt.unit, receipt)
    except ELSEWHERE:
        return []
    except DAMAGE as error:
        return [finding_of(error, f"the accounts of {name} cannot be computed", path)]
    return [
        Finding(f"{name} does not balance: {check.name}", path, "two equal sides", f"{check}, {check.difference:+,}")
        for check in checks
        if check.difference
    ]
