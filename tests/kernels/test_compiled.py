"""Kernels where nothing can be kept: a read-only home and installation."""

from __future__ import annotations

import pytest
from numba.core import caching

from corpusmill.kernels.compiled import inlined, kernel


def double(number: int) -> int:
    return number * 2


def test_kernel_without_a_place_for_its_machine_code_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="no locator"):
        caching.FunctionCache(double)
    assert kernel(double)(21) == inlined(double)(21) == 42
