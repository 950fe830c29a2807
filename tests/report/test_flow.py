"""The flow picture: thickness is proportion, what is lost is seen, what is missing is seen too."""

from __future__ import annotations

import pytest

from corpusmill.report.facts import Flow, StageSummary
from corpusmill.report.flow import BAND, THINNEST, flow_picture
from corpusmill.report.summary import BuildSummary
from tests.report import example_summaries as examples
from tests.report.page import Page


def build(*flows: Flow | None, quantity: str = "documents") -> BuildSummary:
    stages = tuple(
        StageSummary(
            stage=f"stage{number}",
            unit="shard",
            units_total=1,
            units_done=1,
            units_reused=0,
            seconds=1.0,
            timed_bytes=1,
            peak_rss_bytes=1,
        ).model_copy(update={quantity: flow})
        for number, flow in enumerate(flows)
    )
    return examples.planned().model_copy(update={"stages": stages})


def thicknesses(page: Page) -> list[tuple[float, float]]:
    """Thickness at the left and right end of every band."""
    actual = []
    for band in page.all("polygon", "band"):
        points = [tuple(map(float, point.split(","))) for point in band["points"].split()]
        actual.append((points[3][1] - points[0][1], points[2][1] - points[1][1]))
    return actual


def test_flow_picture_half_lost_halves_the_band() -> None:
    page = Page(flow_picture(build(Flow(into=100, out=50, lost={"empty": 50}), Flow(into=50, out=50))))
    assert thicknesses(page) == [(BAND, BAND), (BAND / 2, BAND / 2), (BAND / 2, BAND / 2)]
    assert "\N{MINUS SIGN}50 empty" in page.text
    assert "stage0: empty, 50 documents (50.0 % of the input)" in page.text


def test_flow_picture_one_of_a_billion_lost_still_falls_visibly() -> None:
    page = Page(flow_picture(build(Flow(into=10**9, out=10**9 - 1, lost={"empty": 1}))))
    (falling,) = page.all("path", "lost")
    start, bend = falling["d"].split("H")[0], falling["d"].split("A")[1].split()[0]
    assert start.startswith("M")
    assert float(bend) == pytest.approx(THINNEST + 7)


def test_flow_picture_count_missing_between_stages_shows_as_a_taper() -> None:
    page = Page(flow_picture(build(Flow(into=100, out=100), Flow(into=80, out=80))))
    left, right = thicknesses(page)[1]
    assert left == BAND
    assert right == pytest.approx(0.8 * BAND)


def test_flow_picture_gained_tokens_rise_into_their_stage() -> None:
    flow = Flow(into=90, out=100, gained={"padding": 10})
    page = Page(flow_picture(build(flow, quantity="tokens")))
    assert len(page.all("path", "gained")) == 1
    assert not page.all("path", "lost")
    assert "+10 padding" in page.text
    assert thicknesses(page)[-1][0] == BAND


def test_flow_picture_reasons_of_zero_are_not_drawn() -> None:
    page = Page(flow_picture(build(Flow(into=5, out=5, lost={"empty": 0}, gained={"padding": 0}))))
    assert not page.all("path")
    assert "empty" not in page.text


def test_flow_picture_many_reasons_are_summed_up_but_all_in_the_tooltip() -> None:
    lost = {f"reason {number}": number + 1 for number in range(9)}
    page = Page(flow_picture(build(Flow(into=1000, out=1000 - sum(lost.values()), lost=lost))))
    assert len(page.all("path", "lost")) == 9
    assert "and 6 more reasons" in page.text
    assert "stage0: reason 0, 1 documents" in page.text


def test_flow_picture_stage_beside_the_trunk_is_left_out() -> None:
    summary = examples.usual()
    picture = flow_picture(summary)
    assert "tokenize" in picture
    assert "writeback" not in picture


def test_flow_picture_text_ends_where_tokens_begin() -> None:
    page = Page(flow_picture(examples.usual()))
    (joint,) = page.all("rect", "becomes-tokens")
    text_ends = max(float(b["points"].split()[1].split(",")[0]) for b in page.all("polygon", "text-bytes"))
    tokens_begin = min(float(b["points"].split()[0].split(",")[0]) for b in page.all("polygon", "tokens"))
    assert text_ends == pytest.approx(float(joint["x"]))
    assert tokens_begin == pytest.approx(float(joint["x"]) + float(joint["width"]))
    assert "3.88 bytes per token" in page.text


def test_flow_picture_label_ends_before_the_bar_that_makes_tokens() -> None:
    reason = "name_of_a_step: " + "reason " * 6 + "end"
    losing = build(Flow(into=10, out=9, lost={reason: 1}), Flow(into=9, out=9), quantity="text_bytes")
    joint = losing.stages[1].model_copy(update={"tokens": Flow(into=3, out=3)})
    page = Page(flow_picture(losing.model_copy(update={"stages": (losing.stages[0], joint)})))
    (bar,) = page.all("rect", "becomes-tokens")
    (label,) = page.all("text", "flow-label")
    (shown,) = [word for word in page.words if "name_of_a_step" in word and word.startswith("\N{MINUS SIGN}")]
    assert shown.endswith("…")
    assert float(label["x"]) + 6 * len(shown) < float(bar["x"])  # 6 units a letter: 5.6 in 12 px DejaVu Sans


@pytest.mark.parametrize(
    "summary", [examples.empty(), examples.huge(), examples.broken()], ids=["empty", "huge", "broken"]
)
def test_flow_picture_extremes_stay_inside_the_picture(summary: BuildSummary) -> None:
    page = Page(flow_picture(summary))
    (picture,) = page.all("svg")
    width, height = map(float, picture["viewbox"].split()[2:])
    for label in page.all("text"):
        assert 0 <= float(label["x"]) <= width
        assert 0 <= float(label["y"]) <= height
    for band in page.all("polygon"):
        assert all(0 <= float(point.split(",")[0]) <= width for point in band["points"].split())


def test_flow_picture_nothing_counted_says_so() -> None:
    assert "no stage has finished yet" in flow_picture(examples.planned())
    assert "no stage has finished yet" in flow_picture(build(None, None))
