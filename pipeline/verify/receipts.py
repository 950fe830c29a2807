"""One step's receipt against its folder, its place in the build, and its accounts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import xxhash

from corpusmill.engine.graph import PLAN
from corpusmill.ledger import RECEIPT_NAME, Receipt, output_file
from corpusmill.ledger.blocks import BLOCKS_NAME, read_digests
from corpusmill.ledger.once import LOCK_NAME
from corpusmill.verify.finding import DAMAGE, Finding, difference, finding_of
from corpusmill.verify.recorded import STEP_FOLDER, RecordedBuild

IDENTITY = ("stage", "stage_version", "unit", "settings", "inputs")
NAMED = 3  # readers of a receipt that a finding names


def check_identity(build: RecordedBuild, stage: str, unit: str) -> list[Finding]:
    """Whether the step's folder and receipt are there, readable, belong together, and are what later steps read."""
    folder = build.located(stage, unit)
    where = folder or build.work / stage
    readers = _in_words(build.named_by(stage, unit))
    if folder is None or not folder.is_dir():
        got = "nothing" + _other_folders(build, stage, unit)
        return [Finding("a step's folder is missing", str(where), f"the outputs of {stage} {unit}", got)]
    path = folder / RECEIPT_NAME
    recorded = build.recorded.get(folder)
    if recorded is None:
        return [Finding("a step has no receipt", str(path), f"the receipt of {stage} {unit}{readers}", "nothing")]
    receipt = recorded.receipt
    if receipt is None:
        return [finding_of(recorded.error, "a receipt cannot be read", path)]
    if not recorded.belongs:
        got = f"that of {receipt.stage} {receipt.unit}, fingerprint {receipt.fingerprint}"
        return [Finding("a receipt is not its folder's", str(path), f"that of {stage} {unit}", got)]
    found = [] if recorded.vouched_for else list(_edited(build, stage, unit, receipt, path))
    if stage != PLAN and receipt.digest != build.digest(stage, unit):
        what = "a receipt is not the one that later steps were made from"
        expected = f"digest {build.digest(stage, unit)}{readers}"
        found.append(Finding(what, str(path), expected, f"digest {receipt.digest}"))
    return found


def _other_folders(build: RecordedBuild, stage: str, unit: str) -> str:
    """Folders of the same unit, made from other inputs, by other settings or by another version of the code."""
    others = [
        one.name for one in build.recorded if one.parent.name == stage and STEP_FOLDER.sub(r"\1", one.name) == unit
    ]
    return f"; of other settings, inputs or code: {', '.join(others)}" if others else ""


def _edited(build: RecordedBuild, stage: str, unit: str, receipt: Receipt, path: Path) -> Iterator[Finding]:
    """Name the field of which the fingerprint no longer follows from stage, version, unit, settings and inputs."""
    digits = STEP_FOLDER.sub(r"\2", path.parent.name)
    named = False
    try:
        step = build.step(stage, unit)
    except DAMAGE:
        step = None  # what the step must be follows from receipts that are damaged themselves
    if step and step.fingerprint().startswith(digits):
        right = (step.stage, step.version, step.unit, step.settings, step.inputs)
        for field, expected in zip(IDENTITY, right, strict=True):
            got = getattr(receipt, field)
            if got != expected:
                named = True
                yield Finding("a receipt was edited", f"{path}, {field}", *difference(expected, got))
    if not receipt.fingerprint.startswith(digits) or not named:
        what = "a receipt's fingerprint does not follow from what it says of its step"
        yield Finding(what, f"{path}, fingerprint", f"{digits}..., as its folder is called", receipt.fingerprint)


def _in_words(readers: list[Receipt]) -> str:
    names = [f"{one.stage} {one.unit}" for one in readers]
    rest = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f", which {', '.join(names[:NAMED])}{rest} read" if names else ""


def check_files(folder: Path, receipt: Receipt) -> tuple[list[Finding], int, int]:
    """Every output there, with its size and digest, and nothing beside them; (findings, files and bytes read).

    Hidden files (a name or a folder that starts with a dot) and `*.partial` are the mill's temporaries and locks: what
    a killed writer left of them is never read, and is not named.
    """
    found: list[Finding] = []
    there = _files_below(folder)
    files = read_bytes = 0
    for output in receipt.outputs:
        path = there.pop(output.name, None)
        if path is None or not path.is_file():
            expected = f"{output.size_bytes:,} bytes, {output.digest}"
            found.append(Finding("an output is missing", str(folder / output.name), expected, "nothing"))
            continue
        size = path.stat().st_size
        if size != output.size_bytes:
            what = "an output is truncated" if size < output.size_bytes else "an output has bytes behind its end"
            where = f"{path}, byte {min(size, output.size_bytes)}"
            found.append(Finding(what, where, f"{output.size_bytes:,} bytes", f"{size:,} bytes"))
            continue
        got = output_file(path, output.name, output.algorithm)
        files, read_bytes = files + 1, read_bytes + size
        if got != output:
            what = "an output's bytes are not those that were written"
            found.append(Finding(what, str(path), output.digest, got.digest))
    if (digests := xxhash.xxh3_128_hexdigest(read_digests(folder))) != receipt.blocks:
        what = "the digests of the outputs' blocks are not those that were written"
        found.append(Finding(what, str(folder / BLOCKS_NAME), f"xxh3_128 {receipt.blocks}", f"xxh3_128 {digests}"))
    for name in sorted(there):
        if not _is_temporary(name):
            what = "a file lies beside the outputs that no receipt names"
            found.append(Finding(what, str(there[name]), "only the outputs and the receipt", name))
    return found, files, read_bytes


def _files_below(folder: Path) -> dict[str, Path]:
    """Everything below the folder that is not a folder (links are not), by relative name; receipt and lock left out."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in [*names, *folders]):
            if path.is_symlink() or not path.is_dir():
                found[path.relative_to(folder).as_posix()] = path
    return {name: path for name, path in found.items() if name not in {RECEIPT_NAME, LOCK_NAME}}


def _is_temporary(name: str) -> bool:
    return name.endswith(".partial") or any(part.startswith(".") for part in name.split("/"))


def check_accounts(build: RecordedBuild, stage: str, unit: str, receipt: Receipt) -> list[Finding]:
    """The stage's balance, drawn anew from the receipts of the step and its neighbours."""
    path = str(build.folder(stage, unit) / RECEIPT_NAME)
    what = f"{stage} {unit} does not balance"
    try:
        checks = build.graph[stage].checks(build, unit, receipt)
    except DAMAGE as error:
        if build.damaged and (stage, unit) not in build.damaged:
            return []  # the neighbour whose receipt is missing or edited is a finding of its own
        return [finding_of(error, f"the accounts of {stage} {unit} cannot be drawn", path)]
    return [
        Finding(f"{what}: {one.name}", path, "two equal sides", f"{one}, {one.difference:+,}")
        for one in checks
        if one.difference
    ]
