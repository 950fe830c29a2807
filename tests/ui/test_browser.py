"""From the login to a reprocessed shard, as a person does it. The tests build on each other, in this order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import (
    BUILD_MS,
    OUT,
    URL,
    fill,
    log_in,
    open_form,
    our_frame,
    picture,
    report_of,
    trigger,
    wait_until_over,
)
from playwright.sync_api import Browser, Frame, Page, expect

MINIMUM_BYTES, SHARD_BYTES = "150", "20KB"
TASKS = (  # and groups
    *("plan", "download", "index", "find_ranges", "writeback", "tokenize", "shuffle", "export", "upload", "report"),
)
CHANGED = OUT / "data" / "sample" / "a1.jsonl"


@pytest.fixture(scope="session")
def known() -> SimpleNamespace:
    """What one test finds out and the next ones use."""
    return SimpleNamespace()


def digests(frame: Frame) -> dict[str, str]:
    """Shard -> digest of its tokens, as the table shows them."""
    rows = frame.query_selector_all("tr[data-shard]")
    actual = {str(row.get_attribute("data-shard")): row.query_selector("code") for row in rows}
    return {shard: str(code.get_attribute("title")) for shard, code in actual.items() if code}


def test_datasets_page_before_the_first_build_says_what_to_do(page: Page) -> None:
    page.goto(f"{URL}/plugin/datasets")
    frame = our_frame(page)
    expect(frame.locator("main")).to_contain_text(re.compile("No dataset yet|Build it"))
    picture(page, "01-no-dataset-yet")


def test_form_with_changed_values_starts_a_build(page: Page, known: SimpleNamespace) -> None:
    open_form(page)
    fill(page, "minimum_bytes", MINIMUM_BYTES)
    fill(page, "shard_bytes", SHARD_BYTES)
    picture(page, "02-form")
    answer = trigger(page)
    assert answer.ok, answer.text()
    known.run = answer.json()["dag_run_id"]
    conf = answer.json()["conf"]
    assert str(conf["minimum_bytes"]) == MINIMUM_BYTES
    assert conf["shard_bytes"] == SHARD_BYTES


def test_progress_moves_while_the_build_runs(page: Page, known: SimpleNamespace) -> None:
    frame = report_of(page, "build_dataset", known.run)
    frame.wait_for_selector("#progress", timeout=BUILD_MS)
    frame.wait_for_selector("#shards tr[data-shard]", timeout=BUILD_MS)
    first = int(frame.locator("#progress [role=progressbar]").get_attribute("aria-valuenow") or 0)
    picture(page, "03-progress")
    frame.wait_for_function(
        "first => !document.querySelector('#progress') ||"
        " Number(document.querySelector('#progress [role=progressbar]').ariaValueNow) > first",
        arg=first,
        timeout=BUILD_MS,
    )
    buttons = frame.locator("[data-reprocess]")
    assert not buttons.count() or not buttons.first.is_enabled() or frame.locator("#head[data-over=yes]").count()


def test_report_appears_by_itself_when_the_build_has_finished(page: Page, known: SimpleNamespace) -> None:
    frame = our_frame(page)
    assert wait_until_over(frame) == "success"
    for section in ("flow", "duplicates", "lengths", "shuffle", "outputs", "train", "balance"):
        expect(frame.locator(f"#{section}")).to_be_attached()
    expect(frame.locator("#train")).to_contain_text("--data-path")
    expect(frame.locator("#train")).to_contain_text("dataset_folder")
    expect(frame.locator("#train")).to_contain_text("manifest.jsonl")
    known.digests = digests(frame)
    assert len(known.digests) > 2
    frame.evaluate("scrollTo(0, 0)")
    picture(page, "readme/report")
    frame.get_by_role("button", name="Train on it").click()
    frame.locator("#train .copy").first.click()
    expect(frame.locator("#train .copy").first).to_have_text("Copied")
    picture(page, "05-train")


def test_shards_are_filtered_by_number(page: Page, known: SimpleNamespace) -> None:
    frame = our_frame(page)
    frame.fill("#shards input[type=search]", "00001")
    expect(frame.locator("#shards tr[data-shard]:visible")).to_have_count(1)
    frame.fill("#shards input[type=search]", "")
    expect(frame.locator("#shards tr[data-shard]:visible")).to_have_count(len(known.digests))


def test_graph_of_a_finished_run_shows_its_tasks(page: Page, known: SimpleNamespace) -> None:
    page.goto(f"{URL}/dags/build_dataset/runs/{known.run}")
    page.locator("button[aria-label^='Show Graph']").first.click()
    for task in TASKS:
        expect(
            page.locator(".react-flow__node").filter(has_text=re.compile(rf"^{task}(?![a-z_])")).first
        ).to_be_visible()
    page.get_by_role("button", name="Collapse Details Panel").click()
    usual = page.viewport_size
    assert usual is not None
    page.set_viewport_size({"width": 2880, "height": 560})  # as wide as the graph, to be opened by itself
    page.get_by_role("button", name="Fit View").click()
    picture(page, "readme/graph")
    page.set_viewport_size(usual)


def test_grid_of_a_finished_run_shows_its_tasks(page: Page, known: SimpleNamespace) -> None:
    page.locator("button[aria-label^='Show Grid']").first.click()
    page.goto(f"{URL}/dags/build_dataset/runs/{known.run}")
    for task in TASKS:
        expect(page.locator(f"[data-testid='task-{task}']")).to_be_visible()
    picture(page, "readme/grid")


def test_user_who_may_only_look_is_told_why_the_button_is_off(browser: Browser, known: SimpleNamespace) -> None:
    window = log_in(browser, "looker")
    frame = report_of(window.pages[0], "build_dataset", known.run)
    frame.wait_for_selector("#flow")
    expect(frame.locator("[data-reprocess]").first).to_be_disabled()
    expect(frame.locator("#shards")).to_contain_text("not trigger the DAG reprocess_shard")
    # A page that was open while the role changed: Airflow itself refuses, and the page says so.
    frame.evaluate("document.querySelectorAll('[data-reprocess]').forEach((one) => { one.disabled = false; })")
    frame.click("[data-reprocess='00001']")
    frame.click("dialog [data-go]")
    expect(frame.locator("dialog .answer")).to_contain_text("Nothing was changed")
    picture(window.pages[0], "06-not-allowed")
    window.close()


def test_reprocessing_a_shard_whose_file_changed_says_which_digests_changed(page: Page, known: SimpleNamespace) -> None:
    lines = CHANGED.read_text(encoding="utf-8").splitlines()
    CHANGED.write_text(
        "\n".join([*lines, json.dumps({"id": "new", "text": " ".join(f"word {n}," for n in range(200))})]) + "\n"
    )
    frame = report_of(page, "build_dataset", known.run)
    frame.wait_for_selector("#flow")
    frame.click("[data-reprocess='00000']")
    frame.select_option("dialog select[name=stage]", "tokenize")
    picture(page, "07-reprocess")
    frame.click("dialog [data-go]")
    expect(frame.locator("dialog .answer")).to_contain_text("has begun")
    expect(frame.locator("dialog [value=cancel]")).to_have_text("Close")
    expect(frame.locator("dialog .answer")).to_contain_text("has succeeded", timeout=BUILD_MS)
    with page.expect_navigation():
        frame.click("dialog .answer a")
    frame = our_frame(page)
    assert wait_until_over(frame) == "success"
    expect(frame.locator("#head")).to_contain_text("shard 0 from tokenize")
    row = frame.locator("#changes tr").filter(has=frame.locator("td.name", has_text=re.compile("^tokenize$")))
    expect(row).to_contain_text("00000")
    stages = frame.locator("#changes td.name").all_text_contents()
    assert stages.index("index") < stages.index("tokenize") < stages.index("gather") < stages.index("export")
    after = digests(frame)
    assert after["00000"] != known.digests["00000"]
    expect(row).to_contain_text(f"{known.digests['00000'][:10]} → {after['00000'][:10]}")
    frame.evaluate("scrollTo(0, 0)")
    picture(page, "readme/reprocessed")
    known.reprocessed = frame.get_attribute("#head", "data-run")


def test_reprocessing_in_the_same_run_is_a_second_try(page: Page, known: SimpleNamespace) -> None:
    frame = report_of(page, "build_dataset", known.run)
    frame.wait_for_selector("#flow")
    shard = frame.locator("tr[data-shard='00002']")
    expect(shard).not_to_contain_text("try 2")
    frame.click("[data-reprocess='00002']")
    frame.check("dialog input[value=here]")
    frame.click("dialog [data-go]")
    expect(frame.locator("dialog .answer")).to_contain_text("begin again")
    page.keyboard.press("Escape")
    # The run is over again within seconds, perhaps before the page looks: "try 2" is what stays.
    expect(shard).to_contain_text("try 2", timeout=BUILD_MS)
    picture(page, "09-second-try")
    assert wait_until_over(frame) == "success"
    expect(shard).to_contain_text("try 2")
    assert digests(frame)["00002"] == known.digests["00002"]


def test_datasets_page_lists_the_dataset_and_follows_airflows_theme(
    browser: Browser, page: Page, known: SimpleNamespace
) -> None:
    page.goto(f"{URL}/plugin/datasets")
    frame = our_frame(page)
    expect(frame.locator(".datasets")).to_contain_text("demo")
    frame.fill("#search", "no such dataset")
    expect(frame.locator(".trend-button")).to_be_hidden()
    frame.fill("#search", "DEMO")
    expect(frame.locator(".trend-button")).to_be_visible()
    frame.click(".trend-button")
    expect(frame.locator(".history table")).to_be_visible()
    frame.fill("#search", "")
    picture(page, "readme/datasets")
    assert frame.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    dark = log_in(browser, "admin", "dark")
    for name, show in (
        ("datasets-dark", lambda item: item.goto(f"{URL}/plugin/datasets")),
        ("report-dark", lambda item: report_of(item, "build_dataset", known.run).wait_for_selector("#flow")),
        (
            "reprocessed-dark",
            lambda item: report_of(item, "reprocess_shard", known.reprocessed).wait_for_selector("#flow"),
        ),
    ):
        show(dark.pages[0])
        frame = our_frame(dark.pages[0])
        frame.wait_for_function("() => getComputedStyle(document.documentElement).colorScheme === 'dark'")
        if name == "datasets-dark":
            frame.click(".trend-button")
        picture(dark.pages[0], f"readme/{name}")
    dark.close()


def test_two_versions_of_a_datasets_history_are_compared(page: Page) -> None:
    page.goto(f"{URL}/plugin/datasets")
    frame = our_frame(page)
    frame.click(".trend-button")
    button = frame.locator("[data-compare]")
    expect(button).to_be_disabled()
    versions = [box.get_attribute("data-version") for box in frame.locator("[data-version]").all()][:2]
    for version in versions:
        frame.check(f"[data-version='{version}']")
    button.click()
    expect(frame.locator(".history .answer")).to_contain_text("has begun")
    expect(frame.locator(".history .answer")).to_contain_text("has succeeded", timeout=BUILD_MS)
    with page.expect_navigation():
        frame.click(".history .answer a")
    # The page of a comparison holds no script, and the frame is a new one with every answer.
    content = page.frame_locator("iframe")
    expect(content.locator("h1")).to_contain_text("demo", timeout=BUILD_MS)
    for version in versions:
        expect(content.locator("body")).to_contain_text(str(version))
    picture(page, "12-difference")


def test_pictures_were_taken() -> None:
    names = {path.relative_to(OUT).as_posix() for path in Path(OUT).rglob("*.png")}
    shown = {f"readme/{name}{theme}.png" for name in ("report", "reprocessed", "datasets") for theme in ("", "-dark")}
    assert {*shown, "readme/grid.png", "readme/graph.png", "02-form.png"} <= names
