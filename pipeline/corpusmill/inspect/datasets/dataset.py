"""A finished dataset, opened: what `dataset.json` states, where its files are, and whether they are complete.

A folder stands for all of its files: files are checked against `dataset.json` before they are merged, shuffled, mixed
or shown. Otherwise a file that was lost, or did not arrive whole, is missing from the result and nobody notices.
Indexes are digested, too: the index of the same documents in another order adds up to the same tokens, so no other
check can tell them apart. Files outside of finished datasets are not checked here. Price: a sha256 of the indexes,
13 ns a document for Megatron and 5 for Nanoset.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.dedup.stages.writeback import FOLDER as DOCUMENTS
from corpusmill.errors import ConfigError, CorruptDataError, SourceError, VerificationError
from corpusmill.lazy import lazily
from corpusmill.upload.stages.description import DATASET, described

with lazily:
    import numpy as np

    from corpusmill.documents import compression, parquet
    from corpusmill.export import megatron, nanoset, numpy_shards, webdataset

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """One version of a dataset in its folder; `description` is the content of `dataset.json`."""

    folder: Path
    description: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.description["name"])

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The tokenizer: its name, sha256, number of ids, special ids, and the dtype of a token."""
        return dict(self.description["vocabulary"])

    def files(self, kind: str) -> list[dict[str, Any]]:
        """The entry of each file of an export, or of `documents`: name, size_bytes, sha256, records, slots."""
        return [file for file in self.description["files"] if file["name"].startswith(f"{kind}/")]

    def records(self, export: str) -> Iterator[NDArray[Any]]:
        """The token ids of each record of `webdataset`, `megatron` or `nanoset`, in order; of `numpy`, of each shard.

        SourceError if the dataset has no such export, VerificationError for a damaged file.
        """
        if export not in self.description["formats"]:
            raise SourceError(
                "dataset.no_such_export: the dataset has no such export",
                where=self.folder,
                expected=" or ".join(self.description["formats"]),
                got=export,
            )
        for file in self.files(export):
            if "slots" in file:  # a file of tokens, not an index or a manifest
                yield from read_records(self.folder / file["name"], self.vocabulary["dtype"])

    def documents(self) -> Iterator[dict[str, Any]]:
        """Each deduplicated document as it was delivered. SourceError if none are (writeback was false),
        CorruptDataError for a damaged file.
        """
        files = self.files(DOCUMENTS)
        if not files:
            raise SourceError(
                "dataset.no_documents: the dataset has no documents",
                where=self.folder,
                expected="a build with dedup.writeback: true",
                got=", ".join(self.description["formats"]),
            )
        for file in files:
            yield from _documents_of(self.folder / file["name"], file["name"])


def _documents_of(path: Path, name: str) -> Iterator[dict[str, Any]]:

    with path.open("rb") as raw:
        if path.suffix == ".parquet":
            for batch in parquet.read_batches(parquet.open_parquet(raw, name), name):
                yield from batch.to_pylist()
            return
        with compression.open_decompressed(raw, name) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise CorruptDataError(
                        "dataset.documents_damaged: a delivered file of documents is damaged",
                        where=f"{name}, line {number:,}",
                        expected="a JSON object",
                        got=f"{len(line):,} bytes of something else",
                        next_step="`corpusmill verify` finds what else is damaged; repair it from another destination",
                    ) from error


def open_stream(path: Path, dtype: str) -> NDArray[Any] | None:
    """The tokens of a `.npy`, or of a `.bin` of `dtype` without its `.idx`, mapped. None for a file of records."""
    if path.suffix == ".npy":
        return numpy_shards.open_shard(path)
    if path.suffix == ".bin" and not path.with_suffix(".idx").exists():
        return numpy_shards.open_shard(path, np.dtype(dtype))
    return None


def open_documents(path: Path) -> tuple[int, Callable[[int], NDArray[Any]]]:
    """(documents in a `.bin` or `.ds`, function that gives the ids of one). SourceError for another file."""
    if path.suffix in {".bin", ".idx"}:
        part = megatron.open_part(path.with_suffix(""))
        return part.documents, part.document
    if path.suffix == ".ds":
        file = nanoset.open_file(path)
        return len(file), file.document
    raise SourceError(
        "peek.unknown_kind: peek cannot read this kind of file",
        where=path,
        expected="a .tar, .npy, .bin or .ds file of a finished dataset",
        got=path.suffix or "no extension",
    )


def read_records(path: Path, dtype: str) -> Iterator[NDArray[Any]]:
    """The ids of each record, in order: a context of a `.tar`, a document of a `.bin` or `.ds`, a whole stream."""
    if path.suffix == ".tar":
        for _, context in webdataset.read_shard(path):
            yield context
    elif (stream := open_stream(path, dtype)) is not None:
        yield stream
    else:
        count, document = open_documents(path)
        for number in range(count):
            yield document(number)


def open_dataset(folder: str | Path) -> Dataset:
    """The dataset in a folder, `<destination>/<name>/<version>` or `.../latest`.

    SourceError if there is none, CorruptDataError if its description is damaged.
    """
    folder = Path(folder).resolve()
    path = folder / DATASET
    if not path.is_file():
        raise SourceError(
            "dataset.not_finished: this is not the folder of a finished dataset",
            where=folder,
            expected=f"{DATASET}, which a build writes last",
            got="none",
            next_step="name <destination>/<name>/<version>, or .../latest",
        )
    return Dataset(folder, described(path.read_bytes(), str(folder)))


def dataset_above(path: Path) -> Dataset:
    """The dataset that a file lies in. SourceError if it lies in none."""
    for folder in path.resolve().parents:
        if (folder / DATASET).is_file():
            return open_dataset(folder)
    raise SourceError(
        "dataset.file_outside: the file is not in a finished dataset, so its tokenizer is unknown",
        where=path,
        expected=f"{DATASET} in a folder above it",
    )


BESIDE = ("", ".bin", ".idx", ".index", ".metadata", ".loss")
"""Endings of the files that a Megatron prefix, or a `.ds` file, stands for."""
INDEXES = (".idx", ".ds.index")


def require_complete(inputs: Iterable[Path], endings: tuple[str, ...] = ("",)) -> None:
    """VerificationError if an input lies in a finished dataset and a file of it is missing or has another size, or an
    index other bytes.

    An input is a folder, of which the files below it with one of `endings` count, a file, or a Megatron prefix.
    """
    for dataset, name, _ in _in_datasets(inputs):
        named = {name + ending for ending in BESIDE}
        for file in dataset.description["files"]:
            below = name == "." or file["name"].startswith(f"{name}/")
            if file["name"] in named or (below and file["name"].endswith(endings)):
                _require_file(dataset.folder / file["name"], file["size_bytes"], file["sha256"])


def require_one_vocabulary(paths: Iterable[Path]) -> None:
    """ConfigError if files lie in finished datasets whose vocabularies differ.

    Vocabularies of one size have one token width, and neither Megatron's index nor a tar names its tokenizer.
    """
    _require_one(
        "merge.vocabularies_differ: parts have different vocabularies",
        paths,
        _vocabulary,
        "take only parts of one vocabulary",
    )


def require_one_length(tars: Iterable[Path]) -> None:
    """ConfigError if tars lie in finished datasets whose contexts have different numbers of tokens."""
    what = "reshuffle.lengths_differ: tars hold contexts of different lengths"
    _require_one(what, tars, _context, "shuffle each length separately: a loader needs one")


def _require_one(what: str, paths: Iterable[Path], stated: Callable[[Dataset], str], next_step: str) -> None:
    first: tuple[Path, str] | None = None
    for dataset, _, path in _in_datasets(paths):
        words = stated(dataset)
        first = first or (path, words)
        if words != first[1]:
            raise ConfigError(what, where=path, expected=f"{first[1]}, as {first[0]}", got=words, next_step=next_step)


def _vocabulary(dataset: Dataset) -> str:
    return ", ".join(f"{key} {value}" for key, value in dataset.vocabulary.items())


def _context(dataset: Dataset) -> str:
    totals = dataset.description["formats"].get("webdataset", {})
    records, slots = totals.get("records", 0), totals.get("slots", 0)
    return f"{slots // records:,} tokens" if records else "no contexts"


def _in_datasets(paths: Iterable[Path]) -> Iterator[tuple[Dataset, str, Path]]:
    """(dataset, name in it, path) of each path that is, or lies in, a finished dataset; each is opened once.

    CorruptDataError for a damaged description.
    """
    opened: dict[Path, Dataset] = {}
    for path in paths:
        # As it is named first: its files, or `latest`, may be links to elsewhere.
        for place in (Path(os.path.abspath(path)), path.resolve()):  # noqa: PTH100 (keeps links)
            folder = next((folder for folder in (place, *place.parents) if (folder / DATASET).is_file()), None)
            if folder is not None:
                if folder not in opened and _is_ours(folder / DATASET):
                    opened[folder] = open_dataset(folder)
                if folder in opened:
                    yield opened[folder], place.relative_to(folder).as_posix(), path
                break


def _is_ours(path: Path) -> bool:
    """Whether a dataset.json is that of a dataset, perhaps damaged; another program's is JSON of another form."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return True
    return isinstance(content, dict) and {"vocabulary", "formats", "files"} <= content.keys()


def _require_file(path: Path, size_bytes: int, sha256: str) -> None:
    got_bytes = path.stat().st_size if path.is_file() else None
    if got_bytes != size_bytes:
        what = "is missing" if got_bytes is None else "has another size"
        raise _differs(path, what, f"{size_bytes:,} bytes", "no file" if got_bytes is None else f"{got_bytes:,} bytes")
    if path.name.endswith(INDEXES):
        with path.open("rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != sha256:
            raise _differs(path, "has other bytes", f"sha256 {sha256}", f"sha256 {got}")


def _differs(path: Path, what: str, expected: str, got: str) -> VerificationError:
    return VerificationError(
        f"dataset.file_damaged: a file of a finished dataset {what}",
        where=path,
        expected=f"{expected}, as {DATASET} states",
        got=got,
        next_step="fetch it again, repair the dataset from another copy (corpusmill repair), or build it again",
    )
