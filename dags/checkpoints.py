"""Airflow's task state store as the mill's checkpoints: it survives retries and is live in the UI's Storage tab."""

from __future__ import annotations

from typing import Any

KEY = "progress"


class TaskCheckpoints:
    """The checkpoints of one try of a task. With `forget` what earlier tries left is dropped first.

    Airflow 3.3.2 keeps a task's state when somebody clears the task: without forgetting, a cleared task would go on
    from its old checkpoint instead of doing its work again. With `first` there can be none yet, so none is asked for.
    """

    def __init__(self, store: Any, *, forget: bool, first: bool = False) -> None:
        self._store = store
        self._is_empty = forget or first
        if forget:
            store.clear()

    def load(self) -> dict[str, Any] | None:
        """What was saved last."""
        found = None if self._is_empty else self._store.get(KEY)
        return found if isinstance(found, dict) else None

    def save(self, state: dict[str, Any]) -> None:
        """Keep `state`."""
        self._store.set(KEY, state)
        self._is_empty = False


def was_cleared(context: Any) -> bool:
    """Whether this is the first try after somebody cleared the task (a retry after that goes on, as retries do).

    Clearing sets max_tries to the tries made so far plus `retries`, so the first try since is max_tries - retries + 1.
    """
    instance, retries = context["ti"], context["task"].retries or 0
    first_try: int = instance.max_tries - retries + 1
    return first_try > 1 and instance.try_number == first_try
