"""What goes wrong is said where the person is who can put it right: in the form, or on the run's page."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import PATIENCE_MS, URL, fill, open_form, picture, report_of, trigger
from playwright.sync_api import Page, expect

DAG, OTHER_DAG = "build_dataset", "dataset__demo"
MOST_TRIES = 100
NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens


def call(page: Page, method: str, path: str, body: Any = None) -> Any:
    """Airflow's API as this user's browser asks it; again while SQLite refuses a writer (see tests/dags/live.py)."""
    for _ in range(MOST_TRIES):
        answer = page.request.fetch(f"{URL}/api/v2/{path}", method=method, data=body)
        if answer.status != 500 or "Database error" not in answer.text():
            break
        page.wait_for_timeout(200)
    assert answer.ok, answer.text()
    return answer.json()


def number_of_runs(page: Page) -> int:
    return int(call(page, "GET", f"dags/{DAG}/dagRuns?limit=1")["total_entries"])


def test_form_raises_a_number_to_the_least_and_refuses_what_is_no_size_with_an_example(page: Page) -> None:
    before = number_of_runs(page)
    open_form(page)
    fill(page, "minimum_bytes", "-5")
    expect(page.locator("[role=dialog] [name=element_minimum_bytes]").last).to_have_value("7")
    fill(page, "shard_bytes", "8 apples")
    assert trigger(page).status == 400
    printed = page.locator("[role=dialog] .chakra-alert__content").last
    expect(printed).to_contain_text("shard_bytes")
    expect(printed).to_contain_text("a number with a unit, such as 256MiB or 10GB")
    printed.scroll_into_view_if_needed()
    picture(page, "17-refused-in-the-form")
    assert number_of_runs(page) == before


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("tokenizer_name", "cl100k_bse", ["unknown tokenizer", "tokenizer.name: cl100k_bse", "use one of these"]),
        ("source_paths", "sample/nowhere", ["a source does not exist", "sample/nowhere", "check the path"]),
    ],
)
def test_value_that_only_the_plan_can_refuse_is_said_on_the_page_and_nothing_is_built(
    page: Page, field: str, value: str, words: list[str]
) -> None:
    open_form(page)
    fill(page, field, value)
    run = trigger(page).json()["dag_run_id"]
    frame = report_of(page, DAG, run)
    frame.wait_for_selector("#head[data-over=yes]", state="attached")
    notice = frame.locator(".notice.bad")
    for word in ["Nothing was built", *words]:
        expect(notice).to_contain_text(word)
    picture(page, f"18-refused-{field}")
    tasks = call(page, "GET", f"dags/{DAG}/dagRuns/{run}/taskInstances?limit=100")["task_instances"]
    states = {task["task_id"]: task["state"] for task in tasks}
    assert states.pop("plan") == "failed"
    assert states.pop("close") != "failed"  # it frees the dataset for other runs, and may still be at it
    assert set(states.values()) == {"upstream_failed"}
    notice.get_by_role("link").click()
    page.wait_for_url("**/tasks/plan**")
    expect(page.locator("body")).to_contain_text(words[0])
    picture(page, f"19-log-{field}")


def end(page: Page, dag: str, run: str) -> None:
    call(page, "PATCH", f"dags/{dag}/dagRuns/{run}?update_mask=state", {"state": "failed"})


def test_unreachable_bucket_is_named_on_the_page_while_the_plan_is_tried_again(page: Page) -> None:
    open_form(page)
    fill(page, "source_paths", "s3://far/away/")
    fill(page, "settings", f"source: {{endpoint_url: '{NOWHERE}'}}")
    run = trigger(page).json()["dag_run_id"]
    notice = report_of(page, DAG, run).locator("#head .notice")
    expect(notice).to_contain_text("The sources could not be listed yet", timeout=PATIENCE_MS)
    expect(notice).to_contain_text(NOWHERE)
    picture(page, "20-unreachable")
    end(page, DAG, run)


def test_second_run_of_a_dataset_says_which_run_it_waits_for(page: Page) -> None:
    has_it = {"approve_removal": True}  # which nobody does, so the run keeps the dataset
    first = call(page, "POST", f"dags/{DAG}/dagRuns", {"logical_date": None, "conf": has_it})["dag_run_id"]
    report_of(page, DAG, first).locator("#head code").wait_for(timeout=PATIENCE_MS)  # its plan, so it has the dataset
    call(page, "PATCH", f"dags/{OTHER_DAG}?update_mask=is_paused", {"is_paused": False})
    second = call(page, "POST", f"dags/{OTHER_DAG}/dagRuns", {"logical_date": None})["dag_run_id"]
    notice = report_of(page, OTHER_DAG, second).locator("#head .notice")
    expect(notice).to_contain_text("This run waits for another one", timeout=PATIENCE_MS)
    expect(notice).to_contain_text(f"run {first} of {DAG}")
    picture(page, "21-waits-for-another")
    for dag, run in ((OTHER_DAG, second), (DAG, first)):
        end(page, dag, run)
