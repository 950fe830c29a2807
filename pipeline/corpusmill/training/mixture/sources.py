"""The token files of a finished dataset, as a trainer reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpusmill.errors import SourceError
from corpusmill.export.megatron import open_part
from corpusmill.export.nanoset import open_file
from corpusmill.inspect.datasets.dataset import Dataset, open_dataset, require_complete


@dataclass(frozen=True)
class TokenFile:
    """One file of tokens: its path, documents, tokens with special ones, and Megatron's sequences (elsewhere 0)."""

    path: Path
    documents: int
    tokens: int
    sequences: int = 0

    def windows(self, sequence_tokens: int) -> int:
        """Samples that datatrove's reader makes of a `.ds`: windows of sequence + 1 tokens, without the tail."""
        return self.tokens // (sequence_tokens + 1)


@dataclass(frozen=True)
class Source:
    """A finished dataset: its folder, its vocabulary, and its token files by format, in order of name."""

    folder: Path
    name: str
    vocabulary: dict[str, Any]
    nanoset: tuple[TokenFile, ...]
    megatron: tuple[TokenFile, ...]

    @property
    def tokens(self) -> int:
        """Tokens of one export, special ones included."""
        return sum(file.tokens for file in self.nanoset or self.megatron)


def open_source(folder: Path) -> Source:
    """Read a dataset's own manifest. SourceError if the folder holds none, or neither Nanoset nor Megatron files,
    VerificationError if one of these is missing or has another size, or its index is damaged.
    """
    dataset = open_dataset(folder)
    require_complete([dataset.folder / "nanoset", dataset.folder / "megatron"])
    folder, description = dataset.folder, dataset.description
    nanoset = tuple(_file(path) for path in _paths(dataset, "nanoset", ".ds"))
    # Only those in megatron/ are parts: numpy's layout for nanoGPT has .bin files, too.
    megatron = tuple(_part(path) for path in _paths(dataset, "megatron", ".bin"))
    if not nanoset and not megatron:
        raise SourceError(
            "mixture.no_mixable_export: the dataset has no export that can be mixed",
            where=folder,
            expected="nanoset or megatron files",
            got=", ".join(description["formats"]) or "no export",
        )
    return Source(folder, description["name"], description["vocabulary"], nanoset, megatron)


def _paths(dataset: Dataset, export: str, ending: str) -> list[Path]:
    return [dataset.folder / file["name"] for file in dataset.files(export) if file["name"].endswith(ending)]


def _file(path: Path) -> TokenFile:
    file = open_file(path)
    return TokenFile(path, len(file), file.total_tokens)


def _part(path: Path) -> TokenFile:
    part = open_part(path.with_suffix(""))
    return TokenFile(path, part.documents, part.tokens.size, len(part))
