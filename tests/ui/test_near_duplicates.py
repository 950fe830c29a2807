"""The report's ten pairs of near-duplicates: they fit every window, whatever their texts are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import OUT, picture, wider_than_the_window
from playwright.sync_api import Browser, expect


@pytest.fixture(scope="module")
def reports() -> Path:
    """The folder with two reports that pairs_page.py wrote."""
    script = Path(__file__).with_name("pairs_page.py")
    subprocess.run([os.environ["CORPUSMILL_UI_PYTHON"], str(script), str(OUT / "near")], check=True)
    return OUT / "near"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("wide", [390, 1440])
def test_ten_pairs_side_by_side_fit_their_window(browser: Browser, reports: Path, wide: int, theme: str) -> None:
    window = browser.new_context(viewport={"width": wide, "height": 900}, color_scheme=theme)
    page = window.new_page()
    for name in ("hard", "pages"):
        page.goto((reports / f"{name}.html").as_uri())
        expect(page.locator("#near-duplicates .side")).to_have_count(20)
        assert page.locator("#near-duplicates script").count() == 0
        expect(page.locator("#near-duplicates .side").first).to_have_css("unicode-bidi", "plaintext")
        assert wider_than_the_window(page.main_frame) == []
        page.locator("#near-duplicates h3").last.evaluate("heading => heading.scrollIntoView()")
        shown = name == "pages" and wide == 1440 and theme == "light"
        picture(page, "readme/near-duplicates" if shown else f"15-{name}-{wide}-{theme}")
    window.close()
