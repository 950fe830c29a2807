"""The pages of a dataset of 200 shards: nothing is cut off, nothing runs over, and one shard is found again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import OUT, log_in, picture, report_of
from playwright.sync_api import Browser, Frame, Page, expect

SHARDS = 200
OF_A_TASK = 50  # tiny shards share the tasks of a stage, of which there are four
DAG = "build_dataset"


@pytest.fixture(scope="module", autouse=True)
def _many() -> None:
    """Runs of 200 shards in Airflow's database, over a real work folder."""
    server = Path(__file__).with_name("airflow_server.py")
    subprocess.run([os.environ["CORPUSMILL_UI_PYTHON"], str(server), "many", str(OUT)], check=True)


def wider_than_the_window(frame: Frame) -> list[str]:
    """What runs over the page's right edge, or over its own box without a bar to scroll it by."""
    return frame.evaluate(
        """() => {
            const wide = document.documentElement.clientWidth;
            const cuts = (one) => /(auto|scroll|hidden)/.test(getComputedStyle(one).overflowX);
            const scrolls = (one) => one && (cuts(one) || scrolls(one.parentElement));
            return [...document.querySelectorAll("main *")]
                .filter((one) => one.getBoundingClientRect().right > wide + 1 && !scrolls(one.parentElement))
                .map((one) => one.outerHTML.slice(0, 120));
        }"""
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_finished_run_shows_every_shard_and_fits_the_window(browser: Browser, theme: str) -> None:
    window = log_in(browser, "admin", theme)
    page = window.pages[0]
    frame = report_of(page, DAG, "many_finished")
    frame.wait_for_selector("#flow")
    expect(frame.locator("#shards tr[data-shard]")).to_have_count(SHARDS)
    assert wider_than_the_window(frame) == []
    picture(page, f"12-many-{theme}")
    frame.get_by_role("button", name="Shards").click()
    picture(page, f"13-many-shards-{theme}")
    frame.fill("#shards input[type=search]", "00199")
    expect(frame.locator("#shards tr[data-shard]:visible")).to_have_count(1)
    expect(frame.locator("#shards tr[data-shard]:visible")).to_contain_text("Reprocess")
    for number, name in enumerate(("Lengths", "Shuffle", "Outputs")):
        frame.get_by_role("button", name=name, exact=True).click()
        picture(page, f"14-many-{number}-{name.lower()}-{theme}")
    window.close()


def test_failed_run_leads_from_200_shards_to_those_of_the_task_that_failed(page: Page) -> None:
    frame = report_of(page, DAG, "many_failed")
    frame.wait_for_selector("#head[data-unread='0']", state="attached")  # receipts are read a few at a time
    expect(frame.locator("#head")).to_contain_text(f"tokenize 00000 to {OF_A_TASK - 1:05d} failed")
    expect(frame.locator("#shards tr[data-shard]")).to_have_count(SHARDS)
    assert wider_than_the_window(frame) == []
    picture(page, "15-many-failed")
    expect(frame.locator("[data-filter=stopped]")).to_contain_text(str(SHARDS - OF_A_TASK))
    frame.locator("[data-filter=failed]").click()
    expect(frame.locator("#shards tr[data-shard]:visible")).to_have_count(OF_A_TASK)
    frame.locator("#shards").scroll_into_view_if_needed()
    picture(page, "16-many-failed-shard")
