"""Which cases of a table and how many examples `make test` and `make test-slow` run; `make test-thorough` runs all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

THOROUGH = [pytest.mark.slow, pytest.mark.thorough]


def quick(cases: Iterable[Any], count: int, slow: int | None = None) -> list[Any]:
    """The cases of a test: the first `count`, then `slow` slow ones (all by default), then thorough ones."""
    every = list(cases)
    end = len(every) if slow is None else count + slow
    return [
        *every[:count],
        *(pytest.param(case, marks=pytest.mark.slow) for case in every[count:end]),
        *(pytest.param(case, marks=THOROUGH) for case in every[end:]),
    ]


def examples(count: int) -> settings:
    """So many examples of a property in `make test-thorough`, and a fifth in `make test` (tests/conftest.py)."""
    every = settings()
    return settings(every, max_examples=-(-count * every.max_examples // 100))
