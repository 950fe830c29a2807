"""Which tasks a run needs; the others are skipped, in one request to Airflow for each gap.

A task of which the run needs nothing would be started to find that out, or skipped after a scheduler's loop of its own.
The last task before such tasks skips them: not earlier, because what follows them waits for nobody else.

    download   index   [find_ranges.*]   [approve_removal]   writeback       dedup is off
               skips ^                                       starts
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpusmill.builds.chain import APPROVALS, STEPS, all_tasks
from corpusmill.builds.graph import GRAPH
from corpusmill_airflow.by_version import DownstreamTasksSkipped

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.parts import Part

APPROVAL_TASKS = {f"approve_{word}": stage for word, stage in APPROVALS.items()}
"""{task: the stage that says what would be removed}"""


def needed_ids(config: DatasetConfig, parts: int, *, asks: bool) -> set[str]:
    """The names of the tasks that a run needs; `asks`: whether somebody is asked before a removal."""
    tasks = [task for task in all_tasks() if task.stages(config, parts) and (asks or not task.round.asked)]
    approvals = [task_id for task_id, stage in APPROVAL_TASKS.items() if asks and GRAPH.is_wanted(stage, config)]
    return {*(task.name for task in tasks), *approvals}


def skip_unneeded(context: Any, config: DatasetConfig, part: Part, *, asks: bool) -> None:
    """End the task by skipping the tasks behind it that the run does not need, if it is the last of its parts.

    If two parts end at the same moment neither may be the last; then the tasks run, and find nothing to do.
    """
    instance, dag = context["ti"], context["dag"]
    needed = needed_ids(config, part.of, asks=asks)
    gap: list[str] = []
    behind = set(context["task"].downstream_task_ids)
    while behind:
        unneeded = {task_id for task_id in behind if is_of_chain(task_id) and needed.isdisjoint(_names(task_id))}
        gap += sorted(unneeded)
        if unneeded != behind:
            break
        behind = {later for task_id in unneeded for later in dag.get_task(task_id).downstream_task_ids}
    if gap and (instance.map_index < 0 or part.of == 1 or _ended(instance) >= part.of - 1):
        raise DownstreamTasksSkipped(tasks=gap)


def skip_all(context: Any) -> None:
    """End the plan by skipping every task of the chain."""
    raise DownstreamTasksSkipped(tasks=sorted(filter(is_of_chain, context["dag"].task_ids)))


def is_of_chain(task_id: str) -> bool:
    """Whether a task is a step's, a round's or an approval."""
    return task_id in APPROVAL_TASKS or task_id.partition(".")[0] in STEPS


def _names(task_id: str) -> set[str]:
    """The names of the tasks that an id stands for: a step's own that of any of its rounds."""
    return {task_id, *(task.name for task in all_tasks() if task.step.name == task_id)}


def _ended(instance: Any) -> int:
    """How many parts of a task have ended well."""
    of_task = {"dag_id": instance.dag_id, "run_ids": [instance.run_id], "task_ids": [instance.task_id]}
    return int(instance.get_ti_count(**of_task, states=["success"]))
