"""Checks one step's receipt against the files in its folder, and its accounts."""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, Receipt, output_file
from corpusmill.engine.ledger.blocks import Blocks, read_digests
from corpusmill.engine.ledger.lock import LOCK_NAME
from corpusmill.engine.ledger.receipt import BLOCKS_NAME
from corpusmill.engine.work_folder.outputs import sent, sent_digest
from corpusmill.inspect.verify.finding import DAMAGE, ELSEWHERE, Finding, finding_of
from corpusmill.storage.mirrored import address_of


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
