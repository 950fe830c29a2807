"""Groups neighbouring units into tasks, because a scheduler spends half a second on every task.

A task is named after its unit, or `<first> to <last>`, so its name alone determines its work: even if a later version
groups units differently, a task that was listed before does the same.
"""

from __future__ import annotations

from itertools import accumulate

from corpusmill.errors import PermanentError

LEAST_TASKS = 4  # of a stage with as many units, so that a small dataset is spread, too
TASK_BYTES = 128 << 20  # of sources: work for 2 to 20 s, so that a usual shard of 256 MiB has its own task
UNIT_BYTES = 1 << 20  # of sources, the least that a unit counts: what any step costs, some 20 ms, in bytes
_TO = " to "


def names_of_groups(names: list[str], sizes: list[int], most: int, least: int = LEAST_TASKS) -> list[str]:
    """Names of tasks of neighbouring units of about equal size: at most `most`, and no more than `least` if each would
    have less than TASK_BYTES of the `sizes` (bytes, at least UNIT_BYTES each).
    """
    weights = [max(UNIT_BYTES, size) for size in sizes]
    total = sum(weights)
    tasks = min(len(names), most, max(least, total // TASK_BYTES))
    if tasks == len(names):
        return names
    # A unit belongs to the task that holds its middle.
    groups: dict[int, list[str]] = {}
    for name, weight, end in zip(names, weights, accumulate(weights), strict=True):
        groups.setdefault((2 * end - weight) * tasks // (2 * total), []).append(name)
    return [group[0] if len(group) == 1 else f"{group[0]}{_TO}{group[-1]}" for group in groups.values()]


def names_of_group(names: list[str], task: str) -> list[str]:
    """The units of a task, from all `names` of its stage; PermanentError for unknown units."""
    first, _, last = (task, "", task) if task in names else task.partition(_TO)
    if first not in names or last not in names:
        raise PermanentError("there is no such task", got=task, expected="a unit's name, or two with 'to' between them")
    return names[names.index(first) : names.index(last) + 1]
