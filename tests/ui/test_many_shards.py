"""The pages of a dataset of 200 shards: nothing is cut off, nothing runs over, and one shard is found again."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from conftest import OUT, URL, log_in, outside_of, picture, report_of, wider_than_the_window
from playwright.sync_api import Browser, Page, expect

SHARDS = 200
OF_A_TASK = 50  # tiny shards share the parts of a step, of which there are four
DAG = "build_dataset"


@pytest.fixture(scope="module", autouse=True)
def _many() -> None:
    """Runs of 200 shards in Airflow's database, over a real work folder."""
    server = Path(__file__).with_name("airflow_server.py")
    subprocess.run([os.environ["CORPUSMILL_UI_PYTHON"], str(server), "many", str(OUT)], check=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_finished_run_shows_every_shard_and_fits_the_window(browser: Browser, theme: str) -> None:
    window = log_in(browser, "admin", theme)
    page = window.pages[0]
    frame = report_of(page, DAG, "many_finished")
    frame.wait_for_selector("#flow")
    expect(frame.locator("#shards tr[data-shard]")).to_have_count(SHARDS)
    assert wider_than_the_window(frame) == []
    picture(page, f"12-many-{theme}")
    columns = "one => getComputedStyle(one).gridTemplateColumns"  # the page's own rows of steps must not lend theirs
    head, row = (frame.locator(f"#stages .work-row{name}").first.evaluate(columns) for name in (".head", ":not(.head)"))
    assert head == row
    frame.get_by_role("button", name="Steps", exact=True).click()
    picture(page, f"12-many-steps-{theme}")
    frame.get_by_role("button", name="Shards").click()
    picture(page, f"13-many-shards-{theme}")
    frame.fill("#shards input[type=search]", "00199")
    expect(frame.locator("#shards tr[data-shard]:visible")).to_have_count(1)
    expect(frame.locator("#shards tr[data-shard]:visible")).to_contain_text("Reprocess")
    for number, name in enumerate(("Lengths", "Shuffle", "Outputs")):
        frame.get_by_role("button", name=name, exact=True).click()
        picture(page, f"14-many-{number}-{name.lower()}-{theme}")
    window.close()


def seconds_to_open_grid(page: Page, run: str) -> float:
    """Until every step of a run is seen in the Grid, the best of three."""

    def once() -> float:
        page.goto("about:blank")
        began = time.monotonic()
        page.goto(f"{URL}/dags/{DAG}/runs/{run}")
        for step in ("plan", "index", "export", "report", "close"):
            page.get_by_test_id(f"task-{step}").wait_for()
        return time.monotonic() - began

    return min(once() for _ in range(3))


def test_grid_of_a_run_of_1000_parts_opens_as_fast_as_one_of_four(page: Page) -> None:
    page.goto(f"{URL}/dags/{DAG}/runs/many_finished")
    page.locator("button[aria-label^='Show Grid']").first.click()
    few, many = (seconds_to_open_grid(page, run) for run in ("many_finished", "many_parts"))
    print(f"\nGrid of 4 parts {few:.2f} s, of 1,000 parts {many:.2f} s")
    picture(page, "20-many-grid")
    assert many < 2 * few + 1  # other tests run beside it


def test_failed_run_leads_from_200_shards_to_those_of_the_task_that_failed(page: Page) -> None:
    frame = report_of(page, DAG, "many_failed")
    frame.wait_for_selector("#head[data-unread='0']", state="attached")  # receipts are read a few at a time
    expect(frame.locator("#head")).to_contain_text("tokenize, part 1 of 4 failed")
    expect(frame.locator("#shards tr[data-shard]")).to_have_count(SHARDS)
    assert wider_than_the_window(frame) == []
    picture(page, "15-many-failed")
    expect(frame.locator("[data-filter=stopped]")).to_contain_text(str(SHARDS - OF_A_TASK))
    frame.locator("[data-filter=failed]").click()
    expect(frame.locator("#shards tr[data-shard]:visible")).to_have_count(OF_A_TASK)
    frame.locator("#shards").scroll_into_view_if_needed()
    picture(page, "16-many-failed-shard")


def test_step_that_somebody_opens_stays_open_while_the_page_keeps_up(page: Page) -> None:
    frame = report_of(page, DAG, "many_failed")
    frame.wait_for_selector("#head[data-unread='0']", state="attached")
    step = frame.locator("#step-find_ranges")
    expect(step.locator("table")).to_be_hidden()
    step.locator("summary").click()
    expect(step.locator("table")).to_contain_text("match")
    frame.evaluate("document.getElementById('head').dataset.before = 'yes'; keepUp()")
    expect(frame.locator("#head[data-before]")).to_have_count(0)
    expect(step.locator("table")).to_be_visible()
    expect(step.locator("summary")).to_be_focused()
    picture(page, "17-many-opened")
    step.locator("summary").press("Enter")
    expect(step.locator("table")).to_be_hidden()


PAGES = {  # the address of each, and what it has once it is whole
    "failed": (f"{DAG}/many_failed", "#head[data-unread='0']"),
    "finished": (f"{DAG}/many_finished", "#flow"),
    "datasets": ("datasets", ".datasets"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("wide", [390, 900, 1440])
@pytest.mark.parametrize("name", PAGES)
def test_page_fits_its_window_and_shows_no_null_and_no_backtick(
    browser: Browser, theme: str, wide: int, name: str
) -> None:
    window = log_in(browser, "admin", theme)
    page = window.pages[0]
    page.set_viewport_size({"width": wide, "height": 844})
    page.emulate_media(color_scheme=theme)
    address, whole = PAGES[name]
    page.goto(f"{URL}/dataset-report/{address}")  # without Airflow around it, which has no room for it on a phone
    page.wait_for_selector(whole, state="attached")
    if name == "failed":
        page.locator("#step-tokenize summary").click()
        expect(page.locator("#step-tokenize td.n").first).to_be_visible()
    assert wider_than_the_window(page.main_frame) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    text = page.locator("main").inner_text()
    assert not re.search(r"`|\bnull\b|\bundefined\b|\bNone\b|\bNaN\b", text)
    picture(page, f"18-{name}-{wide}-{theme}")
    if name == "finished":
        page.get_by_role("button", name="Shards").click()
        page.locator("[data-reprocess]").first.click()
        assert outside_of(page, "#reprocess", "#reprocess, #reprocess *") == []
        picture(page, f"18-dialog-{wide}-{theme}")
    window.close()
