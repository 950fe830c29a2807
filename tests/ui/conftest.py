"""A browser, logged in to the Airflow that run.py started; every picture goes to build/ui."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Frame, Page, sync_playwright

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
        "request", lambda one: None if one.url.startswith((URL, "data:", "blob:")) else strangers.append(one.url)
    )
    yield context
    context.close()
    assert strangers == []


@pytest.fixture(scope="session")
def page(context: BrowserContext) -> Page:
    return context.pages[0]


def our_frame(page: Page) -> Frame:
    """The plugin's frame within Airflow's page, once it is there."""
    page.wait_for_function("document.querySelector('iframe')?.contentDocument?.querySelector('main')")
    frame = next(one for one in page.frames if one.url.startswith(f"{URL}/dataset-report/"))
    frame.wait_for_selector("main")
    return frame


def picture(page: Page, name: str) -> Path:
    """A screenshot of the whole window."""
    path = OUT / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(600)  # bars move into their places
    page.screenshot(path=path)
    return path
