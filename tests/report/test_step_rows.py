"""A step's row is the sum of its stages', and the page shows both."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.chain import STEP_OF
from corpusmill.builds.graph import GRAPH
from corpusmill.report.facts import Flow, StageSummary, step_rows
from corpusmill.report.html import render_html
from tests.report import example_summaries as examples

SUMS = ("units_total", "units_done", "units_reused", "timed_bytes", "requests", "retries", "wire_bytes")
counts = st.integers(0, 1 << 50)
seconds = st.floats(0, 1e9)


@st.composite
def balanced(draw: st.DrawFn, into: int) -> Flow:
    lost = draw(st.dictionaries(st.sampled_from(["empty", "too long"]), st.integers(0, 10), max_size=2))
    gained = {"padding": sum(lost.values()) + draw(st.integers(0, 5))}
    return Flow(into=into, out=into + sum(gained.values()) - sum(lost.values()), lost=lost, gained=gained)


@st.composite
def summaries(draw: st.DrawFn) -> list[StageSummary]:
    """Some stages of the graph, each of which takes the documents that the last one on the trunk let through."""
    documents = draw(st.integers(0, 1000))
    stages = []
    for name in sorted(draw(st.sets(st.sampled_from(GRAPH.names), min_size=1)), key=GRAPH.names.index):
        flow = draw(st.none() | balanced(documents))
        on_trunk = draw(st.booleans())
        if flow and on_trunk:
            documents = flow.out
        total = draw(st.integers(0, 100))
        ran = draw(st.none() | st.tuples(seconds, seconds))
        stages.append(
            StageSummary(
                stage=name,
                step=STEP_OF[name],
                unit="shard",
                units_total=total,
                units_done=draw(st.integers(0, total)),
                units_reused=0,
                documents=flow,
                seconds=draw(seconds),
                wall_began=ran[0] if ran else None,
                wall_seconds=ran[1] if ran else None,
                timed_bytes=draw(counts),
                peak_rss_bytes=draw(counts),
                on_trunk=on_trunk,
                wire_bytes=draw(counts),
            )
        )
    return stages


@given(summaries())
def test_step_rows_are_the_sums_of_their_stages(stages: list[StageSummary]) -> None:
    rows = step_rows(stages)
    assert sorted(stage.stage for _, inside in rows for stage in inside) == sorted(stage.stage for stage in stages)
    for step, inside in rows:
        assert {stage.step for stage in inside} == {step.stage}
        for name in SUMS:
            assert getattr(step, name) == sum(getattr(stage, name) for stage in inside)
        assert step.seconds == pytest.approx(sum(stage.seconds for stage in inside))
        assert step.peak_rss_bytes == max(stage.peak_rss_bytes for stage in inside)
        walls = [stage.wall_seconds for stage in inside if stage.wall_seconds is not None]
        assert (step.wall_seconds is None) == (not walls)
        assert step.wall_seconds is None or step.wall_seconds >= max(walls) - 1e-3 * max(walls) - 1e-3


@given(summaries())
def test_flow_of_a_step_balances_and_joins_that_of_the_next(stages: list[StageSummary]) -> None:
    flows = [step.documents for step, _ in step_rows(stages) if step.documents and step.on_trunk]
    for flow in flows:
        assert flow.into + flow.gained_total == flow.out + flow.lost_total
    in_order = list(dict.fromkeys(stage.step for stage in stages))
    joined = [stage.step for stage in stages if stage.on_trunk and stage.documents]
    if joined == sorted(joined, key=in_order.index):  # no stage of a step follows one of a later step
        assert all(before.out == after.into for before, after in pairwise(flows))


def test_stages_beside_the_trunk_count_nothing_twice() -> None:
    usual = examples.usual()
    refine, writeback = (
        usual.stages[4].model_copy(update={"stage": name, "on_trunk": on_trunk, "step": "writeback"})
        for name, on_trunk in (("refine", True), ("writeback", False))
    )
    [(both, _)], [(alone, _)] = step_rows([refine, writeback]), step_rows([writeback])
    assert both.documents == alone.documents == writeback.documents
    assert (both.on_trunk, alone.on_trunk) == (True, False)


def test_report_of_an_older_version_has_a_row_for_each_stage() -> None:
    stages = [stage.model_copy(update={"step": ""}) for stage in examples.usual().stages]
    assert [(step.stage, inside) for step, inside in step_rows(stages)] == [(stage.stage, (stage,)) for stage in stages]


def test_page_shows_each_step_with_its_stages_inside() -> None:
    summary = examples.usual()
    text = render_html(summary)
    section = text[text.index('<section id="stages">') : text.index('<section id="outputs">')]
    shown = section.split('<details class="step">')[1:]
    rows = step_rows(summary.stages)
    assert len(shown) == len(rows)
    for html, (step, inside) in zip(shown, rows, strict=True):
        assert re.findall(r'<span class="name">(.*?)</span>', html) == [step.stage, *(stage.stage for stage in inside)]
        units = [
            int(count.replace(",", ""))
            for count in re.findall(r'"name">[^<]*</span>\s*<span class="n">([\d,]+) ', html)
        ]
        assert units == [step.units_total, *(stage.units_total for stage in inside)]
        assert units[0] == sum(units[1:])
        assert summary.titles[step.stage] in html
