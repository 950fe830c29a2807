"""The dataset pages over Airflow's own database: who may see what, what they say, and which files they follow."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.chain import STEPS, all_tasks, needed_tasks
from corpusmill.builds.estimate import render_estimate
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.reprocess import FIRST_STAGES
from corpusmill.config import check_config
from corpusmill.engine.estimates import Estimate
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.engine.parts import Part
from tests.dags.conftest import PASSWORDS, Ask
from tests.dags.seeded import (
    add_task,
    add_xcom,
    remove_tasks,
    seed_run,
    set_handed_on,
    set_state_of_plan,
    set_state_of_run,
    set_state_of_task,
    task_row,
)
from tests.report.page import Page
from tests.system.corpus import configuration, write_corpus


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished dataset; its plan's receipt."""
    root = tmp_path_factory.mktemp("built")
    write_corpus(root / "corpus")
    return build_dataset(check_config(configuration(root), where="test"), workers=1)


@pytest.fixture(scope="module")
def finished(client: Any, built: Path) -> str:
    return seed_run(built, "finished")


@pytest.fixture
def copied(built: Path, tmp_path: Path) -> Path:
    """The finished dataset's work folder somewhere else, for tests that break it; its plan's receipt."""
    work = built.parents[2]
    shutil.copytree(work, tmp_path / work.name)
    return tmp_path / work.name / built.relative_to(work)


def words(html: str) -> str:
    """The text of a page, with a space where a block begins."""
    return " ".join(Page(re.sub(r"<(p|pre|div|span|td|th|h1|h2)\b", r" <\1", html)).text.split())


def said(answer: Any) -> str:
    return words(answer.text)


def _report(plan: Path) -> Path:
    return next((plan.parents[2] / "report").glob(f"*/{RECEIPT_NAME}"))


PATHS = ["datasets", "-/page.js", "build_dataset/some", "build_dataset/some/live", "build_dataset/some/report"]


@pytest.mark.parametrize("path", PATHS)
def test_every_address_without_a_login_is_refused(ask: Ask, path: str) -> None:
    page = ask(path, user=None)
    assert page.status_code == 401
    assert "Log in to Airflow again" in said(page)
    assert ask(path, user=None, accept="application/json").json()["detail"]


@pytest.mark.parametrize("path", [path for path in PATHS if path.startswith("build")])
def test_user_who_may_not_read_the_dag_is_refused_with_words(
    ask: Ask, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    manager = type(get_auth_manager())
    monkeypatch.setattr(manager, "is_authorized_dag", lambda *_, **__: False)
    page = ask(path)
    assert page.status_code == 403
    assert "permission to read the DAG" in said(page)


def test_datasets_of_dags_that_the_user_may_not_read_are_not_listed(
    ask: Ask, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    assert "tiny" in said(ask("datasets"))
    monkeypatch.setattr(type(get_auth_manager()), "is_authorized_dag", lambda *_, **__: False)
    assert "No dataset yet" in said(ask("datasets"))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("report.css", {"text/css"}),
        ("page.css", {"text/css"}),
        ("run.js", {"text/javascript", "application/javascript"}),
        ("icon.svg", {"image/svg+xml"}),
    ],
)
def test_asset_has_a_media_type_that_browsers_accept_without_guessing(ask: Ask, name: str, kinds: set[str]) -> None:
    answer = ask(f"-/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].partition(";")[0] in kinds
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["", "docs", "openapi.json", "redoc", "-/../endpoints.py", "-/run.html"])
def test_no_other_address_answers(ask: Ask, path: str) -> None:
    assert ask(path).status_code in {401, 404, 405}


def test_datasets_page_names_the_newest_build_and_its_figures(ask: Ask, finished: str, built: Path) -> None:
    answer = ask("datasets")
    build = open_build(built)
    exact = [str(item["title"]) for item in Page(answer.text).all("b") if "title" in item]
    assert f"{build.total('tokenize', 'tokens'):,}" in exact
    assert f"version {json.loads(_report(built).read_text())['details']['version']}" in said(answer)
    assert "in balance" in said(answer)


def test_run_page_asks_nothing_outside_of_this_server(ask: Ask, finished: str) -> None:
    for path in ("datasets", f"build_dataset/{finished}"):
        answer = ask(path)
        assert answer.status_code == 200
        page = Page(answer.text)
        asked = [value for _, names in page.elements for name, value in names.items() if name in {"src", "href"}]
        assert asked
        assert all(str(value).startswith("/") for value in asked)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy


def test_finished_run_shows_every_shard_with_its_digest_and_a_button(ask: Ask, finished: str, built: Path) -> None:
    page = Page(ask(f"build_dataset/{finished}").text)
    build = open_build(built)
    shards = build.units("index")
    assert [item["data-reprocess"] for item in page.all("button") if "data-reprocess" in item] == shards
    for shard in shards:
        assert build.receipt("tokenize", shard).digest[:10] in page.text
    assert not [item for item in page.all("button") if "data-reprocess" in item and "disabled" in item]


def test_run_whose_tasks_take_several_shards_shows_every_shard_and_clears_the_task_that_has_it(
    ask: Ask, built: Path
) -> None:
    shards = open_build(built).units("tokenize")
    assert len(shards) > 2
    run = seed_run(built, "grouped", until="tokenize", state="failed", parts=2)
    page = ask(f"build_dataset/{run}/live").text
    of_first = open_build(built).units_of_shards("tokenize", Part(1, 2))
    assert 0 < len(of_first) < len(shards)
    for shard in shards:
        (row,) = re.findall(rf'<tr data-word="(\w+)" data-shard="{shard}">.*?data-place="(\d)"', page, re.DOTALL)
        assert row == (("failed", "0") if shard in of_first else ("stopped", "1")), shard


def step_rows(page: Page) -> dict[str, str]:
    """Step -> its class: the state that its row shows."""
    rows = [item for item in page.all("details") if str(item.get("id")).startswith("step-")]
    return {str(item["id"]).removeprefix("step-"): str(item["class"]).removeprefix("step ") for item in rows}


def test_running_run_shows_the_steps_of_the_chain_in_order_and_how_far_each_is(
    ask: Ask, built: Path, client: Any
) -> None:
    shards = len(open_build(built).units("tokenize"))
    run = seed_run(built, "running", until="tokenize", state="running", tries={("tokenize", 1): 2}, parts=shards)
    answer = ask(f"build_dataset/{run}/live")
    page, text = Page(answer.text), said(answer)
    rows = step_rows(page)
    assert list(rows) == list(STEPS)
    place = list(STEPS).index("tokenize")
    assert list(rows.values()) == ["done"] * place + ["running"] + ["waiting"] * (len(rows) - place - 1)
    assert f"{place} of {len(rows)} steps done" in text
    assert f"tokenize {shards - 1} of {shards} 1 running" in text
    assert "tokenize try 2" in text
    buttons = [item for item in page.all("button") if "data-reprocess" in item]
    assert len(buttons) == shards
    assert all("disabled" in button for button in buttons)
    assert "once this run has ended" in text


def test_step_that_somebody_opens_shows_what_happens_inside_of_it(ask: Ask, built: Path, client: Any) -> None:
    build = open_build(built)
    run = seed_run(built, "opened", until="shuffle.scatter", state="running")
    page = ask(f"build_dataset/{run}/live").text
    (inside,) = re.findall(r'id="step-find_ranges"><summary>.*?</summary>(.*?)</details>', page, re.DOTALL)
    text = words(inside)
    assert STEPS["find_ranges"].title in text
    for stage in ("shared", "context", "settle", "border", "match"):
        assert f" {stage} {len(build.units(stage))} " in text
    assert not [item for item in Page(page).all("details") if "open" in item]


def test_task_at_work_on_all_shards_shows_those_that_it_has_done(ask: Ask, built: Path, client: Any) -> None:
    build = open_build(built)
    run = seed_run(built, "alone", until="tokenize", state="running")
    shards = build.units("tokenize")
    now = time.time()
    for number, shard in enumerate(shards):
        path = build.step_folder("tokenize", shard) / RECEIPT_NAME
        os.utime(path, (now, now) if number < 2 else (1, 1))
    text = said(ask(f"build_dataset/{run}/live"))
    assert f"tokenize running, tokenize 2 of {len(shards)} shards" in text
    assert f"0 of {len(STEPS)}" not in text


def test_step_that_the_configuration_does_not_need_says_why(
    ask: Ask, client: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("kept")
    write_corpus(root / "corpus")
    config = configuration(root, dedup={"mode": "none"}, exports={"numpy": {"tokens_per_shard": 5000}})
    plan = build_dataset(check_config(config, where="test"), workers=1)
    run = seed_run(plan, "no-duplicates", until="tokenize", state="running")
    page = Page(ask(f"build_dataset/{run}/live").text)
    assert step_rows(page)["find_ranges"] == "skipped"
    text = " ".join(page.text.split())
    assert "find_ranges not needed: deduplication is off" in text
    needed = {task.step.name for task in needed_tasks(open_build(plan).config)}
    assert {step for step, word in step_rows(page).items() if word == "skipped"} == set(STEPS) - needed
    assert f"of {len(needed)} steps done" in text
    remove_tasks(run, *(task.name for task in all_tasks() if task.step.name == "find_ranges"))
    assert step_rows(Page(ask(f"build_dataset/{run}/live").text))["find_ranges"] == "skipped"  # a DAG of its own


@pytest.mark.parametrize(
    ("planning", "title"),
    [
        ("up_for_reschedule", "This run waits for another one"),  # two runs of one dataset at once
        ("up_for_retry", "The sources could not be listed yet"),  # an unreachable bucket
        ("running", "The sources are being listed"),
    ],
)
def test_run_without_a_plan_says_what_it_waits_for(
    ask: Ask, built: Path, client: Any, planning: str, title: str
) -> None:
    run = seed_run(built, f"planning-{planning}", until="download", state="running")
    set_state_of_plan(run, planning, why="it is said <here>")
    add_xcom(run, "download", 0, "why", "an older reason of another task")
    text = said(ask(f"build_dataset/{run}/live"))
    assert title in text
    assert "older reason" not in text
    assert planning == "running" or "it is said <here>" in text
    assert planning == "running" or "by itself" in text


@pytest.mark.parametrize("state", ["failed", "running"])  # the run goes on until its last task has closed it
def test_failed_plan_is_said_in_its_own_words_and_leads_to_its_log(
    ask: Ask, built: Path, client: Any, state: str
) -> None:
    run = seed_run(built, f"no-plan-{state}", until="download", state="failed")
    set_state_of_run(run, state)
    set_state_of_plan(run, "failed", why="unknown tokenizer\n  where     tokenizer.name: cl100k_bse")
    answer = ask(f"build_dataset/{run}")
    page, text = Page(answer.text), said(answer)
    assert "Nothing was built: this run could not be planned" in text
    assert "unknown tokenizer where tokenizer.name: cl100k_bse" in text
    assert "Progress" not in text
    assert [item for item in page.all("a") if str(item.get("href")).endswith(f"/runs/{run}/tasks/plan")]


def test_failed_plan_of_a_cleared_run_does_not_say_that_nothing_was_built(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "planned-again")
    set_state_of_plan(run, "failed", why="a source does not exist")
    text = said(ask(f"build_dataset/{run}"))
    assert "This run could not be planned again a source does not exist" in text
    assert "is still there" in text
    assert "Nothing was built" not in text


def test_parts_that_a_cleared_run_has_no_more_are_not_counted(ask: Ask, built: Path, client: Any) -> None:
    """Airflow keeps the task instances and what they returned when there are fewer parts than before."""
    run = seed_run(built, "shrunk", until="tokenize", state="running", parts=3)
    for task_id in ("download", "index.index", "writeback", "tokenize"):
        set_state_of_task(run, task_id, 2, "removed")
    set_handed_on(run, {"plan": [{"part": f"{number}/2", "plan_receipt": str(built)} for number in (1, 2)]})
    page = Page(ask(f"build_dataset/{run}/live").text)
    assert "tokenize 1 of 2 1 running" in " ".join(page.text.split())
    shards = [item["data-shard"] for item in page.all("tr") if "data-shard" in item]
    assert shards == open_build(built).units("tokenize")


TASKS = [task.name for task in all_tasks()]
NEEDED = [task.name for task in needed_tasks(check_config(configuration(Path("/nowhere")), where="test"), 3)]


@pytest.mark.parametrize("task_id", NEEDED)
def test_failed_task_of_whichever_step_shows_its_own_error_and_leads_to_its_log(
    ask: Ask, built: Path, client: Any, task_id: str
) -> None:
    run = seed_run(built, f"failed-{task_id}", until=task_id, state="failed", parts=3)
    alone = task_id in {task.name for task in all_tasks() if task.round.alone}
    add_xcom(run, task_id, -1 if alone else 0, "why", f"{task_id} <cannot> go on\n  next  do this")
    answer = ask(f"build_dataset/{run}")
    page, text = Page(answer.text), said(answer)
    assert re.search(rf"{task_id}\b[^.]* failed {task_id} <cannot> go on next do this Its log has details", text)
    address = f"/runs/{run}/tasks/{task_id}" + ("" if alone else "/mapped/0")
    assert [item for item in page.all("a") if str(item.get("href")).endswith(address)]
    assert step_rows(page)[task_id.partition(".")[0]] == "failed"


def test_two_parts_of_which_the_second_failed_shows_that_ones_error(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "second", until="tokenize", state="failed", parts=2)
    set_state_of_task(run, "tokenize", 0, "success")
    set_state_of_task(run, "tokenize", 1, "failed", why="the second cannot go on")
    add_xcom(run, "tokenize", 0, "why", "of a try that is over")
    text = said(ask(f"build_dataset/{run}"))
    assert "failed the second cannot go on" in text
    assert "of a try that is over" not in text
    assert "tokenize 1 of 2 1 failed" in text


def test_failed_task_that_did_not_say_why_leads_to_its_log(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "killed", until="tokenize", state="failed")
    assert re.search(r"tokenize\b[^.]* failed Its log says what failed", said(ask(f"build_dataset/{run}")))


def test_task_that_will_try_again_says_why_and_no_more_once_it_has_passed(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "retried", until="tokenize", state="running")
    set_state_of_task(run, "tokenize", 0, "up_for_retry", why="the store did not answer")
    text = said(ask(f"build_dataset/{run}/live"))
    assert "failed, and will try again by itself the store did not answer" in text
    assert "tokenize will try again" in text
    set_state_of_task(run, "tokenize", 0, "success")
    assert "the store did not answer" not in said(ask(f"build_dataset/{run}/live"))


@pytest.mark.parametrize("task_id", ["close", "compare"])
def test_failed_task_that_is_of_no_step_is_shown_with_its_error(
    ask: Ask, built: Path, client: Any, task_id: str
) -> None:
    """The run was red, and its page showed nine steps that were done."""
    run = seed_run(built, f"other-{task_id}")
    remove_tasks(run, "close")
    add_task(run, task_row(task_id, -1, None, "failed", datetime.now(UTC), datetime.now(UTC)))
    add_xcom(run, task_id, -1, "why", "the claim cannot be read")
    text = said(ask(f"build_dataset/{run}"))
    assert f"{task_id} failed the claim cannot be read" in text
    assert "The delivery of this run is still valid" not in text  # nobody has cleared anything


def test_rejected_approval_is_shown_as_the_reason_that_the_run_failed(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "rejected", until="writeback", state="failed")
    set_state_of_task(run, "writeback", 0, "upstream_failed")
    set_state_of_task(run, "approve_removal", -1, "failed")
    assert "approve_removal failed Somebody rejected it" in said(ask(f"build_dataset/{run}"))


def test_run_of_an_older_version_has_a_page_with_its_report_and_no_steps(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "older")
    remove_tasks(run, *TASKS[:-1])
    now = datetime.now(UTC)
    for task_id, index in (
        ("units.index", 0),
        ("find_ranges.match", 1),
        ("find_ranges.list_match", -1),
        ("match", 0),
        ("exports.export", 0),
        ("download", 0),
        ("tokenize", 2),
    ):
        add_task(run, task_row(task_id, index, "00000", "success", now, now))
    set_handed_on(run, {"plan": str(built)})
    answer = ask(f"build_dataset/{run}")
    page, text = Page(answer.text), said(answer)
    assert "An older version of Corpusmill planned this run" in text
    assert step_rows(page) == {}
    shards = [item["data-shard"] for item in page.all("tr") if "data-shard" in item]
    assert shards == open_build(built).units("tokenize")


def test_run_of_an_older_version_that_failed_says_what_failed_and_that_a_new_run_goes_on(
    ask: Ask, built: Path, client: Any
) -> None:
    run = seed_run(built, "older-failed", until="download", state="failed")
    remove_tasks(run, *TASKS)
    add_task(run, task_row("units.tokenize", 2, "00002", "failed", datetime.now(UTC), datetime.now(UTC)))
    add_xcom(run, "units.tokenize", 2, "why", "the text is not what it was")
    set_handed_on(run, {"plan": str(built)})
    answer = ask(f"build_dataset/{run}")
    page, text = Page(answer.text), said(answer)
    assert "units.tokenize 00002 failed the text is not what it was" in text
    assert "a new run reuses it" in text
    assert step_rows(page) == {}


def skip_all(run: str) -> None:
    """As if the plan had ended the run."""
    for task in all_tasks():
        remove_tasks(run, task.name)
        add_task(run, task_row(task.name, -1, None, "skipped", None, None))


FIGURES = {
    **dict.fromkeys(
        ("sampled_text_bytes", "text_bytes", "tokens", "tokens_low", "tokens_high", "peak_rss_bytes"), 5000
    ),
    **{"scale": 1.0, "duplicate_share": 0.1, "cores": 2, "hours": 0.1, "output_bytes": {"numpy": 10}, "held": []},
}


def test_dry_run_shows_its_estimate_and_neither_steps_nor_shards(ask: Ask, built: Path, client: Any) -> None:
    """Its shards were shown as done: every task was skipped, as after a run that had reused everything."""
    run = seed_run(built, "dry")
    skip_all(run)
    add_xcom(run, "plan", -1, "estimate", FIGURES)
    answer = ask(f"build_dataset/{run}")
    page, text = Page(answer.text), said(answer)
    assert "Estimate of a build" in text
    assert " ".join(render_estimate(Estimate(**FIGURES)).split()) in text
    assert step_rows(page) == {}
    assert not [item for item in page.all("tr") if "data-shard" in item]


@pytest.mark.parametrize("figures", [{"tokens": 3}, FIGURES | {"held": 5}, FIGURES | {"tokens": "many"}])
def test_estimate_of_another_version_is_said_to_be_one(
    ask: Ask, built: Path, client: Any, figures: dict[str, Any]
) -> None:
    run = seed_run(built, f"dry-{len(figures)}-{figures['tokens']}")
    skip_all(run)
    add_xcom(run, "plan", -1, "estimate", figures)
    answer = ask(f"build_dataset/{run}")
    assert answer.status_code == 200
    assert "Another version of Corpusmill wrote its estimate" in said(answer)


def test_run_that_changed_nothing_shows_the_last_report_and_reprocesses_in_a_new_run(
    ask: Ask, built: Path, client: Any
) -> None:
    run = seed_run(built, "unchanged")
    skip_all(run)
    set_handed_on(run, {"report": None})
    add_xcom(run, "plan", -1, "unchanged", str(_report(built)))
    page = Page(ask(f"build_dataset/{run}").text)
    assert "Nothing has changed" in " ".join(page.text.split())
    assert [item["data-word"] for item in page.all("tr") if "data-shard" in item] == ["done"] * len(
        open_build(built).units("tokenize")
    )
    options = page.all("option")
    assert options
    assert {item["data-task"] for item in options} == {""}
    assert ask(f"build_dataset/{run}/report").status_code == 200


def test_cleared_run_that_has_not_begun_again_does_not_say_that_nothing_has_changed(
    ask: Ask, built: Path, client: Any
) -> None:
    """Airflow keeps what a task has said until it begins again."""
    run = seed_run(built, "unchanged-cleared")
    skip_all(run)
    add_xcom(run, "plan", -1, "unchanged", str(_report(built)))
    set_state_of_task(run, "plan", -1, None)
    set_state_of_run(run, "running")
    assert "Nothing has changed" not in said(ask(f"build_dataset/{run}"))


def test_cleared_run_that_failed_does_not_show_the_report_of_the_try_before(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "report-before")
    assert 'data-report="yes"' in ask(f"build_dataset/{run}").text
    set_state_of_task(run, "tokenize", 0, "failed")
    set_state_of_task(run, "report", -1, "upstream_failed")
    set_state_of_run(run, "failed")
    page = ask(f"build_dataset/{run}").text
    assert 'data-report="no"' in page
    assert "The report is no longer there" not in page


def test_steps_to_begin_with_come_with_the_moving_parts(ask: Ask, built: Path, client: Any) -> None:
    """A page that was opened before the run had a plan offered none once the run had ended."""
    run = seed_run(built, "moving-options", parts=2)
    page, live = (Page(ask(f"build_dataset/{run}{path}").text).all("option") for path in ("", "/live"))
    assert page == live
    assert live


def test_option_of_a_step_names_the_task_that_does_it(ask: Ask, built: Path, client: Any) -> None:
    """With one part the first task of a step does all of it, and Airflow skips the others."""
    for parts in (1, 3):
        run = seed_run(built, f"options-{parts}", parts=parts)
        options = Page(ask(f"build_dataset/{run}").text).all("option")
        needed = [task.name for task in needed_tasks(open_build(built).config, parts)]
        tasks = [str(item["data-task"]) for item in options]
        assert set(tasks) <= set(needed)
        assert [name.partition(".")[0] for name in tasks] == list(FIRST_STAGES)
        assert {item["data-mapped"] for item in options} == {"yes"}


STRANGE = [None, 5, [], [{}], [{"plan_receipt": 7}], "/receipt.json", "s3:///x/receipt.json"]


@pytest.mark.parametrize("value", STRANGE)
def test_plan_that_handed_on_something_else_has_a_page(ask: Ask, built: Path, client: Any, value: Any) -> None:
    """People can edit what tasks hand on; the page failed with status 500."""
    run = seed_run(built, f"strange-{STRANGE.index(value)}")
    set_handed_on(run, {"plan": value})
    answer = ask(f"build_dataset/{run}")
    assert answer.status_code == 200
    assert "This run has no plan" in said(answer)


STATES = [
    *(None, "scheduled", "queued", "running", "restarting", "deferred", "awaiting_input", "success", "failed"),
    *("skipped", "upstream_failed", "up_for_retry", "up_for_reschedule", "removed"),
]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("of_run", ["running", "failed", "success", "queued"])
def test_run_whose_tasks_are_in_any_state_has_a_page(
    ask: Ask, built: Path, client: Any, state: str | None, of_run: str
) -> None:
    run = seed_run(built, f"any-{state}-{of_run}", until="writeback", state="running", parts=2)
    for task_id, place in (("download", 1), ("find_ranges.match", 0), ("writeback", 0), ("report", -1)):
        set_state_of_task(run, task_id, place, state)
    set_state_of_run(run, of_run)
    page = ask(f"build_dataset/{run}")
    assert page.status_code == 200
    rows = step_rows(Page(page.text))
    assert set(rows) <= set(STEPS)
    assert not re.search("None|Undefined", said(page))


def test_green_run_of_which_a_cleared_task_failed_says_so_and_what_is_still_valid(
    ask: Ask, built: Path, client: Any
) -> None:
    """Airflow judges a run by its last tasks, and those had ended well before the clearing."""
    run = seed_run(built, "green", parts=len(open_build(built).units("index")))
    text = said(ask(f"build_dataset/{run}"))
    assert "failed" not in text
    set_state_of_task(run, "index.index", 1, "failed")
    answer = ask(f"build_dataset/{run}")
    page, text = Page(answer.text), said(answer)
    assert "index.index 00001 failed" in text
    assert "The delivery of this run is still valid" in text
    assert "index failed" in text  # its shard, in the table of them
    assert [item for item in page.all("a") if "tasks/index.index/mapped/1" in str(item.get("href"))]


def test_run_that_asks_for_an_approval_leads_to_the_task_that_waits(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "asking", until="find_ranges.match", state="running")
    assert "This run waits for you" not in ask(f"build_dataset/{run}/live").text
    set_state_of_task(run, "approve_removal", -1, "awaiting_input")
    page = ask(f"build_dataset/{run}/live").text
    assert "This run waits for you" in page
    assert f"/runs/{run}/tasks/approve_removal" in page


def asks_before_the_plan(plan: Path, run_id: str, state: str, planning: str | None) -> str:
    """A run of forget_documents, whose plan begins when somebody has approved."""
    run = seed_run(plan, run_id, dag_id="forget_documents", until="download", state="running")
    set_handed_on(run, {"plan": None})
    set_state_of_task(run, "plan", -1, planning)
    set_state_of_task(run, "download", 0, planning)
    remove_tasks(run, "approve_removal", "approve_decontamination")
    waiting = task_row("approve_forgetting", -1, None, state, datetime.now(UTC), None)
    add_task(run, waiting, "forget_documents")
    return run


def test_run_that_asks_before_it_is_planned_says_what_to_review(ask: Ask, built: Path, client: Any) -> None:
    """It said that the sources were being listed."""
    run = asks_before_the_plan(built, "forgetting", "awaiting_input", None)
    answer = ask(f"forget_documents/{run}/live")
    assert "This run waits for you Somebody must review which documents would be forgotten" in said(answer)
    assert f"/dags/forget_documents/runs/{run}/tasks/approve_forgetting" in answer.text
    assert "The sources are being listed" not in said(answer)


def test_run_that_was_rejected_before_it_was_planned_does_not_lead_to_the_log_of_its_plan(
    ask: Ask, built: Path, client: Any
) -> None:
    run = asks_before_the_plan(built, "not-forgetting", "failed", "upstream_failed")
    set_state_of_run(run, "failed")
    text = said(ask(f"forget_documents/{run}"))
    assert "approve_forgetting failed Somebody rejected it" in text
    assert "This run has no plan" not in text


def test_cleared_task_that_waits_for_another_run_says_for_which(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "cleared", state="running", parts=2)
    assert "waits for another one" not in said(ask(f"build_dataset/{run}/live"))
    add_xcom(run, "download", 0, "why", "a reason of another task")
    set_state_of_task(run, "index.index", 1, "up_for_reschedule", why="run two of reprocess_shard")
    text = said(ask(f"build_dataset/{run}/live"))
    assert "This run waits for another one run two of reprocess_shard" in text
    assert "a reason of another task" not in text
    set_state_of_run(run, "failed")  # by somebody: it waits no more
    assert "This run waits for another one" not in said(ask(f"build_dataset/{run}/live"))


def test_last_task_that_waits_for_the_runs_own_tasks_does_not_wait_for_another_run(
    ask: Ask, built: Path, client: Any
) -> None:
    run = seed_run(built, "closing", state="running")
    set_state_of_task(run, "close", -1, "up_for_reschedule")
    assert "This run waits for another one" not in said(ask(f"build_dataset/{run}/live"))


def test_viewer_is_told_why_the_button_is_off_and_airflow_refuses_the_trigger(
    ask: Ask, client: Any, finished: str
) -> None:
    page = Page(ask(f"build_dataset/{finished}", user="looker").text)
    buttons = [item for item in page.all("button") if "data-reprocess" in item]
    assert buttons
    assert all("disabled" in button for button in buttons)
    assert "not trigger the DAG reprocess_shard" in page.text
    token = client.post("/auth/token", json={"username": "looker", "password": PASSWORDS["looker"]}).json()
    answer = client.post(
        "/api/v2/dags/reprocess_shard/dagRuns",
        json={"logical_date": None, "conf": {}},
        headers={"Authorization": f"Bearer {token['access_token']}"},
    )
    assert answer.status_code == 403


def test_report_is_shown_in_a_sandbox(ask: Ask, finished: str) -> None:
    answer = ask(f"build_dataset/{finished}/report")
    assert "Flow" in said(answer)
    assert answer.headers["content-security-policy"].startswith("sandbox;")


def test_run_without_a_report_gets_a_friendly_page(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "young", until="index.index", state="running")
    answer = ask(f"build_dataset/{run}/report")
    assert answer.status_code == 404
    assert "once the build has finished" in said(answer)


def test_run_that_does_not_exist_or_looks_like_a_path_finds_nothing(ask: Ask) -> None:
    for run_id in ("nothing", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd"):
        answer = ask(f"build_dataset/{run_id}")
        assert answer.status_code == 404
        assert "root:" not in answer.text


def test_report_that_was_removed_is_said_to_be_gone(ask: Ask, copied: Path, client: Any) -> None:
    run = seed_run(copied, "gone")
    shutil.rmtree(copied.parents[2] / "report")
    assert "The report is no longer there" in said(ask(f"build_dataset/{run}"))
    assert ask(f"build_dataset/{run}/report").status_code == 404


def test_work_folder_that_was_removed_is_said_to_be_gone(ask: Ask, copied: Path, client: Any) -> None:
    run = seed_run(copied, "homeless")
    shutil.rmtree(copied.parents[2])
    answer = ask(f"build_dataset/{run}")
    assert answer.status_code == 200
    assert "The work folder is missing" in said(answer)


def test_removed_configuration_is_said_with_what_to_do(ask: Ask, built: Path, client: Any) -> None:
    # A name that no other test gives a configuration: tests of a process share Airflow's database.
    run = seed_run(built, "orphan", dag_id="dataset__removed")
    assert "Restore the file" in said(ask(f"dataset__removed/{run}"))


def test_file_that_is_not_a_report_of_the_plans_work_folder_is_not_followed(
    ask: Ask, built: Path, copied: Path, client: Any
) -> None:
    run = seed_run(built, "strayed")
    secret = copied.parents[2] / "elsewhere" / "report-00" / RECEIPT_NAME
    secret.parent.mkdir(parents=True)
    secret.write_text("{}")
    (secret.parent / "report.html").write_text("a secret")
    for path in (secret, secret.parent / "report.html", next((copied.parents[2] / "index").glob(f"*/{RECEIPT_NAME}"))):
        set_handed_on(run, {"report": str(path)})
        answer = ask(f"build_dataset/{run}/report")
        assert answer.status_code == 404
        assert "secret" not in answer.text


def test_reprocessing_that_changed_nothing_says_so(ask: Ask, copied: Path, client: Any) -> None:
    from corpusmill.builds.local import run_build
    from corpusmill.builds.reprocess import BEFORE, begin

    work = copied.parents[2]
    config = json.loads((copied.parent / "config.json").read_text()) | {"work_folder": str(work.parent)}
    plan = build_dataset(check_config(config, where="test"), workers=1)
    assert begin(plan, "tokenize", 1) == plan
    run_build(plan, workers=1)
    memory = plan.parent / BEFORE
    conf = {"dataset": work.name, "stage": "tokenize", "shard": 1}
    run = seed_run(plan, "again", dag_id="reprocess_shard", conf=conf, reprocessed=memory)
    text = said(ask(f"reprocess_shard/{run}"))
    assert "shard 1 from tokenize" in text
    assert "Nothing: by its digest, every output is unchanged" in text


def test_page_of_a_run_names_the_plan_that_its_button_builds(ask: Ask, finished: str, built: Path) -> None:
    (head,) = [item for item in Page(ask(f"build_dataset/{finished}").text).all("div") if item.get("id") == "head"]
    assert head["data-plan"] == built.parent.name
    script = ask("-/run.js").text
    assert "plan: head().plan" in script
