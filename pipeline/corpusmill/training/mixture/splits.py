"""The tokens of a source that Megatron trains on, for each of two ways to pass it the data.

    megatron_data_path.txt   with --split A,B,C: of every file the first A / (A + B + C) of its sequences train
    megatron_splits.json     of every source the last files are for validation and test, in about that proportion

Source: Megatron-LM core/datasets/blended_megatron_dataset_builder.py (_build_megatron_dataset_splits) and
blended_megatron_dataset_config.py (parse_and_normalize_split).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from corpusmill.errors import ConfigError
from corpusmill.export.megatron import open_part
from corpusmill.training.mixture.sources import Source, TokenFile

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
