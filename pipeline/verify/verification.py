"""A whole build re-read, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from corpusmill.engine.build import Build
from corpusmill.engine.graph import PLAN
from corpusmill.engine.stage import Recount
from corpusmill.ledger import RECEIPT_NAME, Receipt
from corpusmill.report.figures import counted
from corpusmill.sources.plan import Plan
from corpusmill.verify.destinations import check_destination
from corpusmill.verify.exports import check_manifests, verify_outputs
from corpusmill.verify.finding import DAMAGE, Finding, finding_of
from corpusmill.verify.receipts import check_accounts, check_files, check_identity
from corpusmill.verify.recorded import RecordedBuild, StepName


@dataclass(frozen=True)
class Verification:
    """What was re-read, and all that is wrong with it, in the order of the steps."""

    steps: int
    files: int
    read_bytes: int
    findings: tuple[Finding, ...]


def verify_build(build: Build, *, workers: int = 1, progress: Callable[[int, int], None] | None = None) -> Verification:
    """Re-read everything that a build made; see the package's docstring.

    `progress(done, all)` is called after every step, in their order. Damage never raises: it is a finding.
    """
    recorded = RecordedBuild(build.plan_receipt, build.graph)
    if recorded.planned is None:
        what = "the plan cannot be read, so that nothing can be said of its build"
        got = "neither its receipt nor its files are what its folder's name says"
        finding = Finding(what, str(recorded.plan_folder), "config.json, plan.json and a receipt of one plan", got)
        return Verification(0, 0, 0, (finding,))
    steps = recorded.steps()
    with ThreadPoolExecutor(workers) as pool:
        parts = []
        for part in pool.map(partial(verify_step, recorded), steps):
            parts.append(part)
            if progress:
                progress(len(parts), len(steps))
    return Verification(
        len(steps),
        sum(part.files for part in parts),
        sum(part.read_bytes for part in parts),
        tuple(finding for part in parts for finding in part.findings),
    )


def verify_step(build: RecordedBuild, name: StepName) -> Verification:
    """All that can be said of one step: receipt, files, accounts, counts, and its export or destination."""
    stage, unit = name
    found = check_identity(build, stage, unit)
    receipt = build.find(stage, unit)
    folder = build.located(stage, unit)
    if receipt is None or folder is None:
        return Verification(1, 0, 0, tuple(found))
    files = read_bytes = 0
    try:
        wrong, files, read_bytes = check_files(folder, receipt)
        found += wrong
        found += check_accounts(build, stage, unit, receipt) if stage != PLAN else []
        found += _check_content(build, stage, unit, receipt, whole=not wrong)
        if stage == "upload":
            more, more_files, more_bytes = check_destination(build, unit, folder, not wrong)
            found, files, read_bytes = found + more, files + more_files, read_bytes + more_bytes
    except DAMAGE as error:
        found.append(finding_of(error, f"{stage} {unit} cannot be read", folder))
    if not found and receipt.seal != receipt.expected_seal():  # what no other check can see: seconds, versions
        what = "a receipt is not the one that was written"
        seals = f"seal {receipt.expected_seal()}", receipt.seal or "none"
        found.append(Finding(what, str(folder / RECEIPT_NAME), *seals))
    return Verification(1, files, read_bytes, tuple(found))


def _check_content(build: RecordedBuild, stage: str, unit: str, receipt: Receipt, *, whole: bool) -> Iterator[Finding]:
    """What the files hold against what the receipt says.

    Files known to be damaged are read by the verifiers of exports only, which trust nothing and can say where.
    """
    folder = build.folder(stage, unit)
    if stage == "export":
        found, recount = verify_outputs(build, unit, folder, receipt)
        yield from found
        whole = whole and not found
    elif whole:
        recount = build.graph[stage].recount(build, unit, folder) if stage != PLAN else _recount_plan(build.plan)
    if whole:
        yield from _compare(recount, receipt, folder / RECEIPT_NAME)
    if whole and stage == "manifest":
        yield from check_manifests(build, folder)


def _recount_plan(plan: Plan) -> Recount:
    files = sum(len(shard) for shard in plan.shards)
    counts = {"files": files, "shards": len(plan.shards), "source_bytes": plan.source_bytes()}
    return Recount(counts, complete=True)


def _compare(recount: Recount, receipt: Receipt, path: Path) -> Iterator[Finding]:
    for part, seen, said in (("counts", recount.counts, receipt.counts), ("details", recount.details, receipt.details)):
        for key, value in seen.items():
            if said.get(key) != value:
                what = "a receipt does not say what its step's files hold"
                yield Finding(what, f"{path}, {part}.{key}", f"{value}, as re-read", str(said.get(key)))
        for key in said.keys() - seen.keys() if recount.complete else ():
            what = "a receipt says more than its step could"
            yield Finding(what, f"{path}, {part}.{key}", "no such entry", str(said[key]))


def render(verification: Verification, *, of: str = "step", next_step: str | None = None) -> str:
    """In words for a terminal: one line when all is well, else every finding with its place.

    `of` says what `steps` counts; `next_step` says what to do about the findings.
    """
    files = counted(verification.files, "file")
    read = f"{counted(verification.steps, of)}, {files}, {verification.read_bytes:,} bytes re-read"
    if not verification.findings:
        return f"{read}; all well"
    lines = [f"{read}; {len(verification.findings):,} findings"]
    for number, finding in enumerate(verification.findings, start=1):
        lines += [
            "",
            f"{number}. {finding.what}",
            f"   where     {finding.where}",
            f"   expected  {finding.expected}",
            f"   got       {finding.got}",
        ]
    return "\n".join([*lines, "", next_step or NEXT])


NEXT = (
    "next  remove the step folders named above and build again: their steps run anew, and what they write must be the"
    " same bytes; files at a destination are sent again"
)
