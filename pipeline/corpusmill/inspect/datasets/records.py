"""Records of finished datasets by number: `open_dataset(folder)["megatron"][17]`.

    dataset["megatron"]          documents with their special tokens     dataset["webdataset"]     contexts
    dataset["nanoset"], ["olmo"] the same                                dataset["numpy/train"]    shards of the stream
    dataset["numpy/train"].windows(1025)      the same stream, cut every 1,025 tokens

Invariants: numbers count the records of an export's files in the order of the files' names, which is the shuffled
order. A file has the size, and an index the digest, that `dataset.json` states, before a record of it is read.

Price: a file is mapped when its first record is asked for. A tar is read through then, and takes 16 B of memory a
context. The files asked for last stay mapped.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError, SourceError, VerificationError
from corpusmill.export import olmo, parquet_reading
from corpusmill.export.formats import FORMATS
from corpusmill.export.megatron import open_part
from corpusmill.export.nanoset import open_file
from corpusmill.export.numpy_shards import open_shard
from corpusmill.export.tar import read_members
from corpusmill.export.webdataset import decode_context
from corpusmill.inspect.datasets.complete import BESIDE, require_file
from corpusmill.kernels.mapping import mapped
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.inspect import lineage
    from corpusmill.inspect.datasets import for_torch

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.inspect.datasets.dataset import Dataset
    from corpusmill.inspect.datasets.for_torch import MapStyle, Streamed
    from corpusmill.inspect.lineage.facts import RecordTrace

MOST_OPEN = 64
"""Files of an export that stay mapped: each is up to four descriptors, and a process may have 1,024."""
ENDINGS = (".bin", ".ds", ".npy", ".tar", ".parquet")
"""Of the files that hold records; others are indexes and manifests."""


class Records(Sequence[NDArray[Any]]):
    """Arrays of token ids, 1-D and in the dtype of their file, by number; `of_text`: of UTF-8. A slice is another such
    sequence.
    """

    of_text = False

    def __init__(self, dataset: Dataset, records: int) -> None:
        self._dataset = dataset
        self._numbers = range(records)

    @abstractmethod
    def _read(self, number: int) -> NDArray[Any]:
        """The ids of record `number` of all of them."""

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, number: slice) -> Self: ...
    def __getitem__(self, number: int | slice) -> NDArray[Any] | Self:
        """A record, or those of a slice, of which nothing is read yet. IndexError for a number that is not there,
        VerificationError for a damaged file.
        """
        if not isinstance(number, slice):
            return self._read(self._numbers[number])
        part = copy(self)
        part._numbers = self._numbers[number]
        return part

    def text(self, number: int) -> str:
        """A record, decoded by the dataset's tokenizer; bytes that are no UTF-8 as `\\xNN`.

        TokenizerError if the tokenizer is not on this machine and `open_dataset` got no configuration.
        """
        held = self[number]
        content = held.tobytes() if self.of_text else self._dataset.tokenizer.decode(held)
        return content.decode("utf-8", "backslashreplace")

    def torch(self) -> MapStyle:
        """A torch Dataset of int64 tensors, one a record, for samplers that choose numbers. ConfigError for text."""
        self._refuse_text()
        return for_torch.MapStyle(self)

    def torch_stream(self) -> Streamed:
        """A torch IterableDataset of int64 tensors, in order; each record goes to one rank and one worker. ConfigError
        for text.
        """
        self._refuse_text()
        return for_torch.Streamed(self)

    def _refuse_text(self) -> None:
        if self.of_text:
            raise ConfigError(
                "dataset.text_has_no_ids: records of text are UTF-8, which a model would take for token ids",
                where=self._dataset.folder,
                expected="an export of ids",
                next_step="read it with .text(number), or with load_dataset of the package datasets",
            )


class Export(Records):
    """The records of an export, or of its files below a folder such as `numpy/train`."""

    def __init__(self, dataset: Dataset, name: str) -> None:
        self._files = [file for file in dataset.files(name) if "slots" in file and file["name"].endswith(ENDINGS)]
        if not self._files:
            raise SourceError(
                "dataset.no_such_export: the dataset has no such export",
                where=dataset.folder,
                expected=" or ".join(dataset.description["formats"]),
                got=name,
            )
        self._dataset = dataset
        self._all = {file["name"]: file for file in dataset.description["files"]}
        self._opened: dict[int, OpenedFile] = {}
        self._ends = list(accumulate(self._records_of(place) for place in range(len(self._files))))
        self.of_text = FORMATS[name.partition("/")[0]].holds_text
        super().__init__(dataset, self._ends[-1])

    def _records_of(self, place: int) -> int:
        name = self._files[place]["name"]
        if name.startswith("numpy/"):
            return 1
        stated: int | None = self._files[place].get("records")
        return self._file(place).records if stated is None else stated

    def document(self, number: int) -> RecordTrace:
        """The source documents in a record: file, line, id, and their spans of tokens and of bytes.

        ConfigError unless `open_dataset` got the configuration, which says where the work folder is.
        """
        file, record = _place(self._ends, self._numbers[number])
        name = self._files[file]["name"]
        return lineage.trace(self._dataset.build, name.partition("/")[0], name, record)

    def windows(self, tokens: int) -> Windows:
        """The stream of the export's files, cut every `tokens` tokens; what is left at its end is in no window.

        ConfigError for contexts, which are cut already, for a slice, and for less than a token.
        """
        if self._numbers != range(self._ends[-1]):
            raise ConfigError("dataset.windows_of_slice: windows are cut from a whole export, not from a slice of it")
        return Windows(self._dataset, self, tokens)

    @property
    def sizes(self) -> list[int]:
        """Tokens of each file, special ones included."""
        return [file["slots"] for file in self._files]

    def tokens(self, file: int) -> NDArray[Any]:
        """All tokens of a file, mapped. ConfigError for a tar."""
        tokens = self._file(file).tokens
        if tokens is None:
            raise ConfigError(
                "dataset.windows_of_contexts: windows are cut from a stream of tokens, not from contexts or rows",
                where=self._files[file]["name"],
                expected="megatron, nanoset, olmo or numpy",
            )
        return tokens

    def _read(self, number: int) -> NDArray[Any]:
        file, record = _place(self._ends, number)
        return self._file(file).record(record)

    def _file(self, place: int) -> OpenedFile:
        if place not in self._opened:
            path, stated = self._dataset.folder / self._files[place]["name"], self._files[place].get("records")
            name = self._files[place]["name"]
            for companion in (name, *(name.removesuffix(".bin").removesuffix(".npy") + ending for ending in BESIDE)):
                if companion in self._all:
                    require_file(self._dataset.folder, self._all[companion])
            opened = open_records(path, self._dataset.vocabulary["dtype"])
            slots = self._files[place]["slots"]
            if opened.tokens is not None and len(opened.tokens) != slots:
                raise VerificationError(
                    "dataset.tokens_differ: a file has another number of tokens",
                    where=path,
                    expected=f"{slots:,}, as dataset.json states",
                    got=f"{len(opened.tokens):,}",
                )
            if stated is not None and opened.records != stated:
                raise VerificationError(
                    "dataset.records_differ: a file has another number of records",
                    where=path,
                    expected=f"{stated:,}, as dataset.json states",
                    got=f"{opened.records:,}",
                )
            if len(self._opened) == MOST_OPEN:
                del self._opened[next(iter(self._opened))]
            self._opened[place] = opened
        return self._opened[place]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": {}}  # another process maps the files itself


class Windows(Records):
    """Stretches of `tokens` tokens of an export's stream, one behind the other."""

    def __init__(self, dataset: Dataset, export: Export, tokens: int) -> None:
        if tokens < 1:
            raise ConfigError("dataset.window_tokens: a window has at least one token", got=tokens)
        export.tokens(0)  # refuses tars
        self._export, self._tokens, self._ends = export, tokens, list(accumulate(export.sizes))
        super().__init__(dataset, self._ends[-1] // tokens)

    def _read(self, number: int) -> NDArray[Any]:
        pieces, wanted = [], self._tokens
        file, first = _place(self._ends, number * self._tokens)
        while wanted:
            pieces.append(self._export.tokens(file)[first : first + wanted])
            wanted -= len(pieces[-1])
            file, first = file + 1, 0
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class OpenedFile(NamedTuple):
    """How many records a file of an export has, a function that reads one, and its tokens, unless it is a tar.
    `of_text`: records are UTF-8.

    A record is a document of a `.bin`, a `.ds` or a `.npy` beside its `.csv.gz`, a context of a `.tar`, a row of a
    `.parquet`, all of another `.npy` or of a `.bin` without `.idx`.
    """

    records: int
    record: Callable[[int], NDArray[Any]]
    tokens: NDArray[Any] | None
    is_stream: bool = False
    of_text: bool = False


def open_records(path: Path, dtype: str) -> OpenedFile:
    """Map a file of an export whose tokens are of `dtype`.

    SourceError for a file of another kind, VerificationError for a damaged file or index.
    """
    if path.suffix == ".tar":
        return _open_tar(path)
    if path.suffix == ".parquet":
        of_text = path.parent.name == "parquet_text"
        rows = parquet_reading.open_file(path, "text" if of_text else "input_ids")
        return OpenedFile(len(rows), rows.row, None, of_text=of_text)
    width = np.dtype(dtype).newbyteorder("<")
    if path.suffix == ".npy" and olmo.beside(path, ".csv.gz").exists():
        raw = olmo.open_file(path, width)
        return OpenedFile(len(raw), raw.document, raw.tokens)
    if path.suffix == ".npy" or (path.suffix == ".bin" and not path.with_suffix(".idx").exists()):
        stream = open_shard(path, width)
        return OpenedFile(1, lambda _: stream, stream, is_stream=True)
    if path.suffix in {".bin", ".idx"}:
        part = open_part(path.with_suffix(""))
        return OpenedFile(part.documents, part.document, part.tokens)
    if path.suffix == ".ds":
        file = open_file(path)
        return OpenedFile(len(file), file.document, file.tokens)
    raise SourceError(
        "peek.unknown_kind: peek cannot read this kind of file",
        where=path,
        expected="a .tar, .npy, .bin, .ds or .parquet file of a finished dataset",
        got=path.suffix or "no extension",
    )


def _open_tar(path: Path) -> OpenedFile:
    places = np.array([(at, len(body)) for _, at, body in read_members(path)], np.int64).reshape(-1, 2)
    content = mapped(path, np.uint8, path.stat().st_size)

    def context(number: int) -> NDArray[Any]:
        at, size = places[number].tolist()
        return decode_context(path, at, content[at : at + size].tobytes())

    return OpenedFile(len(places), context, None)


def _place(ends: list[int], number: int) -> tuple[int, int]:
    """Which of the intervals that end at `ends` a number lies in, and how far from its beginning."""
    place = bisect_right(ends, number)
    return place, number - (ends[place - 1] if place else 0)
