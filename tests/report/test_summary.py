"""The facts survive JSON, and verdicts follow from them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpusmill.report.facts import Flow, to_json
from corpusmill.report.summary import BalanceCheck, BuildSummary, DestinationSummary, from_json
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


def test_flow_negative_count_is_refused() -> None:
    with pytest.raises(ValidationError):
        Flow(into=-1, out=0)


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


def test_example_usual_flows_balance_so_that_pictures_are_honest() -> None:
    for stage in examples.usual().stages:
        for flow in (stage.documents, stage.text_bytes, stage.tokens):
            if flow is not None:
                assert flow.into + flow.gained_total == flow.out + flow.lost_total, stage.stage


def test_first_into_and_last_out_skip_stages_beside_the_trunk() -> None:
    summary = examples.usual()
    beside = summary.stages[4].model_copy(update={"documents": Flow(into=7, out=7)})
    assert not beside.on_trunk
    moved = summary.model_copy(update={"stages": (beside, *summary.stages, beside)})
    assert moved.first_into("documents") == 1_234_567
    assert moved.last_out("documents") == summary.last_out("documents") != 7
    assert examples.planned().first_into("tokens") is None


def test_destination_with_fewer_verified_files_is_not_verified() -> None:
    assert DestinationSummary(where="x", files=2, verified_files=2, size_bytes=0).is_verified
    assert not DestinationSummary(where="x", files=2, verified_files=1, size_bytes=0).is_verified
