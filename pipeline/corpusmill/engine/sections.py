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
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from corpusmill.errors import BalanceError, CorruptDataError

if TYPE_CHECKING:
    from io import FileIO

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
        rows = self.read_range(name, section, section + 1, dtype, columns)
        return rows if columns == 1 else rows.reshape(-1, columns)

    def read_range(
        self, name: str, section: int, behind: int, dtype: npt.DTypeLike = "<u8", columns: int = 1
    ) -> NDArray[Any]:
        """The values of the sections [section, behind), (r,)."""
        width = np.dtype(dtype).itemsize * columns
        with self._section(name, section, width, behind) as (file, first, last):
            return _rows(file, first * width, (last - first) * columns, dtype)

    def map(self, name: str, section: int, columns: int = 1) -> NDArray[np.uint64]:
        """The u64 rows of one section, memory-mapped: (r,) or (r, columns)."""
        with self._section(name, section, 8 * columns) as (file, first, last):
            shape = (last - first,) if columns == 1 else (last - first, columns)
            if first == last:  # an empty range cannot be mapped
                return np.frombuffer(b"", np.uint64).reshape(shape)  # read-only, as a map is
            return np.memmap(file, "<u8", "r", first * 8 * columns, shape).view(np.ndarray)

    def whole(self, name: str, dtype: npt.DTypeLike = "<u8") -> NDArray[Any]:
        """All values of a file in the folder that has no sections."""
        with self._opened(name) as file:
            values = _rows(file, 0, os.fstat(file.fileno()).st_size // np.dtype(dtype).itemsize, dtype)
        return values.astype(np.dtype(dtype).newbyteorder("="), copy=False)

    def slice(self, name: str, first: int, last: int) -> NDArray[np.uint64]:
        """The u64 values [first, last) of a file that has no sections."""
        with self._opened(name, 8 * first, 8 * last) as file:
            return _rows(file, 8 * first, last - first, "<u8")

    @contextmanager
    def _section(
        self, name: str, section: int, width: int, behind: int | None = None
    ) -> Iterator[tuple[BinaryIO, int, int]]:
        """The file, checked where the sections [section, behind) are, their first row and one past their last."""
        starts = self.whole(f"{name}.index").astype(np.int64)
        behind = section + 1 if behind is None else behind
        known = 0 <= section <= behind < len(starts)
        first, last = (int(starts[section]), int(starts[behind])) if known else (0, 0)
        with self._opened(name, first * width, last * width) as file:
            size = os.fstat(file.fileno()).st_size
            if not known or size != width * starts[-1]:
                raise CorruptDataError(
                    "sections.index_differs: a file of sections does not match its index",
                    where=self.folder / name,
                    expected=f"section {section} in the index, a file of {width} bytes per row",
                    got=f"{max(len(starts) - 1, 0)} sections, {size:,} bytes",
                    next_step="run the step that wrote it again",
                )
            yield file, first, last

    @contextmanager
    def _opened(self, name: str, first: int = 0, last: int = sys.maxsize) -> Iterator[BinaryIO]:
        """A file whose bytes [first, last) are checked."""
        with self.require(name, first, last) as checked:
            if checked is not None:
                yield checked
            else:
                with (self.folder / name).open("rb", buffering=0) as file:
                    yield file


def _rows(file: BinaryIO, offset: int, count: int, dtype: npt.DTypeLike) -> NDArray[Any]:
    """`count` values from byte `offset` on; fewer where the file ends."""
    rows = np.empty(count, dtype)
    file.seek(offset)
    return rows[: read_into(cast("FileIO", file), rows.view(np.uint8)) // rows.itemsize]


def read_into(file: FileIO, into: NDArray[np.uint8]) -> int:
    """Fill an array; returns how many bytes there were."""
    filled = 0
    while filled < len(into) and (read := file.readinto(into.data[filled:])):
        filled += read
    return filled


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
                "sections.not_filled: a file of sections was not filled",
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
