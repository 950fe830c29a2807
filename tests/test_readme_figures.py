"""The README's table of measurements says what the result files say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| .+? \| (?P<measured>.+?) \| \[.+?\]\((?P<file>benchmarks/results/\w+\.json)\) \|$", re.M)
TEXT = (ROOT / "README.md").read_text()
ROWS = [match.groupdict() for match in ROW.finditer(TEXT)]
# Figures of a sentence stand before the link to their file, and behind the link before it.
SENTENCES = re.compile(r"(?P<measured>[^|\]]*?)\(?\[measured\]\((?P<file>benchmarks/results/\w+\.json)\)")
ROWS += [match.groupdict() for match in SENTENCES.finditer(TEXT)]


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def test_readme_has_a_table_of_measurements() -> None:
    assert len(ROWS) > 5
    assert len(SENTENCES.findall(TEXT)) == 2  # the two of the first paragraph


@pytest.mark.parametrize("row", ROWS, ids=lambda row: Path(row["file"]).stem)
def test_readme_every_bold_figure_stands_in_its_result_file(row: dict[str, str]) -> None:
    figures = list(numbers_in(json.loads((ROOT / row["file"]).read_text())["figures"]))
    bold = re.findall(r"\*\*([0-9.,]+)\*\*", row["measured"])
    assert bold
    for figure in bold:
        digits = len(figure.partition(".")[2])
        wanted = float(figure.replace(",", ""))
        assert any(round(figure, digits) == wanted for figure in figures), f"{figure} is not in {row['file']}"
