"""Files of sections: one task writes a section for each of many others, and each of those reads one contiguous range.

<name>         rows of one width, section after section
<name>.index   u64 LE x (sections + 1): the first row of every section, then the number of rows
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import BalanceError, CorruptDataError

Require = Callable[[str, int, int], AbstractContextManager[BinaryIO | None]]
"""(name, first, last): check the bytes [first, last) of a file against its digests before they are read. The file stays
in place during the `with`, and while an open file that it may yield is mapped.
"""


def as_written(_name: str, _first: int, _last: int) -> AbstractContextManager[None]:
    """A Require that checks nothing."""
    return nullcontext()


@dataclass(frozen=True)
class Sections:
    """A folder with files of sections."""

    folder: Path
    require: Require = as_written

    def read(self, name: str, section: int, dtype: str = "<u8", columns: int = 1) -> NDArray[Any]:
        """The rows of one section, (r,) or (r, columns). CorruptDataError if the file does not fit its index."""
        width = np.dtype(dtype).itemsize * columns
        with self._section(name, section, width) as (_, first, last):
            rows = np.fromfile(self.folder / name, dtype, count=(last - first) * columns, offset=first * width)
        return rows if columns == 1 else rows.reshape(-1, columns)

    def map(self, name: str, section: int) -> NDArray[np.uint64]:
        """The u64 rows of one section, memory-mapped."""
        with self._section(name, section, 8) as (file, first, last):
            if first == last:  # an empty range cannot be mapped
                return np.empty(0, np.uint64)
            return np.memmap(file or self.folder / name, "<u8", "r", first * 8, (last - first,)).view(np.ndarray)

    def whole(self, name: str, dtype: str = "<u8") -> NDArray[Any]:
        """All values of a file in the folder that has no sections."""
        with self.require(name, 0, sys.maxsize):
            return np.fromfile(self.folder / name, dtype).astype(np.dtype(dtype).newbyteorder("="), copy=False)

    @contextmanager
    def _section(self, name: str, section: int, width: int) -> Iterator[tuple[BinaryIO | None, int, int]]:
        """The file, checked where the section is, and the section's first row and one past its last."""
        index = f"{name}.index"
        with self.require(index, 0, sys.maxsize):
            starts = np.fromfile(self.folder / index, "<u8").astype(np.int64)
        known = 0 <= section < len(starts) - 1
        first, last = map(int, starts[section : section + 2]) if known else (0, 0)
        with self.require(name, first * width, last * width) as file:
            size = (self.folder / name).stat().st_size
            if not known or size != width * starts[-1]:
                raise CorruptDataError(
                    "a file of sections does not match its index",
                    where=self.folder / name,
                    expected=f"section {section} in the index, a file of {width} bytes per row",
                    got=f"{max(len(starts) - 1, 0)} sections, {size:,} bytes",
                    next_step="run the step that wrote it again",
                )
            yield file, first, last


class SectionWriter:
    """Writes a file of sections of known lengths: rows of one section come in order, sections interleave freely."""

    def __init__(self, folder: Path, name: str, rows: Sequence[int], row_bytes: int) -> None:
        starts = np.cumsum([0, *rows], dtype="<u8")
        (folder / f"{name}.index").write_bytes(starts.data)
        self._path = folder / name
        self._next = [int(start) * row_bytes for start in starts[:-1]]
        self._ends = [int(start) * row_bytes for start in starts[1:]]
        self._file = self._path.open("wb", buffering=0)

    def append(self, section: int, rows: NDArray[Any]) -> None:
        """The next rows of a section."""
        data = np.ascontiguousarray(rows).view(np.uint8).reshape(-1).data
        while data:
            written = os.pwrite(self._file.fileno(), data, self._next[section])
            self._next[section] += written
            data = data[written:]

    def __enter__(self) -> SectionWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._file.close()
        if kind is None and self._next != self._ends:
            raise BalanceError(
                "a file of sections was not filled",
                where=self._path,
                expected=f"sections that end at {self._ends[:3]} ...",
                got=f"{self._next[:3]} ...",
                next_step="report this: it is a bug",
            )


def write_sections(folder: Path, name: str, sections: Sequence[NDArray[Any]], dtype: str = "<u8") -> None:
    """Write `name` and `name`.index in `folder`: arrays (r,) or (r, columns), one per section."""
    row_bytes = np.dtype(dtype).itemsize * (sections[0].shape[1] if sections and sections[0].ndim == 2 else 1)
    with SectionWriter(folder, name, [len(rows) for rows in sections], row_bytes) as file:
        for section, rows in enumerate(sections):
            file.append(section, rows.astype(dtype, copy=False))
