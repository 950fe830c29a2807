"""The facts survive JSON, verdicts follow from them, rows of steps and shards and histograms are their sums."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.chain import STEP_OF
from corpusmill.builds.graph import GRAPH
from corpusmill.report import histograms
from corpusmill.report.facts import Flow, PowerHistogram, StageSummary, step_rows, to_json
from corpusmill.report.histograms import merge_histograms, power_histogram
from corpusmill.report.html import render_html
from corpusmill.report.shards import (
    ShardRow,
    ShardTable,
    StepFacts,
    shard_row,
    shards_from_json,
    step_name,
)
from corpusmill.report.summary import BalanceCheck, BuildSummary, from_json
from tests.oracles.power_histogram import power_histogram_oracle
from tests.raising import raises
from tests.report import example_summaries as examples

EXAMPLES = [
    examples.usual(),
    examples.huge(),
    examples.empty(),
    examples.planned(),
    examples.broken(),
    examples.hostile('<script>"\x1b[31m\n中'),
]

terms = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.integers(-(2**70), 2**70)), max_size=4
).map(tuple)


@pytest.mark.parametrize("summary", EXAMPLES, ids=lambda summary: summary.dataset[:9])
def test_to_json_read_back_is_equal_and_writes_the_same_again(summary: BuildSummary) -> None:
    text = to_json(summary)
    again = from_json(text)
    assert again == summary
    assert to_json(again) == text
    assert text.endswith("}\n")


@given(left=terms, right=terms, amounts=st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(0, 2**80)))
def test_to_json_any_terms_and_reasons_survive(
    left: tuple[tuple[str, int], ...], right: tuple[tuple[str, int], ...], amounts: dict[str, int]
) -> None:
    stage = (
        examples.usual()
        .stages[1]
        .model_copy(update={"documents": Flow(into=sum(amounts.values()), out=0, lost=amounts)})
    )
    summary = examples.planned().model_copy(
        update={"checks": (BalanceCheck(name="any", left=left, right=right),), "stages": (stage,)}
    )
    assert from_json(to_json(summary)) == summary


def test_to_json_order_of_reasons_does_not_change_the_text() -> None:
    flows = [Flow(into=3, out=0, lost={"a": 1, "b": 2}), Flow(into=3, out=0, lost={"b": 2, "a": 1})]
    stage = examples.usual().stages[1]
    texts = {
        to_json(examples.planned().model_copy(update={"stages": (stage.model_copy(update={"documents": flow}),)}))
        for flow in flows
    }
    assert len(texts) == 1


def test_from_json_unknown_key_is_corrupt_data_with_a_next_step() -> None:
    values = json.loads(to_json(examples.planned())) | {"mood": "good"}
    with raises("report.not_readable", "mood", "next"):
        from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"dataset": "x"}'])
def test_from_json_other_text_is_corrupt_data(text: str) -> None:
    with raises("report.not_readable"):
        from_json(text)


@pytest.mark.parametrize(
    ("summary", "verdict"),
    [
        (examples.usual(), "complete"),
        (examples.empty(), "complete"),
        (examples.planned(), "in progress"),
        (examples.broken(), "does not balance"),
        (examples.broken().model_copy(update={"checks": ()}), "in progress"),
    ],
)
def test_verdict_of_example_is_the_worst_that_holds(summary: BuildSummary, verdict: str) -> None:
    assert summary.verdict == verdict


@given(left=terms, right=terms)
def test_balance_check_counts_hold_exactly_when_sums_are_equal(
    left: tuple[tuple[str, int], ...], right: tuple[tuple[str, int], ...]
) -> None:
    check = BalanceCheck(name="any", left=left, right=right)
    difference = sum(count for _, count in left) - sum(count for _, count in right)
    assert check.difference == difference
    assert check.ok == (difference == 0)


def test_balance_check_digests_are_compared_as_text() -> None:
    same = BalanceCheck(name="permutation", left=(("before", "ab"),), right=(("after", "ab"),))
    other = BalanceCheck(name="permutation", left=(("before", "ab"),), right=(("after", "ac"),))
    mixed = BalanceCheck(name="permutation", left=(("before", "12"),), right=(("after", 12),))
    assert (same.ok, other.ok, mixed.ok) == (True, False, False)
    assert same.difference is None


def test_first_into_and_last_out_skip_stages_beside_the_trunk() -> None:
    summary = examples.usual()
    beside = summary.stages[4].model_copy(update={"documents": Flow(into=7, out=7)})
    assert not beside.on_trunk
    moved = summary.model_copy(update={"stages": (beside, *summary.stages, beside)})
    assert moved.first_into("documents") == 1_234_567
    assert moved.last_out("documents") == summary.last_out("documents") != 7
    assert examples.planned().first_into("tokens") is None


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


EDGES = [0, 1, *(2**power + shift for power in range(1, 63) for shift in (-1, 0, 1))]
lengths = st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**40)), max_size=50)


def as_dict(histogram: PowerHistogram) -> dict[int, tuple[int, int]]:
    return {item.power: (item.count, item.total) for item in histogram.bins}


@given(values=lengths)
def test_power_histogram_any_lengths_equal_the_oracle(values: list[int]) -> None:
    expected = power_histogram_oracle(values)
    if sum(values) < 2**64:
        assert as_dict(power_histogram(np.array(values, dtype=np.uint64))) == expected
        assert as_dict(power_histogram(np.array(values, dtype=np.int64))) == expected


@pytest.mark.parametrize("value", [*EDGES, 2**63, 2**64 - 1])
def test_power_histogram_one_value_at_an_edge_falls_into_its_bin(value: int) -> None:
    histogram = power_histogram(np.array([value], dtype=np.uint64))
    assert as_dict(histogram) == power_histogram_oracle([value])


def test_power_histogram_many_blocks_equal_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histograms, "BLOCK_VALUES", 1000)
    values = (np.arange(4321, dtype=np.uint32) * np.uint32(2_654_435_761)) >> np.uint32(12)
    assert as_dict(power_histogram(values)) == power_histogram_oracle(values.tolist())


def test_power_histogram_bins_ascend_and_none_is_empty() -> None:
    histogram = power_histogram(np.array([1000, 0, 3, 0], dtype=np.int32))
    assert [item.power for item in histogram.bins] == [-1, 1, 9]
    assert histogram.count == 4
    assert histogram.total == 1003


def test_power_histogram_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="negative: -1"):
        power_histogram(np.array([3, -1]))


def test_power_histogram_no_values_has_no_bins() -> None:
    assert power_histogram(np.array([], dtype=np.uint64)) == PowerHistogram()


@given(parts=st.lists(lengths, max_size=4))
def test_merge_histograms_of_shards_equals_histogram_of_all(parts: list[list[int]]) -> None:
    merged = merge_histograms(power_histogram(np.array(part, dtype=np.uint64)) for part in parts if sum(part) < 2**64)
    everything = [value for part in parts if sum(part) < 2**64 for value in part]
    assert as_dict(merged) == power_histogram_oracle(everything)
    assert [item.power for item in merged.bins] == sorted(item.power for item in merged.bins)


STEPS = {
    "index": StepFacts({"lines": 10, "documents_out": 8, "text_bytes_out": 400}, "aa", 1.5),
    "union": StepFacts({"removed_bytes": 40}, "bb", 0.5),
    "tokenize": StepFacts({"tokens": 90}, "cc", 2.0),
    "scatter contexts": StepFacts({"records": 3}, "dd", 1.0),
}


def test_shard_row_finished_shard_has_every_count() -> None:
    row = shard_row("00003", STEPS, source_bytes=123)
    assert (row.documents, row.rejected_documents, row.text_bytes, row.removed_bytes, row.tokens) == (8, 2, 400, 40, 90)
    assert row.seconds == 5.0
    assert row.digest == "cc"


def test_shard_row_half_done_shard_says_what_is_not_known() -> None:
    row = shard_row("00003", {"index": STEPS["index"]})
    assert (row.documents, row.removed_bytes, row.tokens, row.digest) == (8, None, None, None)
    assert shard_row("00003", {}) == ShardRow(shard="00003")


@pytest.mark.parametrize(
    ("stage", "unit", "actual"),
    [("tokenize", "00017", ("00017", "tokenize")), ("scatter", "contexts-00017", ("00017", "scatter contexts"))],
)
def test_step_name_keeps_both_kinds_of_record_apart(stage: str, unit: str, actual: tuple[str, str]) -> None:
    assert step_name(stage, unit) == actual


def test_shards_to_json_read_back_is_equal() -> None:
    table = ShardTable(rows=(shard_row("00000", STEPS),), digests={"tokenize": {"00000": "cc"}})
    assert shards_from_json(to_json(table)) == table


def test_shards_from_json_other_text_is_refused_with_words() -> None:
    with raises("report.not_readable", "table of shards"):
        shards_from_json(b"{}, what?")
