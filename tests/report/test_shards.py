"""Rows of shards: from many steps or few, through JSON and back."""

from __future__ import annotations

import pytest

from corpusmill.report.facts import to_json
from corpusmill.report.shards import (
    ShardRow,
    ShardTable,
    StepFacts,
    shard_row,
    shards_from_json,
    step_name,
)
from tests.raising import raises

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
