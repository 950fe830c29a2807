"""A browser, logged in to the Airflow that run.py started; every picture goes to build/ui."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Frame, Page, Response, expect, sync_playwright

URL = os.environ["CORPUSMILL_UI_URL"]
OUT = Path(os.environ["CORPUSMILL_UI_OUT"])
# Without a sandbox, because tests run as root in containers; the others keep the browser from asking the network.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 120_000  # for one step of a browser on a busy machine
BUILD_MS = 900_000  # for a build
expect.set_options(timeout=30_000)  # the default 5 s are short beside other tests


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=FLAGS)
        yield started
        started.close()


def log_in(browser: Browser, user: str, theme: str = "light") -> BrowserContext:
    """A window of a user who has typed name and password, and has chosen a theme."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.add_init_script(f"localStorage.setItem('theme', '{theme}')")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(URL)
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", user)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda address: "login" not in address)
    return context


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """The administrator's window; what it asked of any other server fails the run."""
    context = log_in(browser, "admin")
    strangers: list[str] = []
    context.on(
        "request", lambda item: None if item.url.startswith((URL, "data:", "blob:")) else strangers.append(item.url)
    )
    yield context
    context.close()
    assert strangers == []


@pytest.fixture(scope="session")
def page(context: BrowserContext) -> Page:
    return context.pages[0]


def our_frame(page: Page) -> Frame:
    """The plugin's frame within Airflow's page, once it is there."""
    page.wait_for_function("() => document.querySelector('iframe')?.contentDocument?.querySelector('main')")
    frame = next(frame for frame in page.frames if frame.url.startswith(f"{URL}/dataset-report/"))
    frame.wait_for_selector("main")
    return frame


def report_of(page: Page, dag: str, run: str) -> Frame:
    page.goto(f"{URL}/dags/{dag}/runs/{run}/plugin/dataset-report")
    return our_frame(page)


def wait_until_over(frame: Frame) -> str:
    """Until the page itself says that the run has ended, and shows the report; the run's state."""
    frame.wait_for_selector("#head[data-over=yes]", state="attached", timeout=BUILD_MS)
    state = str(frame.get_attribute("#head", "data-state"))
    if state == "success":
        frame.wait_for_selector("#flow")
    return state


def open_form(page: Page) -> None:
    """The trigger form of build_dataset."""
    page.goto(f"{URL}/dags/build_dataset")
    page.get_by_role("button", name=re.compile("trigger", re.IGNORECASE)).first.click()
    page.locator("[role=dialog] [name=element_minimum_bytes]").last.wait_for(state="attached")


def fill(page: Page, field: str, value: str) -> None:
    """One line of the trigger form, whichever section it stands in."""
    line = page.locator(f"[role=dialog] [name=element_{field}]").last
    if not line.is_visible():
        for section in page.locator("[role=dialog] [data-scope=accordion][data-part=item-trigger]:visible").all():
            if section.get_attribute("aria-expanded") == "false":
                section.click()
                page.wait_for_timeout(500)  # sections close each other while they open
            if line.is_visible():
                break
    line.fill(value)
    line.blur()


def trigger(page: Page) -> Response:
    """Press the form's button; what Airflow answered."""
    with page.expect_response(lambda item: item.request.method == "POST" and item.url.endswith("/dagRuns")) as answered:
        page.locator("[role=dialog] button").filter(has_text="Trigger").last.click()
    return answered.value


def picture(page: Page, name: str) -> Path:
    """A screenshot of the whole window."""
    path = OUT / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(600)  # bars move into their places
    page.screenshot(path=path)
    return path


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


def outside_of(page: Page, dialog: str, parts: str) -> list[str]:
    """Of a dialog's parts those that lie left or right of the window, or of the dialog."""
    page.locator(dialog).last.wait_for()
    return page.evaluate(
        """([dialog, parts]) => {
            const wide = document.documentElement.clientWidth;
            const whole = [...document.querySelectorAll(dialog)].at(-1).getBoundingClientRect();
            const [left, right] = [Math.max(0, whole.left), Math.min(wide, whole.right)];
            return [...document.querySelectorAll(parts)]
                .map((one) => [one, one.getBoundingClientRect()])
                .filter(([, box]) => box.width && (box.left < left - 1 || box.right > right + 1))
                .map(([one]) => one.outerHTML.slice(0, 120));
        }""",
        [dialog, parts],
    )
