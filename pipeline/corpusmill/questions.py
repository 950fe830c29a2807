"""What a scheduler's tasks request, besides running steps: JSON in, JSON out, so another environment can answer.

    python -m corpusmill.questions approval < {"plan_receipt": ..., "stage": ...}

prints {"answer": ...}, or {"refused": {"text": ..., "details": [[label, text], ...]}} and exits with the error's code.
Logs, and whatever other code prints, go to standard error.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.processes import end_with_task
from corpusmill.builds.reprocess import begin, finish, last_report
from corpusmill.builds.worker_check import probe as probed
from corpusmill.config import DatasetConfig
from corpusmill.engine.parts import number_of_parts
from corpusmill.engine.rollup import note_unchanged
from corpusmill.engine.runs import version_before
from corpusmill.engine.work_folder.moved import report_moved
from corpusmill.engine.work_folder.small import write
from corpusmill.errors import CorpusmillError, PermanentError, TransientError, visible
from corpusmill.installed import require_worker
from corpusmill.lazy import lazily
from corpusmill.report.figures import counted
from corpusmill.storage.mirrored import address_of, path_of
from corpusmill.upload.stages.report import UNIT, announcement, provenance

with lazily:
    from corpusmill.builds.forgetting import purge as forgetting_purge
    from corpusmill.builds.forgetting import remains
    from corpusmill.inspect import difference as inspect_difference
    from corpusmill.steps import takedowns


if TYPE_CHECKING:
    from corpusmill.engine.build import Build

DIFFERENCES = "differences"  # folder of the pages of `compare`, below a dataset's work folder


def plan(config: str, to_build: bool, most_tasks: int, may_be_unchanged: bool) -> dict[str, Any]:
    """Plan a configuration, given as JSON: the path of the plan's receipt, how many parts each step has, and the path
    of the last report's receipt if the build would change nothing.
    """
    receipt = plan_dataset(DatasetConfig.model_validate_json(config), to_build=to_build)
    build = open_build(receipt)
    report = last_report(build) if may_be_unchanged else None
    parts = _parts(build, most_tasks)
    return {"plan_receipt": address_of(receipt), "parts": parts, "report": report and address_of(report)}


def _parts(build: Build, most_tasks: int) -> int:
    return number_of_parts(build.plan.source_bytes(), len(build.plan.shards), most_tasks)


def estimate(plan_receipt: str) -> dict[str, Any]:
    """The estimate of a planned dataset."""
    return asdict(estimate_dataset(open_build(plan_receipt).config))


def approval(plan_receipt: str, stage: str) -> str:
    """What somebody has to approve before a stage, in words; "" if that is nothing."""
    words = GRAPH[stage].schedule.approval
    return words(open_build(plan_receipt)) if words else ""


def report(plan_receipt: str) -> dict[str, Any]:
    """Write the report of a build whose steps have run: the path of its receipt, what to announce, the provenance,
    whether this run made a version that `latest` did not already have.
    """
    build = open_build(plan_receipt)
    before = version_before(path_of(plan_receipt))
    receipt = build.run("report", UNIT)
    note_unchanged(build)
    announced = announcement(build)
    return {
        "receipt": address_of(receipt),
        "announcement": announced,
        "provenance": provenance(build),
        "is_new": announced["version"] != before,
    }


def begin_reprocessing(last_plan: str, stage: str, shard: int, most_tasks: int) -> dict[str, Any]:
    """Plan a dataset again and ask for a shard's steps: the path of the new plan's receipt, and how many parts each
    step has.
    """
    receipt = begin(path_of(last_plan), stage, shard)
    return {"plan_receipt": address_of(receipt), "parts": _parts(open_build(receipt), most_tasks)}


def finish_reprocessing(plan_receipt: str) -> str:
    """What changed, in words."""
    return finish(plan_receipt)


def compare(plan_receipt: str, old: str, new: str) -> str:
    """Compare two versions of a planned dataset, named as `corpusmill diff` says; the path of the page."""
    build = open_build(plan_receipt)
    difference = inspect_difference.compare_versions(old, new, build.config)
    versions = "-".join(difference[side]["version"] for side in ("old", "new"))
    page = build.work / DIFFERENCES / f"{versions}.html"
    page.parent.mkdir(exist_ok=True)
    write(page, inspect_difference.render_difference_page(difference).encode())
    return address_of(page)


def check_requests(config: str, ids: str) -> str:
    """Check a list of takedowns, one id a line, before it is added to a configuration's; what matches, in words."""
    dataset = DatasetConfig.model_validate_json(config)
    forget = takedowns.require_own_list(dataset.forget)
    wanted = takedowns.id_lines(forget, ids, where="ids")
    return f"{counted(len(wanted), 'id')}: {remains.match_requests(dataset, forget, wanted)}"


def forget(config: str, ids: str, asked_by: str) -> int:
    """Add documents, one id a line, to the list of a configuration (JSON); how many of them are new."""
    wanted = takedowns.require_own_list(DatasetConfig.model_validate_json(config).forget)
    return takedowns.add_requests(wanted, takedowns.id_lines(wanted, ids, where="ids"), asked_by)


def purge(plan_receipt: str) -> str:
    """Purge what is left of the documents that a build forgot, in words; PermanentError if text of theirs remains, or
    may remain.
    """
    purged = forgetting_purge.purge(open_build(plan_receipt))
    if purged.remains:
        raise PermanentError(
            "forget.text_remains: files still contain text of forgotten documents",
            where="\n".join(purged.remains),
            got=forgetting_purge.render_purge(purged),
        )
    if purged.unsearched:
        raise PermanentError(
            "forget.destinations_unsearched: destinations could not be searched for text of forgotten documents",
            where="\n".join(purged.unsearched),
            got=forgetting_purge.render_purge(purged),
            next_step="give this worker access to them, then purge again",
        )
    return forgetting_purge.render_purge(purged)


def probe(work_folder: str, name: str) -> str:
    """Write this worker's probe (worker_check.py); the path of the file."""
    return address_of(probed(path_of(work_folder), name))


QUESTIONS: dict[str, Callable[..., Any]] = {
    question.__name__: question
    for question in (
        plan,
        estimate,
        approval,
        report,
        begin_reprocessing,
        finish_reprocessing,
        compare,
        check_requests,
        forget,
        purge,
        probe,
    )
}


def main(question: str) -> int:
    """Answer one question; the exit code."""
    end_with_task()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    answer_to = os.dup(1)
    os.dup2(2, 1)
    code, values = 0, json.load(sys.stdin)
    try:
        require_worker()
        reply: dict[str, Any] = {"answer": QUESTIONS[question](**values)}
    except CorpusmillError as error:
        details = [[label, visible(str(value))] for label, value in error.details]
        code, reply = error.exit_code, {"refused": {"text": f"{error.code}: {error.what}", "details": details}}
    except Exception:
        traceback.print_exc()
        code, reply = TransientError.exit_code, {}  # the caller retries, as it would in its own process
    report_moved()
    with os.fdopen(answer_to, "w", encoding="utf-8") as file:
        json.dump(reply, file)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
