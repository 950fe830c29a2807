"""What a format is, and what formats share: the records of an output in batches, the content sums of what was written
(kernels/content.py) by cell, for the balance, and by file, for anyone.

A writer passes the token sums of its records, in order, computed from the arrays that it writes. They are weighted
twice:

* by cell and place in the cell, as gather weighted them: over all files of a format, a cell's slices must hold what was
gathered. An output that was reused at other offsets does not balance.
* by place in the file: `content` in dataset.json, which anyone can recompute from the file alone (docs/guarantees.md).

Special tokens around documents are left out of both, because they depend on framing. All slots of a context count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import UNSET, UnsetType

from corpusmill.config import FramingConfig
from corpusmill.engine.work import Identity, Input
from corpusmill.errors import TokenizerError
from corpusmill.kernels import advance
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.lazy import lazily
from corpusmill.shuffle.stages.scatter import split_unit
from corpusmill.tokens.stages.tokenize import Vocabulary

with lazily:
    import numpy as np

    from corpusmill.export import framing
    from corpusmill.kernels import content_kernels, slices
    from corpusmill.tokens import token_shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.framing import Framing
    from corpusmill.kernels.content_kernels import Words


BATCH_TOKENS = 1 << 19


class Cells(dict[int, Input]):
    """The gathered cells that a unit reads, by number; `beside`: those of the kind of record beside its own."""

    def __init__(self, cells: Iterable[Input], beside: Iterable[Input] = ()) -> None:
        super().__init__({split_unit(step.unit)[1]: step for step in cells})
        self.beside = {split_unit(step.unit)[1]: step for step in beside}


class CellSlice(NamedTuple):
    """The part [first, last) of one cell's positions."""

    cell: int
    first: int
    last: int


class Settings(Identity, frozen=True, kw_only=True):
    """What a unit writes: for each format number, name and slices of its outputs (see Output), and the ids in them.

    `framing` of whole documents, unless it is the default; `loss`: Nanoset files say which tokens are trained on;
    `layout`: of shards of the stream behind a header; `offsets`: OLMo-core's files have a third beside them; `rows`:
    columns and row groups of parquet; `bos_index`: AutoModel's shards have their documents' beginnings beside them.
    """

    outputs: dict[str, list[tuple[int, str, list[CellSlice]]]]
    vocabulary: Vocabulary
    framing: dict[str, Any] | UnsetType = UNSET
    loss: bool | UnsetType = UNSET
    layout: str | UnsetType = UNSET
    offsets: bool | UnsetType = UNSET
    rows: dict[str, Any] | UnsetType = UNSET
    bos_index: bool | UnsetType = UNSET
    libraries: dict[str, str]

    def framing_of_documents(self) -> Framing:
        """The special tokens around documents."""
        return framing_of(FramingConfig.model_validate(self.framing or {}), self.vocabulary)


@dataclass(frozen=True)
class Output:
    """One output file (or file set): its number, its path below the format's folder, its slices.

    `slices` in order, in positions of the cell (see layout.OutputPlan).
    """

    number: int
    name: str
    slices: list[CellSlice]


@dataclass(frozen=True)
class Readable:
    """What a reader needs besides the files: the framing of documents, and the dtype of raw files."""

    framing: FramingConfig
    dtype: np.dtype[Any]


class Wanted(NamedTuple):
    """A record of a file: its number, its positions [first, last), and `shard-ordinal`, where it comes from."""

    record: int
    first: int
    last: int
    origin: str


class Format(ABC):
    """A training format.

    `name`: of its section in the configuration, and of its folder; `stream`: its positions are tokens of the stream
    with an EOT before each document, else they are records; `framed`: these are documents with special tokens;
    `data_suffix`: what the file with the tokens of an output adds to its name; `libraries`: those whose versions can
    change its bytes; `holds_text`: its records are UTF-8, and slots are bytes.
    """

    name: ClassVar[str]
    stream: ClassVar[bool] = False
    framed: ClassVar[bool] = False
    data_suffix: ClassVar[str] = ""
    holds_text: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def plan(self, build: Build, total: int) -> tuple[list[str], list[int]]:
        """The names of its outputs, and the bounds between them, of `total` positions."""

    @abstractmethod
    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        """Bytes of the ids of a full output."""

    def refuse(self, _exports: ExportsConfig, _vocabulary_size: int) -> None:  # noqa: B027 (most refuse none)
        """Raise ConfigError for a vocabulary that the format's readers would misread."""

    def held_out(self, _exports: ExportsConfig, _documents: int, _tokens: int) -> float:
        """The share of its positions that is held out of a dataset of about so many documents and tokens."""
        return 0.0

    def doubt(self, _exports: ExportsConfig, _documents: int, _tokens: int) -> str:
        """What will not be as asked in a dataset of about so many documents and tokens; "" if nothing."""
        return ""

    def shared_bytes(self, _exports: ExportsConfig) -> int | None:
        """The size at which files of whole documents are cut: those cut at one size have the same tokens. None: the
        format shares none.
        """
        return None

    def link(self, _tokens: Path, _cells: Cells, _output: Output, _folder: Path, _settings: Settings) -> dict[str, int]:
        """As `write`, but the token file is a hard link of another format's, which has the same records."""
        raise NotImplementedError

    def file_names(self, name: str, exports: ExportsConfig) -> tuple[str, ...]:
        """The names of the files of an output."""
        return tuple(name + suffix for suffix in self.suffixes(exports))

    def stated(self, _exports: ExportsConfig, _framing: dict[str, Any]) -> dict[str, Any]:
        """What `dataset.json` states of its files that their names do not say."""
        return {}

    def suffixes(self, _exports: ExportsConfig) -> tuple[str, ...]:
        """What its files add to the name of their output, a suffix each."""
        return ("",)

    @abstractmethod
    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        """Write an output below the format's folder, adding its content to `tally`; returns records and slots."""

    @abstractmethod
    def verify(self, config: DatasetConfig, path: Path, positions: int, ids: Vocabulary) -> dict[str, int]:
        """Check every byte of an output against the format; returns records and slots as they were read.

        `path` is the output's, without the suffixes of its files. VerificationError by file and byte.
        """

    def slots(self, path: Path, about: Readable) -> int:
        """Tokens of a data file, special ones included; of raw ids, what its size says."""
        return path.stat().st_size // about.dtype.itemsize

    @abstractmethod
    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        """(tokens, lengths) of its records without special tokens, block by block, read without the writer's code."""

    @abstractmethod
    def records(self, path: Path, wanted: Sequence[Wanted], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        """The ids of some records of an output, in ascending order, as they are in the file."""

    def wrong_columns(
        self,
        _path: Path,
        _exports: ExportsConfig,
        _wanted: Sequence[Wanted],
        _ids: Sequence[NDArray[Any]],
        _pieces: Sequence[NDArray[Any]],
    ) -> Iterator[str]:
        """For each of some records the first column beside its ids that does not follow from them and from the sizes of
        its pieces, or "". Nothing of a format without such columns.
        """
        return iter(())


def record_batches(cells: Cells, output: Output) -> Iterator[tuple[Any, Any, Any, Any]]:
    """(tokens, ends, shards, ordinals) of an output's records, about BATCH_TOKENS at a time."""
    for number, first, last in output.slices:
        cell = token_shard.open_record_shard(cells[number].folder())
        for begin, end in slices.runs(cell.ends, BATCH_TOKENS, first, last):
            tokens, ends = cell.slice(begin, end)
            yield tokens, ends, cell.shards[begin:end], cell.ordinals[begin:end]
            advance.note_done(end - begin)


def framing_of(wanted: FramingConfig, ids: Vocabulary) -> Framing:
    """The special tokens around whole documents; TokenizerError for BOS where the tokenizer has none."""
    if wanted.bos and ids.bos_id is None:
        raise TokenizerError(
            f"tokenizer.no_bos: the tokenizer {ids.name} has no BOS token", next_step="name it as tokenizer.bos"
        )
    return framing.Framing(
        ids.eot_id if wanted.eod else None, ids.bos_id if wanted.bos else None, wanted.empty_documents
    )


class WrittenContent:
    """Consumes the sums of consecutive records of some stretches (cell, first, last) of cells."""

    def __init__(self, stretches: Sequence[tuple[int, int, int]]) -> None:
        self._stretches = stretches
        self._ends = list(accumulate(last - first for _, first, last in stretches))  # in records
        self._records = 0
        self.file = NOTHING
        self.cells: dict[int, ContentSum] = {}

    def add(self, sums: Words) -> None:
        """The token sums uint64 (2, n) of the next n records. IndexError for more records than the stretches hold."""
        first, last = self._records, self._records + sums.shape[1]
        if last > max(self._ends, default=0):
            raise IndexError(f"{last:,} records were written of {max(self._ends, default=0):,}")
        self.file += content_kernels.placed_sum(sums, 0, np.arange(first, last, dtype=np.uint64))
        while self._records < last:
            number = bisect_right(self._ends, self._records)
            cell, _, behind = self._stretches[number]
            stop, offset = min(last, self._ends[number]), behind - self._ends[number]
            places = np.arange(self._records + offset, stop + offset, dtype=np.uint64)
            self.add_to_cell(cell, sums[:, self._records - first : stop - first], places)
            self._records = stop

    def add_to_cell(self, cell: int, sums: Words, places: NDArray[np.uint64]) -> None:
        """The token sums of records, or of pieces of them, by their places in one cell."""
        more = content_kernels.placed_sum(sums, cell, places)
        self.cells[cell] = self.cells.get(cell, NOTHING) + more

    def to_json(self) -> dict[str, object]:
        """`content` of the file, and `cells`: [cell, content] of each cell with records in it."""
        return {"content": str(self.file), "cells": [[cell, str(part)] for cell, part in sorted(self.cells.items())]}
