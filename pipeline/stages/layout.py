"""Decides which files each export has, and which part of the shuffled order each file holds.

Everything follows from the counts per cell that scatter leaves behind, so all output files are known before a single
cell has been gathered: every shard is full but the last, with no overflow pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from corpusmill.stages import gather, scatter
from corpusmill.stages.budget import shown_total
from corpusmill.stages.scatter import KINDS
from corpusmill.stages.tokenize import Vocabulary, vocabulary

if TYPE_CHECKING:
    from corpusmill.config import FramingConfig, NumpyConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.framing import Framing

UNIT_BYTES = 16 << 20  # bytes of ids that a step exports at least: smaller steps would be mostly overhead
SHARED = "documents"  # name of the units that write megatron and nanoset together


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


@dataclass(frozen=True)
class CellSlice:
    """The part [first, last) of one cell's positions."""

    cell: int
    first: int
    last: int


def output_plans(build: Build, format_name: str) -> list[OutputPlan]:
    """Every output of one format, in order."""
    return build.remembered(("outputs", format_name), lambda: _output_plans(build, format_name))


def _output_plans(build: Build, format_name: str) -> list[OutputPlan]:
    total = sum(positions_per_cell(build, format_name))
    exports = build.config.exports
    if format_name == "webdataset":
        assert exports.webdataset is not None
        size = exports.webdataset.contexts_per_shard
        bounds = [*range(0, total, size), total]
        names = [f"shard_{number:08d}.tar" for number in range(len(bounds) - 1)]
    elif format_name == "numpy":
        assert exports.numpy is not None
        names, bounds = _numpy_bounds(exports.numpy, total)
    else:
        bounds = _document_bounds(build, format_name, total)
        if build.config.framing.empty_documents == "boundary":
            bounds = _without_empty_parts(build, format_name, bounds)
        names = [_document_name(build, format_name, number) for number in range(len(bounds) - 1)]
    return [
        OutputPlan(number, name, first, last)
        for number, (name, first, last) in enumerate(zip(names, bounds, bounds[1:], strict=False))
    ]


def _numpy_bounds(wanted: NumpyConfig, tokens: int) -> tuple[list[str], list[int]]:
    from corpusmill.export.numpy_shards import raw_bounds, shard_names

    if wanted.layout == "bin":
        return raw_bounds(tokens, wanted.test_share, wanted.split_names())
    bounds = [*range(0, tokens, wanted.tokens_per_shard), tokens]
    names = shard_names(
        len(bounds) - 1,
        wanted.held_out(),
        splits=wanted.split_names(),
        pattern=wanted.file_name,
        digits=wanted.number_digits,
    )
    return names, bounds


def _document_bounds(build: Build, format_name: str, documents: int) -> list[int]:
    """Contiguous runs of documents, in as many parts as the part size requires.

    After a uniform shuffle equal numbers of documents are nearly equal numbers of tokens. In source order every part
    but the last has the part's size, found from the counts of every shard as if the documents within one were equally
    long: text appended to the source does not change the parts before it.
    """
    import numpy as np

    if not documents:
        return [0]
    limit = _part_bytes(build, format_name)
    width = np.dtype(vocabulary(build).dtype).itemsize
    total_bytes = (shown_total(build, "tokens") + framed_tokens(build, documents)) * width
    if scatter.in_source_order(build):
        return _source_bounds(build, format_name, max(1, limit // width))
    parts = min(documents, -(-total_bytes // limit))
    return [number * documents // parts for number in range(parts + 1)]


def _source_bounds(build: Build, format_name: str, tokens_per_part: int) -> list[int]:
    """The documents at which the stream of framed tokens passes multiples of `tokens_per_part`, and both ends."""
    bounds, documents, tokens = {0}, 0, 0
    special = build.config.framing.eod + build.config.framing.bos
    cells = zip(*(gather.per_cell(build, KINDS[format_name], what) for what in ("records", "slots")), strict=True)
    for records, slots in cells:
        framed = slots + special * records
        marks = range(-(-tokens // tokens_per_part) * tokens_per_part, tokens + framed, tokens_per_part)
        bounds |= {documents + (mark - tokens) * records // framed for mark in marks}
        documents, tokens = documents + records, tokens + framed
    return sorted(bounds | {documents})


def _without_empty_parts(build: Build, format_name: str, bounds: list[int]) -> list[int]:
    """The bounds of parts that have tokens: documents without any join the part before, the first ones the next.

    No reader can map a file without bytes. Only where `empty_documents: boundary` keeps such documents bare can a part
    be empty; how many tokens stand before a bound is then read from the gathered cells, eight bytes a bound.
    """
    kept = [bounds[0]]
    tokens = 0
    for bound in bounds[1:]:
        before = _tokens_before(build, format_name, bound)
        if before > tokens:
            kept.append(bound)
            tokens = before
    return [*kept[:-1], bounds[-1]] if len(kept) > 1 else [0]


def _tokens_before(build: Build, format_name: str, document: int) -> int:
    """Tokens of all documents before one in the global order."""
    kind = KINDS[format_name]
    tokens = first = 0
    for cell, records in enumerate(gather.per_cell(build, kind, "records")):
        if document <= first + records:
            ends = gather.provenance(build, kind, cell).ends
            return tokens + (int(ends[document - first - 1]) if document > first else 0)
        tokens += gather.per_cell(build, kind, "slots")[cell]
        first += records
    return tokens


def framing(build: Build) -> Framing:
    """The special tokens around whole documents; TokenizerError for BOS where the tokenizer has none."""
    return framing_of(build.config.framing, vocabulary(build))


def framing_of(wanted: FramingConfig, ids: Vocabulary) -> Framing:
    """See `framing`."""
    from corpusmill.errors import TokenizerError
    from corpusmill.export.framing import Framing

    if wanted.bos and ids.bos_id is None:
        raise TokenizerError(f"the tokenizer {ids.name} has no BOS token", next_step="name it as tokenizer.bos")
    return Framing(ids.eot_id if wanted.eod else None, ids.bos_id if wanted.bos else None, wanted.empty_documents)


def framed_tokens(build: Build, records: int) -> int:
    """Special tokens of `records` whole documents, which are all documents, in one export."""
    wanted = build.config.framing
    bare = shown_total(build, "documents_empty") if wanted.empty_documents == "boundary" else 0
    return (records - bare) * (wanted.eod + wanted.bos)


def _document_name(build: Build, format_name: str, number: int) -> str:
    from corpusmill.export.nanoset import file_name

    if format_name == "nanoset":
        return file_name(number, None) if scatter.in_source_order(build) else file_name(0, number)
    key = re.sub(r"[^A-Za-z0-9.-]+", "_", build.config.source.text_field)
    return f"{build.config.name}_{number:05d}_{key}_document"  # {prefix}_{json key}_document, as Megatron's tool does


def positions_per_cell(build: Build, format_name: str) -> list[int]:
    """Positions (see OutputPlan) in every cell."""
    kind = KINDS[format_name]
    records = gather.per_cell(build, kind, "records")
    if format_name != "numpy":
        return records
    return [slots + eots for slots, eots in zip(gather.per_cell(build, kind, "slots"), records, strict=True)]


def cell_slices(build: Build, format_name: str, first: int, last: int) -> list[CellSlice]:
    """The slices of cells that hold positions [first, last) of the global order."""
    sizes = positions_per_cell(build, format_name)
    ends = list(accumulate(sizes))
    slices = []
    for cell, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        start = end - size
        low, high = max(first, start), min(last, end)
        if low < high:
            slices.append(CellSlice(cell, low - start, high - start))
    return slices


def unit_formats(build: Build) -> dict[str, tuple[str, ...]]:
    """Prefix of export units' names -> the formats that each unit writes."""
    formats = build.config.exports.formats()
    if not shares_tokens(build):
        return {name: (name,) for name in formats}
    shared = ("megatron", "nanoset")
    return {**{name: (name,) for name in formats if name not in shared}, SHARED: shared}


def shares_tokens(build: Build) -> bool:
    """Whether a `.bin` and a `.ds` hold the same bytes: both are exported, cut at the same size."""
    megatron, nanoset = build.config.exports.megatron, build.config.exports.nanoset
    return megatron is not None and nanoset is not None and megatron.part_bytes == nanoset.file_bytes


def unit_of(build: Build, format_name: str, output: OutputPlan) -> str:
    """The export unit that writes an output."""
    number = output.number // _outputs_of_a_unit(build, format_name)
    name = next(name for name, formats in unit_formats(build).items() if format_name in formats)
    return f"{name}-{number:05d}"


def unit_outputs(build: Build, format_name: str) -> list[list[OutputPlan]]:
    """The outputs that each export unit writes: as many consecutive ones as amount to UNIT_BYTES. The number depends
    only on the configuration, so a growing dataset keeps its units.
    """
    outputs, group = output_plans(build, format_name), _outputs_of_a_unit(build, format_name)
    return [outputs[start : start + group] for start in range(0, len(outputs), group)]


def _outputs_of_a_unit(build: Build, format_name: str) -> int:
    return max(1, UNIT_BYTES // _output_bytes(build, format_name))


def _output_bytes(build: Build, format_name: str) -> int:
    """Bytes of the ids of a full output."""
    import numpy as np

    exports = build.config.exports
    width = np.dtype(vocabulary(build).dtype).itemsize
    if format_name == "webdataset":
        assert exports.webdataset is not None
        return exports.webdataset.contexts_per_shard * exports.webdataset.context_tokens * width
    if format_name == "numpy":
        assert exports.numpy is not None
        return UNIT_BYTES if exports.numpy.layout == "bin" else exports.numpy.tokens_per_shard * width
    return _part_bytes(build, format_name)


def _part_bytes(build: Build, format_name: str) -> int:
    exports = build.config.exports
    if format_name == "megatron":
        assert exports.megatron is not None
        return int(exports.megatron.part_bytes)
    assert exports.nanoset is not None
    return int(exports.nanoset.file_bytes)
