"""A finished dataset, opened: what `dataset.json` states, and where its files are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import CorruptDataError, SourceError
from corpusmill.stages.description import DATASET
from corpusmill.stages.writeback import FOLDER as DOCUMENTS

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
        from corpusmill.datasets.records import read_records

        if export not in self.description["formats"]:
            raise SourceError(
                "the dataset has no such export",
                where=self.folder,
                expected=" or ".join(self.description["formats"]),
                got=export,
            )
        for file in self.files(export):
            if "slots" in file:  # a file of tokens, not an index or a manifest
                yield from read_records(self.folder / file["name"], self.vocabulary["dtype"])

    def documents(self) -> Iterator[dict[str, Any]]:
        """Each deduplicated document as it was delivered. SourceError if none are: writeback was false."""
        from corpusmill.documents.compression import open_decompressed

        files = self.files(DOCUMENTS)
        if not files:
            raise SourceError(
                "the dataset has no documents",
                where=self.folder,
                expected="a build with dedup.writeback: true",
                got=", ".join(self.description["formats"]),
            )
        for path in (self.folder / file["name"] for file in files):
            if path.suffix == ".parquet":
                from pyarrow.parquet import ParquetFile

                for batch in ParquetFile(path).iter_batches():
                    yield from batch.to_pylist()
            else:
                with path.open("rb") as raw, open_decompressed(raw, path.name) as lines:
                    yield from map(json.loads, lines)


def open_dataset(folder: str | Path) -> Dataset:
    """The dataset in a folder, `<destination>/<name>/<version>` or `.../latest`. SourceError if there is none,
    CorruptDataError if its description is no JSON.
    """
    folder = Path(folder).resolve()
    path = folder / DATASET
    if not path.is_file():
        raise SourceError(
            "this is not the folder of a finished dataset",
            where=folder,
            expected=f"{DATASET}, which a build writes last",
            got="none",
            next_step="name <destination>/<name>/<version>, or .../latest",
        )
    try:
        return Dataset(folder, json.loads(path.read_bytes()))
    except ValueError as error:
        raise CorruptDataError(
            "a dataset's description cannot be read",
            where=path,
            expected="JSON",
            got=error,
            next_step="fetch it again, repair the dataset from another copy (corpusmill repair), or build it again",
        ) from error


def dataset_above(path: Path) -> Dataset:
    """The dataset that a file lies in. SourceError if it lies in none."""
    for folder in path.resolve().parents:
        if (folder / DATASET).is_file():
            return open_dataset(folder)
    raise SourceError(
        "the file is not in a finished dataset, so its tokenizer is unknown",
        where=path,
        expected=f"{DATASET} in a folder above it",
    )
