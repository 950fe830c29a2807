"""Files of sections: what was written is read, section by section, and nothing that does not fit."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.engine.sections import Sections, SectionWriter, write_sections
from tests.raising import raises


@given(st.lists(st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)), max_size=4), max_size=5))
def test_sections_written_are_read_one_by_one(tables: list[list[tuple[int, int]]]) -> None:
    with TemporaryDirectory() as folder:
        write_sections(Path(folder), "rows", [np.array(rows, np.uint64).reshape(-1, 2) for rows in tables])
        sections = Sections(Path(folder))
        for number, rows in enumerate(tables):
            assert sections.read("rows", number, columns=2).tolist() == [list(row) for row in rows]


@given(st.lists(st.integers(0, 5), max_size=5), st.randoms(use_true_random=False))
def test_section_writer_pieces_in_any_order_lie_where_they_belong(lengths: list[int], rng) -> None:
    pieces = [section for section, length in enumerate(lengths) for _ in range(length)]
    rng.shuffle(pieces)
    with TemporaryDirectory() as folder:
        with SectionWriter(Path(folder), "rows", lengths, 8) as file:
            for at, section in enumerate(pieces):
                file.append(section, np.array([at], np.uint64))
        for section in range(len(lengths)):
            expected = [at for at, piece in enumerate(pieces) if piece == section]
            assert Sections(Path(folder)).read("rows", section).tolist() == expected
            assert Sections(Path(folder)).map("rows", section).tolist() == expected


def test_sections_bytes_are_compared_before_they_are_read(tmp_path: Path) -> None:
    compared: list[tuple[str, int, int]] = []

    def require(*span: Any) -> AbstractContextManager[None]:
        compared.append(span)
        return nullcontext()

    write_sections(tmp_path, "rows", [np.arange(3), np.arange(5)])
    Sections(tmp_path, require).read("rows", 1)
    assert compared == [("rows.index", 0, sys.maxsize), ("rows", 24, 64)]


@pytest.mark.parametrize("section", [-1, 2])
def test_sections_one_that_is_not_there_is_refused(tmp_path: Path, section: int) -> None:
    write_sections(tmp_path, "rows", [np.array([1])] * 2)
    with raises("sections.index_differs"):
        Sections(tmp_path).read("rows", section)


def test_sections_shortened_file_is_refused(tmp_path: Path) -> None:
    write_sections(tmp_path, "rows", [np.array([[1, 9], [12, 20]])])
    (tmp_path / "rows").write_bytes((tmp_path / "rows").read_bytes()[:-8])
    with raises("sections.index_differs"):
        Sections(tmp_path).read("rows", 0, columns=2)


def test_section_writer_that_was_not_filled_is_an_error(tmp_path: Path) -> None:
    with raises("sections.not_filled"), SectionWriter(tmp_path, "rows", [1, 2], 8) as file:
        file.append(1, np.arange(2))
