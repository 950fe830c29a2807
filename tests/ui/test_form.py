"""What Airflow shows of ours in its own frame: the trigger form in three widths, and the icon in its menu."""

from __future__ import annotations

import re

import pytest
from conftest import URL, log_in, open_form, our_frame, outside_of, picture
from playwright.sync_api import Browser

# The contrast (WCAG) between an image and what lies behind it: that of the pixel that stands out most.
CONTRAST = """(image) => {
    const canvas = new OffscreenCanvas(24, 24), context = canvas.getContext("2d");
    const light = ([r, g, b]) => [0.2126 * r, 0.7152 * g, 0.0722 * b].reduce((sum, one) => sum + one) / 255;
    const lightness = (pixel) => light([...pixel].map((value) => 255 * (value / 255) ** 2.2));
    let behind = image;
    while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
    context.fillStyle = getComputedStyle(behind).backgroundColor;
    context.fillRect(0, 0, 24, 24);
    const below = lightness(context.getImageData(0, 0, 1, 1).data);
    context.drawImage(image, 0, 0, 24, 24);
    const pixels = context.getImageData(0, 0, 24, 24).data;
    const contrasts = Array.from({length: 576}, (_, at) => lightness(pixels.slice(4 * at, 4 * at + 3)))
        .map((one) => (Math.max(one, below) + 0.05) / (Math.min(one, below) + 0.05));
    return Math.max(...contrasts);
}"""


@pytest.mark.parametrize(("theme", "icon"), [("light", "icon.svg"), ("dark", "icon-dark.svg")])
def test_menu_s_icon_of_the_page_that_is_open_stands_out(browser: Browser, theme: str, icon: str) -> None:
    window = log_in(browser, "admin", theme)
    page = window.pages[0]
    page.goto(f"{URL}/plugin/datasets")
    our_frame(page)
    assert page.locator(f"img[src$='/{icon}']").first.evaluate(CONTRAST) > 3
    picture(page, f"21-menu-{theme}")
    window.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("wide", [390, 900, 1440])
def test_form_fits_its_window_and_shows_no_null_and_no_backtick(browser: Browser, theme: str, wide: int) -> None:
    window = log_in(browser, "admin", theme)
    page = window.pages[0]
    page.set_viewport_size({"width": wide, "height": 844})
    open_form(page)
    form = "[role=dialog][data-state=open]"
    page.locator(f"{form} [data-scope=accordion][data-part=item-trigger]").filter(has_text="Dataset").first.click()
    page.locator(f"{form} [name=element_minimum_bytes]").wait_for()
    assert outside_of(page, form, f"{form} [name^=element_]") == []
    assert not re.search(r"`|\bnull\b|\bundefined\b|\bNaN\b", page.locator(form).last.inner_text())
    picture(page, f"19-form-{wide}-{theme}")
    window.close()
