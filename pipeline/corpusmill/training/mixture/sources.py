"""The token files of a finished dataset as a trainer reads them, the weights of several, and which tokens train.

Weights are as given, or from the sources' sizes. Megatron trains on part of a source, for each of two ways to pass it
the data:

    megatron_data_path.txt   with --split A,B,C: of every file the first A / (A + B + C) of its sequences train
    megatron_splits.json     of every source the last files are for validation and test, in about that proportion

Source: Megatron-LM core/datasets/blended_megatron_dataset_builder.py (_build_megatron_dataset_splits) and
blended_megatron_dataset_config.py (parse_and_normalize_split).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError, SourceError
from corpusmill.export.megatron import open_part
from corpusmill.export.nanoset import open_file
from corpusmill.inspect.datasets.complete import require_complete
from corpusmill.inspect.datasets.dataset import Dataset, open_dataset


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


def normalised(weights: Sequence[float], sources: Sequence[object] = ()) -> NDArray[np.float64]:
    """Weights that sum to 1; ConfigError unless all are finite and positive, as both trainers require, and close enough
    together for float64. `sources`: their names, for the error.
    """
    for number, weight in enumerate(weights):
        if not (math.isfinite(weight) and weight > 0):
            raise ConfigError(
                "mixture.weight_not_positive: a weight must be a positive number",
                where=sources[number] if sources else f"source {number}",
                expected="more than 0",
                got=weight,
                next_step="leave out sources that should not be drawn",
            )
    largest = max(weights, default=1.0)
    if largest * len(weights) > sys.float_info.max or min(weights, default=1.0) < largest * sys.float_info.epsilon**2:
        raise ConfigError(
            "mixture.weights_not_comparable: the weights are too large, or too far apart, to compare",
            expected="numbers such as 0.7 and 0.3",
            got=f"{min(weights)} to {largest}",
        )
    total = math.fsum(weights)
    return np.array([weight / total for weight in weights], np.float64)


def by_size(tokens: Sequence[int], alpha: float) -> NDArray[np.float64]:
    """Weights proportional to p^alpha, p being a source's share of all tokens: 1 keeps sizes, 0 makes all equal.

    Source: multilingual sampling as in Conneau and Lample 2019 (XLM), BigScience data/sampling_probs. ConfigError for
    an alpha outside 0 to 1 or a source without tokens.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError("mixture.alpha: alpha must be from 0 to 1", expected="0 (uniform) to 1 (by size)", got=alpha)
    total = sum(tokens)
    return normalised([(count / total) ** alpha if count else 0.0 for count in tokens])


Split = tuple[float, float, float]
Name = Literal["train", "valid", "test"]
NAMES: tuple[Name, ...] = ("train", "valid", "test")
DEFAULT_SPLIT: Split = (969, 30, 1)  # Megatron's own default


@dataclass(frozen=True)
class BlendPart:
    """One prefix of a blend: its file, its weight as it is written, and its tokens that belong to the split."""

    file: TokenFile
    weight: float
    tokens: int

    @property
    def prefix(self) -> str:
        return str(self.file.path.with_suffix(""))


def parse_split(text: str) -> Split:
    """ "969,30,1" for training, validation and test; missing ones are 0. ConfigError for anything else."""
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not (1 <= len(numbers) <= 3 and all(0 <= number < 1e9 for number in numbers) and numbers[0] > 0):
        raise ConfigError(
            "mixture.not_a_split: this is not a split",
            where="--split",
            expected="up to three numbers for training, validation and test, such as 969,30,1 or 100,0,0",
            got=text,
        )
    train, valid, test = (*numbers, 0.0, 0.0)[:3]
    return train, valid, test


def split_in_words(split: Split) -> str:
    """A split in the form that --split takes."""
    return ",".join(f"{share:g}" for share in split)


def parts_by_sequences(source: Source, weight: float, split: Split) -> list[BlendPart]:
    """The source's files for --data-path; `tokens` are those of the sequences that train.

    The source's weight is divided by the files' tokens. ConfigError for a file without training sequences.
    """
    everything = sum(file.tokens for file in source.megatron)
    return [BlendPart(file, weight * file.tokens / everything, _train_tokens(file, split)) for file in source.megatron]


def _train_tokens(file: TokenFile, split: Split) -> int:
    end = _sequences_of_splits(file, split)["train"]
    if end == file.sequences:
        return file.tokens
    if not end:
        raise ConfigError(
            "mixture.split_without_training: a file has too few documents for this split: none would be used for"
            " training",
            where=file.path,
            expected="a training share of at least half a document",
            got=f"{file.sequences:,} documents, --split {split_in_words(split)}",
            next_step="give training a larger share, or build larger parts (exports.megatron.part_bytes)",
        )
    return int(open_part(file.path.with_suffix("")).lengths[:end].sum(dtype=np.int64))


def has_empty_split(file: TokenFile, split: Split) -> bool:
    """Whether --split leaves validation or test of this file without a document, though it gives them a share.

    megatron-core 0.16.1 then adds up epochs of no tokens forever (gpt_dataset.py, _get_num_epochs), even if no sample
    of that split is asked for.
    """
    counts = _sequences_of_splits(file, split)
    return any(share and not counts[name] for name, share in zip(NAMES, split, strict=True))


def _sequences_of_splits(file: TokenFile, split: Split) -> dict[Name, int]:
    shares = (np.array(split) / np.sum(split)).tolist()
    ends = [round(end * float(file.sequences)) for end in accumulate(shares)]
    return dict(zip(NAMES, np.diff(ends, prepend=0).tolist(), strict=True))


def parts_by_files(source: Source, weight: float, split: Split) -> dict[Name, list[BlendPart]]:
    """The source's files by split, whole; a source with too few files keeps all of them in `train`."""
    counts = _files_of_splits(len(source.megatron), split)
    parts: dict[Name, list[BlendPart]] = {}
    begin = 0
    for name, count in zip(NAMES, counts, strict=True):
        files = source.megatron[begin : begin + count]
        tokens = sum(file.tokens for file in files)
        parts[name] = [BlendPart(file, weight * file.tokens / tokens, file.tokens) for file in files]
        begin += count
    return parts


def files_needed(split: Split) -> int:
    """How many files a source needs for one in every split."""
    return sum(share > 0 for share in split)


def _files_of_splits(files: int, split: Split) -> tuple[int, int, int]:
    valid, test = (max(1, round(files * part / sum(split))) if part else 0 for part in split[1:])
    return (files - valid - test, valid, test) if files > valid + test else (files, 0, 0)
