"""A finished dataset, opened: what `dataset.json` states, and where its files are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.dedup.stages.writeback import FOLDER as DOCUMENTS
from corpusmill.errors import CorruptDataError, SourceError
from corpusmill.lazy import lazily
from corpusmill.upload.stages.description import DATASET, described

with lazily:
    from corpusmill.documents import compression, parquet
    from corpusmill.inspect.datasets import records


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
                yield from records.read_records(self.folder / file["name"], self.vocabulary["dtype"])

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
