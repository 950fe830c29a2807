"""Runs the search by seeds: each is a number of long-lived folders with a number of steps, always the same ones."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.modules import every_module
from tests.search.folders import small_limits


def search(
    machine: type[RuleBasedStateMachine], number: int, *, folders: int, steps: int, shrink: bool = True
) -> Counter[str]:
    """Run the folders of one seed; how often each kind of step was taken. The error of a difference passes through."""
    load_modules()
    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    counted: Counter[str] = machine.seen  # type: ignore[attr-defined]
    counted.clear()
    wanted = settings(
        max_examples=1 + folders,
        stateful_step_count=steps,
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )

    class Seeded(machine):  # type: ignore[misc, valid-type]
        """Hypothesis keeps the seed on the class.

        It begins with the simplest folder, the same for every seed: the first rule over and over. That one is neither
        compared nor counted.
        """

        made = 0

        def __init__(self) -> None:
            super().__init__()
            self.left_out = Seeded.made == 0
            if Seeded.made == 1:
                counted.clear()
            Seeded.made += 1

    with small_limits():
        run_state_machine_as_test(seed(number)(Seeded), settings=wanted)
    return counted


def load_modules() -> None:
    """Hypothesis draws constants of loaded modules: load all, so that what the process ran before changes no draw."""
    list(every_module())
