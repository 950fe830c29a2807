"""Which units share a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.engine.groups import LEAST_TASKS, TASK_BYTES, UNIT_BYTES, names_of_group, names_of_groups
from corpusmill.errors import PermanentError


@given(st.lists(st.integers(0, 2 * TASK_BYTES), max_size=300), st.integers(1, 250))
def test_tasks_of_any_sizes_are_all_units_once_in_order_and_not_too_many(sizes: list[int], most: int) -> None:
    names = [f"{number:05d}" for number in range(len(sizes))]
    tasks = names_of_groups(names, sizes, most)
    assert [name for task in tasks for name in names_of_group(names, task)] == names
    weights = [max(UNIT_BYTES, size) for size in sizes]
    assert len(tasks) <= min(most, max(LEAST_TASKS, sum(weights) // TASK_BYTES))


@given(st.lists(st.integers(1, TASK_BYTES), min_size=17, max_size=300))
def test_tasks_of_small_units_are_of_about_one_size(sizes: list[int]) -> None:
    names = [f"{number:05d}" for number in range(len(sizes))]
    tasks = names_of_groups(names, sizes, 16, least=16)
    weights = [max(UNIT_BYTES, size) for size in sizes]
    work = [sum(weights[int(name)] for name in names_of_group(names, task)) for task in tasks]
    assert max(work) <= sum(weights) / 16 + max(weights)


def test_tasks_of_full_shards_are_the_shards() -> None:
    names = [f"{number:05d}" for number in range(150)]
    assert names_of_groups(names, [TASK_BYTES] * 150, 200) == names


def test_tasks_of_ten_thousand_full_shards_are_as_many_as_allowed() -> None:
    names = [f"{number:05d}" for number in range(10_000)]
    assert len(names_of_groups(names, [TASK_BYTES] * 10_000, 200)) == 200


@pytest.mark.parametrize("task", ["00007", "00000 to 00007", "00007 to 00001", "", "every one"])
def test_task_of_units_that_are_not_there_is_refused(task: str) -> None:
    with pytest.raises(PermanentError, match="no such task"):
        names_of_group(["00000", "00001"], task)


def test_tasks_of_small_shards_are_few_and_those_of_usual_shards_the_shards() -> None:
    small, usual = [f"{number:05d}" for number in range(178)], [f"{number:05d}" for number in range(16)]
    assert len(names_of_groups(small, [2_000_000] * 178, 200)) == LEAST_TASKS
    assert names_of_groups(usual, [256_000_000] * 16, 200) == usual


def test_tasks_of_very_many_tiny_shards_are_many_because_every_step_costs_something() -> None:
    names = [f"{number:05d}" for number in range(10_000)]
    assert len(names_of_groups(names, [100_000] * 10_000, 200)) == 10_000 * UNIT_BYTES // TASK_BYTES == 78
