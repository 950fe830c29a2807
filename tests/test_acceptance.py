"""Every acceptance row has its tests: T and J in docs/acceptance.md, M (Megatron) and N (Nanoset) by their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "acceptance.md"
ROWS = [*(f"T{number:02d}" for number in range(1, 37)), *(f"J{number:02d}" for number in range(1, 27))]
EXPORT_ROWS = [*(f"m{number:02d}" for number in range(1, 29)), *(f"n{number:02d}" for number in range(1, 26))]


def names_of_tests() -> set[str]:
    return {
        name for path in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }


def rows_of_table() -> list[tuple[str, list[str]]]:
    """(first column, tests named in the last one)."""
    cells = [line.strip("|").split("|") for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    return [
        (row[0].strip(), re.findall(r"`(test_\w+)`", row[-1]))
        for row in cells
        if row[0].strip() not in {"row", "input"}
    ]


def test_acceptance_table_has_every_row_once() -> None:
    assert [row for row, _ in rows_of_table() if re.fullmatch(r"[TJ]\d\d", row)] == ROWS


def test_acceptance_row_names_tests_that_are_there_and_carry_its_number() -> None:
    known = names_of_tests()
    for row, tests in rows_of_table():
        assert tests, row
        assert set(tests) <= known, (row, set(tests) - known)
        if re.fullmatch(r"[TJ]\d\d", row):
            assert all(f"_{row.lower()}_" in f"{test}_" for test in tests), row


def test_acceptance_no_test_carries_a_number_that_is_no_row() -> None:
    carried = {number.upper() for name in names_of_tests() for number in re.findall(r"(?<=_)[tj]\d\d(?=_|$)", name)}
    assert carried == set(ROWS)


@pytest.mark.parametrize("row", EXPORT_ROWS)
def test_acceptance_row_of_an_export_has_a_test_of_its_name(row: str) -> None:
    assert any(f"_{row}_" in name for name in names_of_tests())
