"""Which cases of a table, and how many examples of a property, `make test` runs; `make test-slow` runs all."""

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
    """So many examples of a property in `make test-slow`, and a fifth of them in `make test` (tests/conftest.py)."""
    every = settings()
    return settings(every, max_examples=-(-count * every.max_examples // 100))
