"""What a test expects of an error that Corpusmill raises on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from corpusmill.errors import CorpusmillError


@contextmanager
def raises(code: str, *shown: object) -> Iterator[pytest.ExceptionInfo[CorpusmillError]]:
    """`pytest.raises` for an error with this code (docs/errors.md), or one of these, whose text shows certain data."""
    with pytest.raises(CorpusmillError) as caught:
        yield caught
    assert caught.value.code in code.split(), f"expected {code}, got {caught.value}"
    missing = [item for item in map(str, shown) if item not in str(caught.value)]
    assert not missing, f"expected {missing} in {caught.value}"
