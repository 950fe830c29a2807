"""The steps that people meet, and their tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.chain import STEP_OF, STEPS, all_tasks, find_task, label_of, needed_tasks, steps_of
from corpusmill.builds.graph import GRAPH
from corpusmill.config import check_config
from corpusmill.engine.stage import Graph
from tests.raising import raises
from tests.system.corpus import configuration

DECISIONS = [{"name": "ids", "path": "ids.jsonl", "keep": "score >= 1"}]


def needed(tmp_path: Path, parts: int = 2, **changes: Any) -> list[str]:
    config = check_config(configuration(tmp_path, **changes), where="a test")
    return [task.name for task in needed_tasks(config, parts)]


def test_steps_have_every_stage_after_those_that_it_waits_for() -> None:
    order = list(STEPS)
    assert set(STEP_OF) == set(GRAPH.names)
    moved = {stage for step in STEPS.values() for round_ in step.rounds for stage in round_.moved}
    for stage, step in [item for item in STEP_OF.items() if item[0] not in moved]:
        assert all(order.index(STEP_OF[other]) <= order.index(step) for other in GRAPH.after(stage))


NEAR = {"near_duplicates": {"action": "remove"}}


def test_anchors_are_of_the_text_without_near_duplicates_where_these_are_asked_for(tmp_path: Path) -> None:
    config = check_config(configuration(tmp_path, **NEAR), where="a test")
    by_name = {task.name: task.stages(config) for task in needed_tasks(config)}
    assert by_name["index.index"][-1] == "sign"
    assert by_name["near_duplicates.left_out"] == ("near_duplicates", "anchor")
    config = check_config(configuration(tmp_path), where="a test")
    assert "anchor" in {task.name: task.stages(config) for task in needed_tasks(config)}["index.index"]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"decisions": DECISIONS}, {"dedup": {"mode": "none"}}, NEAR])
def test_tasks_do_every_needed_stage_once(tmp_path: Path, parts: int, changes: dict[str, Any]) -> None:
    config = check_config(configuration(tmp_path, **changes), where="a test")
    done = [stage for task in needed_tasks(config, parts) for stage in task.stages(config, parts) if stage != "export"]
    assert sorted(done) == sorted(name for name in GRAPH.names if GRAPH.is_wanted(name, config) and name != "export")


def test_first_task_of_a_step_of_one_part_does_all_of_it(tmp_path: Path) -> None:
    one, several = needed(tmp_path, 1), needed(tmp_path, 2)
    assert [name for name in several if name.startswith("find_ranges")] == [
        f"find_ranges.{name}" for name in ("shared", "context", "settle", "border", "match")
    ]
    assert [name for name in one if name.startswith("find_ranges")] == ["find_ranges.shared"]
    assert [name for name in one if name.startswith("index")] == ["index.read"]


def test_list_is_joined_with_all_shards_before_a_task_reads_its_matches(tmp_path: Path) -> None:
    assert [name for name in needed(tmp_path) if name.startswith("index")] == ["index.read", "index.index"]
    with_list = needed(tmp_path, decisions=DECISIONS)
    assert [name for name in with_list if name.startswith("index")] == ["index.read", "index.join", "index.index"]


def test_dataset_without_dedup_has_no_task_that_finds_ranges(tmp_path: Path) -> None:
    assert not [name for name in needed(tmp_path, dedup={"mode": "none"}) if name.startswith("find_ranges")]


@pytest.mark.parametrize(
    ("after", "step", "rounds"),
    [
        (("download",), "download", ["download", "own"]),
        (("index",), "index", ["read", "join", "index", "own"]),
        (("index", "tokenize"), "tokenize", ["tokenize", "own"]),
        (("export",), "upload", ["own", "upload"]),  # formats are written beside each other
        (("upload",), "upload", ["upload", "own"]),
        ((), "download", ["download", "own"]),
    ],
)
def test_stage_of_ones_own_is_a_round_behind_those_that_it_waits_for(
    after: tuple[str, ...], step: str, rounds: list[str]
) -> None:
    own = replace(GRAPH["filter"], name="own", after=after)
    steps = steps_of(Graph([*GRAPH, own]))
    assert [item.name for item in steps[step].rounds] == rounds
    assert {name for name in steps if "own" in steps[name].stages} == {step}


def test_stages_of_ones_own_that_wait_for_each_other_are_rounds_in_that_order() -> None:
    first = replace(GRAPH["filter"], name="z", after=("export",))
    second = replace(GRAPH["filter"], name="a", after=("z",))
    steps = steps_of(Graph([*GRAPH, second, first]))
    assert [item.name for item in steps["upload"].rounds] == ["z", "upload", "a"]


def test_unknown_task_is_refused_with_the_names_that_exist() -> None:
    with raises("task.unknown", "index.read"):
        find_task("filter")
    assert [find_task(task.name) for task in all_tasks()] == all_tasks()


@pytest.mark.parametrize(
    ("steps", "label"),
    [
        ([], "nothing"),
        (["tokenize/00002-ab"], "00002"),
        (["index/00007-cd", "anchor/00007-aa", "index/00002-ab"], "00002 to 00007"),
        (["decided/ids-ab", "filter/00001-ab"], "00001"),
        (["scatter/documents-00003-ab", "scatter/contexts-00003-ab"], "00003"),
        (["export/nanoset-00000-ab", "export/nanoset-00001-ab"], "nanoset-00000 to nanoset-00001"),
    ],
)
def test_label_of_a_part_names_its_shards_or_else_its_units(steps: list[str], label: str) -> None:
    assert label_of(f"s3://bucket/mill/web/{step}/receipt.json" for step in steps) == label
