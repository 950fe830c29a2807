"""What a scheduler's tasks request, besides running steps: JSON in, JSON out, so another environment can answer.

    python -m corpusmill.builds.questions units < {"plan_receipt": ..., "stage": ..., "most_tasks": ...}

prints {"answer": ...}, or {"refused": {"what": ..., "details": [[label, text], ...]}} and exits with the error's code.
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
from typing import Any

from corpusmill.config import DatasetConfig
from corpusmill.errors import CorpusmillError, TransientError, visible
from corpusmill.mirrored import address_of, path_of
from corpusmill.work_folder.moved import tell

DIFFERENCES = "differences"  # folder of the pages of `compare`, below a dataset's work folder


def plan(config: str, to_build: bool) -> str:
    """Plan a configuration, given as JSON; the path of the plan's receipt."""
    from corpusmill.builds.plan import plan_dataset

    return address_of(plan_dataset(DatasetConfig.model_validate_json(config), to_build=to_build))


def estimate(plan_receipt: str) -> dict[str, Any]:
    """The estimate of a planned dataset."""
    from corpusmill.builds.estimate import estimate_dataset
    from corpusmill.stages.graph import open_build

    return asdict(estimate_dataset(open_build(plan_receipt).config))


def units(plan_receipt: str, stage: str, most_tasks: int) -> list[str]:
    """The names of a stage's tasks, at most `most_tasks`."""
    from corpusmill.stages.graph import open_build

    return open_build(plan_receipt).tasks(stage, most_tasks)


def approval(plan_receipt: str, stage: str) -> str:
    """What somebody has to approve before a stage, in words; "" if that is nothing."""
    from corpusmill.stages.graph import GRAPH, open_build

    words = GRAPH[stage].approval
    return words(open_build(plan_receipt)) if words else ""


def report(plan_receipt: str) -> dict[str, Any]:
    """Write the report of a build whose steps have run: the path of its receipt, what to announce, the provenance."""
    from corpusmill.stages.announce import announcement
    from corpusmill.stages.graph import open_build
    from corpusmill.stages.provenance import provenance
    from corpusmill.stages.report import UNIT

    build = open_build(plan_receipt)
    receipt = build.run("report", UNIT)
    return {"receipt": address_of(receipt), "announcement": announcement(build), "provenance": provenance(build)}


def begin_reprocessing(last_plan: str, stage: str, shard: int) -> str:
    """Plan a dataset again and ask for a shard's steps; the path of the new plan's receipt."""
    from corpusmill.builds.reprocess import begin

    return address_of(begin(path_of(last_plan), stage, shard))


def finish_reprocessing(plan_receipt: str) -> str:
    """What changed, in words."""
    from corpusmill.builds.reprocess import finish

    return finish(plan_receipt)


def compare(plan_receipt: str, old: str, new: str) -> str:
    """Compare two versions of a planned dataset, named as `corpusmill diff` says; the path of the page."""
    from corpusmill.difference import compare_versions, render_difference_page
    from corpusmill.stages.graph import open_build
    from corpusmill.work_folder.small import write

    build = open_build(plan_receipt)
    difference = compare_versions(old, new, build.config)
    versions = "-".join(difference[side]["version"] for side in ("old", "new"))
    page = build.work / DIFFERENCES / f"{versions}.html"
    page.parent.mkdir(exist_ok=True)
    write(page, render_difference_page(difference).encode())
    return address_of(page)


def check_requests(config: str, ids: str) -> str:
    """Check a list of takedowns, one id a line, before it is added to a configuration's; what matches, in words."""
    from corpusmill.forgetting.requests import match_requests
    from corpusmill.report.figures import counted
    from corpusmill.steps.takedowns import id_lines, require_own_list

    dataset = DatasetConfig.model_validate_json(config)
    forget = require_own_list(dataset.forget)
    wanted = id_lines(forget, ids, where="ids")
    return f"{counted(len(wanted), 'id')}: {match_requests(dataset, forget, wanted)}"


def forget(config: str, ids: str, asked_by: str) -> int:
    """Add documents, one id a line, to the list of a configuration (JSON); how many of them are new."""
    from corpusmill.steps.takedowns import add_requests, id_lines, require_own_list

    wanted = require_own_list(DatasetConfig.model_validate_json(config).forget)
    return add_requests(wanted, id_lines(wanted, ids, where="ids"), asked_by)


def purge(plan_receipt: str) -> str:
    """Purge what is left of the documents that a build forgot, in words; PermanentError if text of theirs remains, or
    may remain.
    """
    from corpusmill.errors import PermanentError
    from corpusmill.forgetting.purge import purge as purge_build
    from corpusmill.forgetting.purge import render_purge
    from corpusmill.stages.graph import open_build

    purged = purge_build(open_build(plan_receipt))
    if purged.remains:
        raise PermanentError(
            "files still contain text of forgotten documents", where="\n".join(purged.remains), got=render_purge(purged)
        )
    if purged.unsearched:
        raise PermanentError(
            "destinations could not be searched for text of forgotten documents",
            where="\n".join(purged.unsearched),
            got=render_purge(purged),
            next_step="give this worker access to them, then purge again",
        )
    return render_purge(purged)


def probe(work_folder: str, name: str) -> str:
    """Write this worker's probe (worker_check.py); the path of the file."""
    from corpusmill.builds.worker_check import probe as probed

    return address_of(probed(path_of(work_folder), name))


QUESTIONS: dict[str, Callable[..., Any]] = {
    question.__name__: question
    for question in (
        plan,
        estimate,
        units,
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
    from corpusmill.builds.processes import end_with_task
    from corpusmill.installed import require_worker

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
        code, reply = (
            error.exit_code,
            {"refused": {"what": f"{type(error).__name__}: {error.what}", "details": details}},
        )
    except Exception:
        traceback.print_exc()
        code, reply = TransientError.exit_code, {}  # the caller retries, as it would in its own process
    tell()
    with os.fdopen(answer_to, "w", encoding="utf-8") as file:
        json.dump(reply, file)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
