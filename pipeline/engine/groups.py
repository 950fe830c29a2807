"""Which neighbouring units share a task: a scheduler spends half a second on any task.

A task is called like its unit, or `<first> to <last>`, so that its name alone says what it does: how units are grouped
may change from version to version, and a task that was listed before does the same.
"""

from __future__ import annotations

from itertools import accumulate

from corpusmill.errors import PermanentError

LEAST_TASKS = 16  # of a stage with so many units, so that a small dataset is spread, too
TASK_BYTES = 256 << 20  # of sources: work for half a minute in most stages
_TO = " to "


def names_of_groups(names: list[str], sizes: list[int], most: int, least: int = LEAST_TASKS) -> list[str]:
    """What tasks are called that do neighbouring units of about equal size: at most `most`, and no more than `least`
    if each would have less than TASK_BYTES of the `sizes`, which are in bytes."""
    tasks = min(len(names), most, max(least, sum(sizes) // TASK_BYTES))
    if tasks == len(names):
        return names
    # A unit belongs to the task in which its middle lies; one of nothing counts as one byte.
    weights = [max(1, size) for size in sizes]
    whole = sum(weights)
    groups: dict[int, list[str]] = {}
    for name, weight, end in zip(names, weights, accumulate(weights), strict=True):
        groups.setdefault((2 * end - weight) * tasks // (2 * whole), []).append(name)
    return [some[0] if len(some) == 1 else f"{some[0]}{_TO}{some[-1]}" for some in groups.values()]


def names_of_group(names: list[str], task: str) -> list[str]:
    """The units of a task among all of its stage; PermanentError if it names others."""
    first, _, last = (task, "", task) if task in names else task.partition(_TO)
    if first not in names or last not in names:
        raise PermanentError("there is no such task", got=task, expected="a unit's name, or two with 'to' between them")
    return names[names.index(first) : names.index(last) + 1]
