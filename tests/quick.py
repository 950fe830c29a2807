"""Which cases of a long table `make test` runs; `make test-slow` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(cases: Iterable[Any], count: int) -> list[Any]:
    """The cases of a parametrized test, of which all but the first `count` are slow."""
    every = list(cases)
    return [*every[:count], *(pytest.param(case, marks=pytest.mark.slow) for case in every[count:])]
