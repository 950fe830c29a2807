"""What a format is, and what its writers share: the records of an output, in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import UNSET, UnsetType

from corpusmill.config import FramingConfig
from corpusmill.engine.work import Identity, Input
from corpusmill.errors import TokenizerError
from corpusmill.kernels import advance
from corpusmill.lazy import lazily
from corpusmill.tokens.stages.tokenize import Vocabulary

with lazily:
    from corpusmill.export import framing
    from corpusmill.kernels import slices
    from corpusmill.tokens import token_shard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.content import WrittenContent
    from corpusmill.export.framing import Framing

BATCH_TOKENS = 1 << 19

Cells = dict[int, Input]
"""The gathered cells that a unit reads, by number."""


class Settings(Identity, frozen=True, kw_only=True):
    """What a unit writes: for each format number, name and slices of its outputs (see Output), and the ids in them.

    `framing` of whole documents, unless it is the default; `loss`: Nanoset files say which tokens are trained on.
    """

    outputs: dict[str, list[tuple[int, str, list[tuple[int, int, int]]]]]
    vocabulary: Vocabulary
    framing: dict[str, Any] | UnsetType = UNSET
    loss: bool | UnsetType = UNSET
    libraries: dict[str, str]

    def framing_of_documents(self) -> Framing:
        """The special tokens around documents."""
        return framing_of(FramingConfig.model_validate(self.framing or {}), self.vocabulary)


@dataclass(frozen=True)
class Output:
    """One output file (or file set): its number, its path below the format's folder, its slices.

    `slices`: (cell, first, last) in order, in positions of the cell (see layout.OutputPlan).
    """

    number: int
    name: str
    slices: list[tuple[int, int, int]]


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
    with an EOT before each document, else they are records; `libraries`: those whose versions can change its bytes.
    """

    name: ClassVar[str]
    stream: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def plan(self, build: Build, total: int) -> tuple[list[str], list[int]]:
        """The names of its outputs, and the bounds between them, of `total` positions."""

    @abstractmethod
    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        """Bytes of the ids of a full output."""

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

    @abstractmethod
    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        """(tokens, lengths) of its records without special tokens, block by block, read without the writer's code."""

    @abstractmethod
    def records(self, path: Path, wanted: Sequence[Wanted], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        """The ids of some records of an output, in ascending order, as they are in the file."""


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
