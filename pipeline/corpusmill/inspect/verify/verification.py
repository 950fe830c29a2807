"""A whole build re-read, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from corpusmill.dedup.stages.union import references_found
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, Receipt
from corpusmill.engine.ledger.cache import growing
from corpusmill.engine.plan import Plan, planned_config
from corpusmill.engine.stage import PLAN, Recount
from corpusmill.inspect.verify.destinations import check_destination, check_forgotten
from corpusmill.inspect.verify.exports import check_manifests, verify_outputs
from corpusmill.inspect.verify.finding import DAMAGE, ELSEWHERE, Finding, difference, finding_of
from corpusmill.inspect.verify.receipts import StepFolder, check_accounts, check_files, find_steps, open_folder
from corpusmill.report.content import nothing_in_common
from corpusmill.report.figures import counted
from corpusmill.steps.stages import decisions
from corpusmill.steps.stages.applying import decisions_found


@dataclass(frozen=True)
class Verification:
    """What was re-read, and all findings, in the order of the steps.

    `reclaimed`: files that were removed because no step needs them any more (engine/reclaim.py). `lists`: how many
    rows of the list of `forget` and of each file of decisions match a document; references of which nothing is found.
    """

    steps: int
    files: int
    read_bytes: int
    findings: tuple[Finding, ...]
    reclaimed: int = 0
    lists: tuple[str, ...] = ()


@growing()
def verify_build(build: Build, *, workers: int = 1) -> Verification:
    """Re-read everything that a build made; see the package's docstring. Damage never raises: it is a finding."""
    build, steps, error = open_steps(build)
    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(partial(verify_step, build), steps))
    findings = [finding for part in parts for finding in part.findings]
    if error and not findings:
        findings = [finding_of(error, "not every step could be located", build.plan_folder)]
    if steps[0].receipt:  # the plan's: without it the list of forgotten documents is unknown
        findings += check_forgotten(build)
    files, read_bytes, gone = (
        sum(counts) for counts in zip(*((part.files, part.read_bytes, part.reclaimed) for part in parts), strict=True)
    )
    return Verification(len(steps), files, read_bytes, tuple(findings), gone, _lists(build))


def _lists(build: Build) -> tuple[str, ...]:
    """What matched, of each list and each reference whose steps are intact; the others are findings."""
    try:
        matched = tuple(f"{rows.name}: {rows.matched_text()}" for rows in decisions_found(build))
        return matched + nothing_in_common(references_found(build), build.config.dedup.minimum_bytes or 0)
    except (*ELSEWHERE, *DAMAGE):
        return ()


def open_steps(build: Build) -> tuple[Build, list[StepFolder], Exception | None]:
    """The build with its intact receipts, its steps (see find_steps), the plan first, and why those are not all.

    Configuration and plan are taken from the plan's receipt, even if its files are damaged.
    """
    build = Build(build.plan_receipt, build.graph, lambda _step, _work: None)
    plan = open_folder(PLAN, build.work.name, build.plan_folder)
    if plan.receipt is None:
        wrong = plan.finding and replace(plan.finding, what=f"{plan.finding.what}: no other step is known without it")
        return build, [replace(plan, finding=wrong)], None
    build.config = planned_config(plan.receipt.settings["config"])
    build.plan = msgspec.convert(plan.receipt.settings[PLAN], Plan)
    steps, error = find_steps(build)
    return build, [plan, *steps], error


def verify_step(build: Build, step: StepFolder) -> Verification:
    """Check one step: receipt, files, accounts, counts, and its export or destination."""
    findings = [_refused_list(build, step) or step.finding] if step.finding else []
    files = read_bytes = 0
    if step.receipt:
        try:
            wrong, files, read_bytes = check_files(step.folder, step.receipt)
            findings += wrong
            if not step.receipt.reclaimed:
                findings += _check_content(build, step.stage, step.folder, step.receipt, whole=not wrong)
            if step.stage != PLAN:
                findings += check_accounts(build, step.folder, step.receipt)
                if step.stage == "upload":
                    more, more_files, more_bytes = check_destination(build, step.unit, step.folder, not wrong)
                    findings, files, read_bytes = findings + more, files + more_files, read_bytes + more_bytes
        except DAMAGE as error:
            findings.append(finding_of(error, f"{step.stage} {step.unit} cannot be read", step.folder))
    gone = len(step.receipt.reclaimed) if step.receipt else 0
    return Verification(1, files, read_bytes, tuple(findings), gone)


def _refused_list(build: Build, step: StepFolder) -> Finding | None:
    """Why a build refused a list, if that is why the step that matches it is missing."""
    if step.stage != decisions.DECIDED.name or step.receipt:
        return None
    try:
        work = decisions.DECIDED_WORK
        decisions.require_matched(work.opened(build, step.unit), work.identity(build, step.unit))
    except decisions.UnmatchedDecisionsError as error:
        return replace(finding_of(error, "a list was refused", step.folder), next_step=str(dict(error.details)["next"]))
    except DAMAGE:  # of its inputs, which are findings of their own
        pass
    return None


def _check_content(build: Build, stage: str, folder: Path, receipt: Receipt, *, whole: bool) -> list[Finding]:
    """Compare the content of the files with the receipt.

    Damaged files are read only by the verifiers of exports, which trust nothing and can locate the damage.
    """
    findings: list[Finding] = []
    if stage == "export":
        findings, recount = verify_outputs(build, folder, receipt)
    elif whole:
        recount = (
            _recount_plan(build.plan) if stage == PLAN else build.graph[stage].recount(build, receipt.unit, folder)
        )
    if whole and not findings:
        findings = list(_compare(recount, receipt, folder / RECEIPT_NAME))
        findings += check_manifests(build, folder) if stage == "manifest" else []
    return findings


def _recount_plan(plan: Plan) -> Recount:
    files = sum(len(shard) for shard in plan.shards)
    counts = {"files": files, "shards": len(plan.shards), "source_bytes": plan.source_bytes()}
    return Recount(counts, complete=True)


def _compare(recount: Recount, receipt: Receipt, path: Path) -> Iterator[Finding]:
    for part, seen, recorded in (
        ("counts", recount.counts, receipt.counts),
        ("details", recount.details, receipt.details),
    ):
        stated = recorded if recount.complete else {key: value for key, value in recorded.items() if key in seen}
        if stated != seen:
            what = "a receipt does not match its step's files"
            yield Finding(what, f"{path}, {part}", *difference(seen, stated))


def render(verification: Verification, *, of: str = "step", next_step: str | None = None) -> str:
    """Render as text for a terminal: one line if all is well, else every finding with its place.

    `of`: what `steps` counts; `next_step`: what to do about the findings that do not say it themselves.
    """
    files = counted(verification.files, "file")
    read = f"{counted(verification.steps, of)}, {files}, {verification.read_bytes:,} bytes re-read"
    if verification.reclaimed:
        read += f"; {counted(verification.reclaimed, 'file')} freed (reclaim: eager)"
    if not verification.findings:
        return "\n".join([f"{read}; no errors found", *verification.lists])
    lines = [f"{read}; {counted(len(verification.findings), 'finding')}", *verification.lists]
    for number, finding in enumerate(verification.findings, start=1):
        rows = {"where": finding.where, "expected": finding.expected, "got": finding.got, "next": finding.next_step}
        lines += ["", f"{number}. {finding.what}"]
        lines += [f"   {label:<8}  {value}".replace("\n", "\n" + " " * 13) for label, value in rows.items() if value]
    with_own = [bool(finding.next_step) for finding in verification.findings]
    if not all(with_own):
        first = "first what the finding itself says; then " if any(with_own) else ""
        lines += ["", f"next  {first}{next_step or NEXT}"]
    return "\n".join(lines)


NEXT = (
    "build again with --verify: damaged steps rerun and must write the same bytes; files at a destination are sent "
    "again. If a finding stays, remove the step folder that it names and build again"
)
