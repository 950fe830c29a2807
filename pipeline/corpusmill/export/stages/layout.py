"""Decides which files each export has, and which part of the shuffled order each file holds.

Everything follows from the counts per cell that scatter leaves behind, so all output files are known before a single
cell has been gathered: every shard is full but the last, with no overflow pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.base import CellSlice
from corpusmill.lazy import lazily
from corpusmill.shuffle.stages import gather
from corpusmill.shuffle.stages.scatter import KINDS
from corpusmill.tokens.stages.tokenize import vocabulary

with lazily:
    import numpy as np

if TYPE_CHECKING:
    from corpusmill.config import ExportsConfig
    from corpusmill.engine.build import Build

UNIT_BYTES = 16 << 20  # bytes of ids that a step exports at least: smaller steps would be mostly overhead
SHARED = "documents"  # name of the units that write tokens once for several formats


@dataclass(frozen=True)
class OutputPlan:
    """One output file (or file set): its number, its path below the format's folder, its positions [first, last).

    Positions count records (contexts or documents), or, for numpy, tokens of the stream with an EOT before each
    document.
    """

    number: int
    name: str
    first: int
    last: int


def output_plans(build: Build, format_name: str) -> list[OutputPlan]:
    """Every output of one format, in order."""
    return build.remembered(("outputs", format_name), lambda: _output_plans(build, format_name))


def _output_plans(build: Build, format_name: str) -> list[OutputPlan]:
    names, bounds = FORMATS[format_name].plan(build, sum(positions_per_cell(build, format_name)))
    return [
        OutputPlan(number, name, first, last)
        for number, (name, first, last) in enumerate(zip(names, bounds, bounds[1:], strict=False))
    ]


def positions_per_cell(build: Build, format_name: str) -> list[int]:
    """Positions (see OutputPlan) in every cell."""
    kind = KINDS[format_name]
    records = gather.per_cell(build, kind, "records")
    if not FORMATS[format_name].stream:
        return records
    return [slots + eots for slots, eots in zip(gather.per_cell(build, kind, "slots"), records, strict=True)]


def cell_slices(build: Build, format_name: str, first: int, last: int) -> list[CellSlice]:
    """The slices of cells that hold positions [first, last) of the global order.

    An output's place in the global order is not enough: its place in a cell depends on the sizes of all earlier cells,
    which are not inputs of an export step.
    """
    sizes = positions_per_cell(build, format_name)
    ends = list(accumulate(sizes))
    slices = []
    for cell, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        start = end - size
        low, high = max(first, start), min(last, end)
        if low < high:
            slices.append(CellSlice(cell, low - start, high - start))
    return slices


def unit_formats(exports: ExportsConfig) -> dict[str, tuple[str, ...]]:
    """Prefix of export units' names -> the formats that each unit writes."""
    formats = exports.formats()
    sizes = [size for name in formats if (size := FORMATS[name].shared_bytes(exports)) is not None]
    shared = tuple(name for name in formats if sizes.count(FORMATS[name].shared_bytes(exports) or 0) > 1)
    return {name: (name,) for name in formats if name not in shared} | ({SHARED: shared} if shared else {})


def unit_of(build: Build, format_name: str, output: OutputPlan) -> str:
    """The export unit that writes an output."""
    number = output.number // _outputs_of_a_unit(build, format_name)
    name = next(name for name, formats in unit_formats(build.config.exports).items() if format_name in formats)
    return f"{name}-{number:05d}"


def unit_outputs(build: Build, format_name: str) -> list[list[OutputPlan]]:
    """The outputs that each export unit writes: as many consecutive ones as amount to UNIT_BYTES. The number depends
    only on the configuration, so a growing dataset keeps its units.
    """
    outputs, group = output_plans(build, format_name), _outputs_of_a_unit(build, format_name)
    return [outputs[start : start + group] for start in range(0, len(outputs), group)]


def _outputs_of_a_unit(build: Build, format_name: str) -> int:
    width = np.dtype(vocabulary(build).dtype).itemsize
    return max(1, UNIT_BYTES // FORMATS[format_name].output_bytes(build.config.exports, width))
