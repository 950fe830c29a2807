"""A finished dataset, opened: what `dataset.json` states, and where its files are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.dedup.stages.writeback import FOLDER as DOCUMENTS
from corpusmill.errors import (
    ConfigError,
    CorruptDataError,
    MissingSourceError,
    PermanentError,
    SourceError,
    TokenizerError,
)
from corpusmill.lazy import lazily
from corpusmill.upload.stages.description import DATASET, described

with lazily:
    from corpusmill.builds import graph, plan
    from corpusmill.documents import arrow, compression, parquet
    from corpusmill.inspect.datasets import records
    from corpusmill.tokens import tokenizer
    from corpusmill.tokens.stages import tokenize
    from corpusmill.upload.stages import manifest


if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig
    from corpusmill.engine.running import RunnableBuild
    from corpusmill.inspect.datasets.records import Export
    from corpusmill.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Dataset:
    """One version of a dataset in its folder; `description` is the content of `dataset.json`.

    `config`, if it was given, finds the tokenizer and the work folder, which the dataset does not contain.
    """

    folder: Path
    description: dict[str, Any]
    config: DatasetConfig | None = None

    @property
    def name(self) -> str:
        return str(self.description["name"])

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The tokenizer: its name, sha256, number of ids, special ids, and the dtype of a token."""
        return dict(self.description["vocabulary"])

    def __getstate__(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "description": self.description,
            "config": self.config,
        }  # nothing that was loaded

    def files(self, kind: str) -> list[dict[str, Any]]:
        """The entry of each file of an export, or of `documents`: name, size_bytes, sha256, records, slots."""
        return [file for file in self.description["files"] if file["name"].startswith(f"{kind}/")]

    def __getitem__(self, export: str) -> Export:
        """The records of an export by number (records.py), or of a folder of it, such as `numpy/train`.

        SourceError if the dataset has no such export.
        """
        return records.Export(self, export)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of its vocabulary, in the reference library.

        TokenizerError if it cannot be loaded by the name that the dataset states, or if `config` names another.
        """
        stated = self.vocabulary
        if self.config is None:
            revision = stated.get("revision") or None
            return tokenizer.load_tokenizer(
                stated["name"], sha256=stated["sha256"], revision=revision, engine="reference"
            )
        loaded = tokenize.configured_tokenizer(self.config, engine="reference")
        if loaded.sha256 != stated["sha256"]:
            raise TokenizerError(
                "peek.other_tokenizer: the configuration names another tokenizer than the dataset's",
                where=self.folder,
                expected=f"{stated['name']}, sha256 {stated['sha256']}",
                got=f"{loaded.name}, sha256 {loaded.sha256}",
                next_step="give the configuration that built this dataset",
            )
        return loaded

    @cached_property
    def build(self) -> RunnableBuild:
        """The build of `config`. ConfigError if none was given, PermanentError if it delivered another version."""
        if self.config is None:
            raise ConfigError(
                "dataset.no_configuration: only the work folder knows the source of a record",
                where=self.folder,
                next_step="open_dataset(folder, configuration) with the configuration that built it",
            )
        build = graph.open_build(plan.plan_dataset(self.config))
        ours = {(file["name"], file["sha256"]) for file in self.description["files"]}
        if not ours <= {(name, sha256) for name, _, sha256, _ in manifest.dataset_files(build)}:
            raise PermanentError(
                "dataset.other_version: the configuration built another version of this dataset",
                where=self.folder,
                got=manifest.dataset_version(build),
                next_step="build it again with the configuration and sources that this version had",
            )
        return build

    def records(self, export: str) -> Iterator[NDArray[Any]]:
        """The token ids of each record of an export, in order; of `numpy`, of each shard. Raises as its items do."""
        yield from self[export]

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
        if compression.is_parquet(name):
            for batch in parquet.read_batches(parquet.open_parquet(raw, name), name):
                yield from batch.to_pylist()
            return
        if compression.is_table(name):
            for batch in arrow.ArrowTable(raw, name).batches():
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


def open_dataset(folder: str | Path, config: DatasetConfig | None = None) -> Dataset:
    """The dataset in a folder, `<destination>/<name>/<version>` or `.../latest`; see Dataset for `config`.

    SourceError if there is none, CorruptDataError if its description is damaged.
    """
    folder = Path(folder).resolve()
    path = folder / DATASET
    if not path.is_file():
        raise MissingSourceError(
            "dataset.not_finished: this is not the folder of a finished dataset",
            where=folder,
            expected=f"{DATASET}, which a build writes last",
            got="none",
            next_step="name <destination>/<name>/<version>, or .../latest",
        )
    return Dataset(folder, described(path.read_bytes(), str(folder)), config)


def dataset_above(path: Path, config: DatasetConfig | None = None) -> Dataset:
    """The dataset that a file lies in. SourceError if it lies in none."""
    for folder in path.resolve().parents:
        if (folder / DATASET).is_file():
            return open_dataset(folder, config)
    raise MissingSourceError(
        "dataset.file_outside: the file is not in a finished dataset, so its tokenizer is unknown",
        where=path,
        expected=f"{DATASET} in a folder above it",
        got=None if path.exists() else "no such file",
    )
