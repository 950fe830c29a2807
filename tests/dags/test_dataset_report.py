"""The dataset pages over Airflow's own database: who may see what, what they say, and which files they follow."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.ledger import RECEIPT_NAME
from corpusmill.stages.graph import open_build
from tests.dags.conftest import PASSWORDS, Ask
from tests.dags.seeded import seed_run, set_handed_on, set_state_of_plan, set_state_of_task, task_row
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


def said(answer: Any) -> str:
    return " ".join(Page(answer.text).text.split())


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
    tasks = open_build(built).tasks("tokenize", 2)
    assert len(shards) > len(tasks) == 2
    run = seed_run(built, "grouped", until="tokenize", state="failed", most_tasks=2)
    page = ask(f"build_dataset/{run}/live").text
    of_first = open_build(built).units_of_task("tokenize", tasks[0])
    for shard in shards:
        (row,) = re.findall(rf'<tr data-word="(\w+)" data-shard="{shard}">.*?data-place="(\d)"', page, re.DOTALL)
        assert row == (("failed", "0") if shard in of_first else ("stopped", "1")), shard


def test_running_run_shows_how_far_it_is_and_reprocesses_nothing(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "running", until="tokenize", state="running", tries={("tokenize", "00000"): 2})
    page = Page(ask(f"build_dataset/{run}/live").text)
    text = " ".join(page.text.split())
    shards = len(open_build(built).units("tokenize"))
    assert re.search(r"10 of \d\d stages done", text)  # of those behind it nobody knows yet which are switched off
    assert f"tokenize {shards - 1} of {shards} 1 running" in text
    assert "tokenize try 2" in text
    buttons = [item for item in page.all("button") if "data-reprocess" in item]
    assert len(buttons) == shards
    assert all("disabled" in button for button in buttons)
    assert "once this run has ended" in text


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
    text = said(ask(f"build_dataset/{run}/live"))
    assert title in text
    assert planning == "running" or "it is said <here>" in text
    assert planning == "running" or "by itself" in text


def test_failed_plan_is_said_in_its_own_words_and_leads_to_its_log(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "no-plan", until="download", state="failed")
    set_state_of_plan(run, "failed", why="unknown tokenizer\n  where     tokenizer.name: cl100k_bse")
    page = Page(ask(f"build_dataset/{run}").text)
    text = " ".join(page.text.split())
    assert "Nothing was built: this run could not be planned" in text
    assert "unknown tokenizer where tokenizer.name: cl100k_bse" in text
    assert "Progress" not in text
    assert [item for item in page.all("a") if str(item.get("href")).endswith(f"/runs/{run}/tasks/plan")]


def test_shards_that_a_cleared_run_has_no_more_are_neither_shown_nor_counted(
    ask: Ask, built: Path, client: Any
) -> None:
    """Airflow keeps the task instances and what they returned when the list that they were mapped over shrinks."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import update

    run = seed_run(built, "shrunk", until="tokenize", state="running")
    last = len(open_build(built).units("tokenize")) - 1
    with create_session() as session:
        query = update(TaskInstance).where(TaskInstance.run_id == run, TaskInstance.map_index == last)
        session.execute(query.values(state="removed"))
    page = Page(ask(f"build_dataset/{run}/live").text)
    assert f"tokenize {last - 1} of {last} 1 running" in " ".join(page.text.split())
    shards = [item["data-shard"] for item in page.all("tr") if "data-shard" in item]
    assert shards == [f"{number:05d}" for number in range(last)]


def test_failed_run_names_the_task_and_leads_to_its_log(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "failed", until="match", state="failed")
    page = Page(ask(f"build_dataset/{run}").text)
    assert "match 00000 failed" in " ".join(page.text.split())
    logs = [item["href"] for item in page.all("a") if "find_ranges.match/mapped/0" in str(item.get("href"))]
    assert logs


def test_green_run_of_which_a_cleared_task_failed_says_so_and_what_still_stands(
    ask: Ask, built: Path, client: Any
) -> None:
    """Airflow judges a run by its last tasks, and those had ended well before the clearing."""
    run = seed_run(built, "green")
    text = said(ask(f"build_dataset/{run}"))
    assert "failed" not in text
    set_state_of_task(run, "index", 1, "failed")
    page = Page(ask(f"build_dataset/{run}").text)
    text = " ".join(page.text.split())
    assert "index 00001 failed" in text
    assert "The delivery of this run is still valid" in text
    assert "index failed" in text  # its shard, in the table of them
    assert [item for item in page.all("a") if "tasks/index/mapped/1" in str(item.get("href"))]


def test_run_that_asks_for_an_approval_leads_to_the_task_that_waits(ask: Ask, built: Path, client: Any) -> None:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import insert

    run = seed_run(built, "asking", until="union", state="running")
    assert "This run waits for you" not in ask(f"build_dataset/{run}/live").text
    waiting = task_row("approve_removal", -1, None, "awaiting_input", datetime.now(UTC), None)
    with create_session() as session:
        session.execute(insert(TaskInstance), [waiting | {"dag_id": "build_dataset", "run_id": run}])
    page = ask(f"build_dataset/{run}/live").text
    assert "This run waits for you" in page
    assert f"/runs/{run}/tasks/approve_removal" in page


def test_cleared_task_that_waits_for_another_run_says_for_which(ask: Ask, built: Path, client: Any) -> None:
    run = seed_run(built, "cleared", state="running")
    assert "waits for another one" not in said(ask(f"build_dataset/{run}/live"))
    set_state_of_task(run, "index", 1, "up_for_reschedule", why="run two of reprocess_shard")
    text = said(ask(f"build_dataset/{run}/live"))
    assert "This run waits for another one" in text
    assert "run two of reprocess_shard" in text


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
    run = seed_run(built, "young", until="index", state="running")
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
