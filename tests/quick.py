"""Which cases of a table and how many examples `make test` runs; `make test-slow`, `make test-thorough` run all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def quick(cases: Iterable[Any], count: int) -> list[Any]:
    """The cases of a parametrized test, of which all but the first `count` are slow."""
    every = list(cases)
    return [*every[:count], *(pytest.param(case, marks=pytest.mark.slow) for case in every[count:])]


def examples(count: int) -> settings:
    """So many examples of a property in `make test-thorough`, and a fifth in `make test` (tests/conftest.py)."""
    every = settings()
    return settings(every, max_examples=-(-count * every.max_examples // 100))
