"""Every acceptance row of Megatron (M01 to M28) and of Nanoset (N01 to N25) has a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROWS = [*(f"m{number:02d}" for number in range(1, 29)), *(f"n{number:02d}" for number in range(1, 26))]
NAMED = re.compile(r"^ *def (test_\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def names() -> list[str]:
    return [name for path in sorted(TESTS.rglob("test_*.py")) for name in NAMED.findall(path.read_text())]


@pytest.mark.parametrize("row", ROWS)
def test_row_has_a_test_of_its_name(names, row) -> None:
    assert [name for name in names if f"_{row}_" in name]
