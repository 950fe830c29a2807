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
    execute,
    remove_tasks,
    seed_dags,
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
    assert "checks passed" in said(answer)


def test_memory_pool_that_airflow_lacks_is_named_before_any_run_needs_it(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pool, named in (("default_pool", False), ("ram_of_nobody", True)):
        monkeypatch.setenv("CORPUSMILL_MEMORY_POOL", pool)
        assert (f"Airflow has no pool {pool}" in said(ask("datasets"))) is named


@pytest.mark.parametrize(("dag_id", "named"), [("dataset__poolless", True), ("of_others", False)])
def test_pool_that_a_waiting_task_of_another_program_lacks_is_not_ours_to_name(
    ask: Ask, built: Path, dag_id: str, named: bool
) -> None:
    seed_dags(dag_id)
    run = seed_run(built, f"poolless-{dag_id}", dag_id=dag_id, until="tokenize", state="running")
    add_task(run, task_row("tokenize", 7, None, "scheduled", None, None) | {"pool": f"pool_of_{dag_id}"}, dag_id)
    assert (f"Airflow has no pool pool_of_{dag_id}" in said(ask("datasets"))) is named


def test_error_in_the_configuration_is_named_on_the_pages_of_that_dataset_alone(ask: Ask, built: Path) -> None:
    from airflow.models.errors import ParseImportError
    from sqlalchemy import delete, insert

    lines = {
        "file  /dags/datasets/mended.yaml": True,
        "where         /dags/datasets/broken.yaml, /dags/datasets/mended.yaml": True,  # they wait for each other
        "file  /dags/datasets/unmended.yaml": False,
        "file  /dags/datasets/un-mended.yaml": False,
        "file  /dags/datasets/mended_yaml": False,
        "file  /dags/datasets/MENDED.yaml": False,
        "where  /dags/mended.yaml.d/broken.yaml": False,
        "got   no benchmark /texts/mended.yaml": False,  # of another dataset
    }
    run = seed_run(built, "in-error", dag_id="dataset__mended")
    for line, named in lines.items():
        error = f"ConfigError: refused\n  1  error: no\n       {line}\n"
        execute(insert(ParseImportError), {"filename": "refused.py", "stacktrace": error})
        answer = ask(f"dataset__mended/{run}")
        execute(delete(ParseImportError))
        assert ("This dataset's configuration has an error" in said(answer)) is named, line


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
    states = dict(zip(rows, ["done"] * place + ["running"] + ["waiting"] * (len(rows) - place - 1), strict=True))
    assert rows == states | {"near_duplicates": "skipped"}
    assert f"{place - 1} of {len(rows) - 1} steps done" in text  # a skipped one is neither
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


NOW = datetime.now(UTC)
BUILT = object()  # stands for the plan's receipt
Change = tuple[Any, ...]  # a function of a run, and its other arguments
PLANNING = {"until": "download", "state": "running"}
FORGETTING = "forget_documents"  # its plan begins when somebody has approved
UNPLANNED = "unknown tokenizer\n  where     tokenizer.name: cl100k_bse"


def failed(task_id: str, why: str, map_index: int = -1, label: str | None = None) -> list[Change]:
    """Another task, which has failed."""
    row = task_row(task_id, map_index, label, "failed", NOW, NOW)
    return [(add_task, row), (add_xcom, task_id, map_index, "why", why)]


def unplanned(state: str, why: str) -> list[Change]:
    """A plan's task that has come no further."""
    return [(set_state_of_plan, state, why), (add_xcom, "download", 0, "why", "an older reason of another task")]


def asked_before_the_plan(state: str, planning: str | None) -> list[Change]:
    """In a run of forget_documents, an approval that has come to a state."""
    return [
        (set_handed_on, {"plan": None}),
        *(
            (set_state_of_task, name, place, planning, "", FORGETTING)
            for name, place in (("plan", -1), ("download", 0))
        ),
        (remove_tasks, "approve_removal", "approve_decontamination"),
        (add_task, task_row("approve_forgetting", -1, None, state, NOW, None), FORGETTING),
    ]


def waits(task_id: str, map_index: int, why: str = "") -> Change:
    """A task that waits for others."""
    return set_state_of_task, task_id, map_index, "up_for_reschedule", why


# {what a run is: (how it is seeded, what changes then, what its page says in words or HTML, and what it does not)}
SAYS: dict[str, tuple[dict[str, Any], list[Change], str, str]] = {
    "planned while another run has the dataset": (
        PLANNING,
        unplanned("up_for_reschedule", "it is said <here>"),
        "This run waits for another one | it is said <here> | by itself",
        "older reason",
    ),
    "planned while a bucket cannot be reached": (
        PLANNING,
        unplanned("up_for_retry", "it is said <here>"),
        "The sources could not be listed yet | it is said <here> | by itself",
        "older reason",
    ),
    "being planned": (PLANNING, unplanned("running", ""), "The sources are being listed", "older reason"),
    **{
        f"of a failed plan, {state}": (  # it goes on until its last task has closed it
            {"until": "download", "state": "failed"},
            [(set_state_of_run, state), (set_state_of_plan, "failed", UNPLANNED)],
            "Nothing was built: this run could not be planned | unknown tokenizer where tokenizer.name: cl100k_bse"
            ' | /tasks/plan"',
            "Progress",
        )
        for state in ("failed", "running")
    },
    "cleared, and its plan failed": (
        {},
        [(set_state_of_plan, "failed", "a source does not exist")],
        "This run could not be planned again a source does not exist | is still there",
        "Nothing was built",
    ),
    "of two parts, of which the second failed": (
        {"until": "tokenize", "state": "failed", "parts": 2},
        [
            (set_state_of_task, "tokenize", 0, "success", "of a try that is over"),
            (set_state_of_task, "tokenize", 1, "failed", "the second cannot go on"),
        ],
        "failed the second cannot go on | tokenize 1 of 2 1 failed",
        "of a try that is over",
    ),
    "failed without a word": ({"until": "tokenize", "state": "failed"}, [], "failed Its log says what failed", ""),
    "to try again": (
        {"until": "tokenize", "state": "running"},
        [(set_state_of_task, "tokenize", 0, "up_for_retry", "the store did not answer")],
        "failed, and will try again by itself the store did not answer | tokenize will try again",
        "",
    ),
    "that tried again and passed": (
        {"until": "tokenize", "state": "running"},
        [(set_state_of_task, "tokenize", 0, "success", "the store did not answer")],
        "",
        "the store did not answer",
    ),
    **{  # it was red, and showed nine steps that were done
        f"of which {task_id} failed, a task of no step": (
            {},
            [(remove_tasks, "close"), *failed(task_id, "the claim cannot be read")],
            f"{task_id} failed the claim cannot be read",
            "The delivery of this run is still valid",  # nobody has cleared anything
        )
        for task_id in ("close", "compare")
    },
    "rejected": (
        {"until": "writeback", "state": "failed"},
        [(set_state_of_task, "writeback", 0, "upstream_failed"), (set_state_of_task, "approve_removal", -1, "failed")],
        "approve_removal failed Somebody rejected it",
        "",
    ),
    "of an older version, failed": (
        {"until": "download", "state": "failed"},
        [
            *((remove_tasks, *TASKS), (set_handed_on, {"plan": BUILT})),
            *failed("units.tokenize", "the text is not what it was", 2, "00002"),
        ],
        "units.tokenize 00002 failed the text is not what it was | a new run reuses it",
        'id="step-',
    ),
    **{
        f"with another version's estimate {number}": (
            {},
            [(skip_all,), (add_xcom, "plan", -1, "estimate", figures)],
            "Another version of Corpusmill wrote its estimate",
            "",
        )
        for number, figures in enumerate([{"tokens": 3}, FIGURES | {"held": 5}, FIGURES | {"tokens": "many"}])
    },
    "cleared after it changed nothing, and not begun again": (  # Airflow keeps what a task has said until it begins
        {},
        [
            *((skip_all,), (add_xcom, "plan", -1, "unchanged", BUILT)),
            *((set_state_of_task, "plan", -1, None), (set_state_of_run, "running")),
        ],
        "",
        "Nothing has changed",
    ),
    "cleared, failed, with the report of the try before": (
        {},
        [
            *((set_state_of_task, "tokenize", 0, "failed"), (set_state_of_task, "report", -1, "upstream_failed")),
            (set_state_of_run, "failed"),
        ],
        'data-report="no"',
        "The report is no longer there",
    ),
    **{  # people can edit what tasks hand on; the page failed with status 500
        f"whose plan handed on {value!r}": ({}, [(set_handed_on, {"plan": value})], "This run has no plan", "")
        for value in (None, 5, [], [{}], [{"plan_receipt": 7}], "/receipt.json", "s3:///x/receipt.json")
    },
    "green, of which a cleared task failed": (  # Airflow judges a run by its last tasks, which had ended well before
        {"parts": 2},
        [(set_state_of_task, "index.index", 1, "failed")],
        # Its shard, in the table of them, has failed, too.
        "index.index | The delivery of this run is still valid | index failed | tasks/index.index/mapped/1",
        "",
    ),
    "that asks for an approval": (
        {"until": "find_ranges.match", "state": "running"},
        [(set_state_of_task, "approve_removal", -1, "awaiting_input")],
        "This run waits for you | /tasks/approve_removal",
        "",
    ),
    "that asks for nothing yet": (
        {"until": "find_ranges.match", "state": "running"},
        [],
        "",
        "This run waits for you | waits for another one",
    ),
    "that asks before it is planned": (
        PLANNING | {"dag_id": FORGETTING},
        asked_before_the_plan("awaiting_input", None),
        "This run waits for you Somebody must review which documents would be forgotten | /tasks/approve_forgetting",
        "The sources are being listed",
    ),
    "that was rejected before it was planned": (
        PLANNING | {"dag_id": FORGETTING},
        [*asked_before_the_plan("failed", "upstream_failed"), (set_state_of_run, "failed")],
        "approve_forgetting failed Somebody rejected it",
        "This run has no plan",
    ),
    "of which a cleared task waits for another run": (
        {"state": "running", "parts": 2},
        [(add_xcom, "download", 0, "why", "of another task"), waits("index.index", 1, "run two of reprocess_shard")],
        "This run waits for another one run two of reprocess_shard",
        "of another task",
    ),
    "that waited when somebody ended it": (
        {"state": "running", "parts": 2},
        [waits("index.index", 1, "run two"), (set_state_of_run, "failed")],
        "",
        "This run waits for another one",
    ),
    "whose last task waits for its own tasks": (
        {"state": "running"},
        [waits("close", -1)],
        "",
        "This run waits for another one",
    ),
    "of which a task waits for a pool that Airflow lacks": (
        {"until": "tokenize", "state": "running"},
        [(add_task, task_row("tokenize", 7, None, "scheduled", None, None) | {"pool": "no_such"})],
        "Airflow has no pool no_such | Admin > Pools",
        "has no pool default_pool",
    ),
    "that is over, whose task waited for such a pool": (
        {},
        [(add_task, task_row("tokenize", 7, None, "scheduled", None, None) | {"pool": "no_such"})],
        "",
        "Airflow has no pool",
    ),
    # A name that no other test gives a configuration: tests of a process share Airflow's database.
    "of a configuration that was removed": ({"dag_id": "dataset__removed"}, [], "Restore the file", ""),
}


@pytest.mark.parametrize("kind", SAYS)
def test_page_of_a_run_says_what_it_is_and_what_to_do(ask: Ask, built: Path, client: Any, kind: str) -> None:
    seed, changes, wanted, unwanted = SAYS[kind]
    run = seed_run(built, f"says-{list(SAYS).index(kind)}", **seed)
    for change, *values in changes:
        receipts = [str(built) if value is BUILT else value for value in values]
        change(run, *({"plan": str(built)} if value == {"plan": BUILT} else value for value in receipts))
    answer = ask(f"{seed.get('dag_id', 'build_dataset')}/{run}")
    assert answer.status_code == 200
    text = said(answer)
    assert [words for words in wanted.split(" | ") if words not in text and words not in answer.text] == []
    assert [words for words in filter(None, unwanted.split(" | ")) if words in text] == []


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
        assert [name.partition(".")[0] for name in tasks] == [
            step for step in FIRST_STAGES if step != "near_duplicates"
        ]
        assert {item["data-mapped"] for item in options} == {"yes"}


STATES = [
    *(None, "scheduled", "queued", "running", "restarting", "deferred", "awaiting_input", "success", "failed"),
    *("skipped", "upstream_failed", "up_for_retry", "up_for_reschedule", "removed"),
]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("of_run", ["running", "success"])
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
