"""Reads the order in which Megatron's GPTDataset draws samples, from the index cache that it left on disk.

    <hash>-GPTDataset-train-description.txt         JSON: prefix, samples asked for, seed, split, sequence length
    <hash>-GPTDataset-train-document_index.npy      int32 (documents x epochs,): sequence ordinals of the .idx, shuffled
    <hash>-GPTDataset-train-sample_index.npy        int32 or int64 (samples + 1, 2): where in the document index, and at
                                                    which token of that document, each sample begins
    <hash>-GPTDataset-train-shuffle_index.npy       uint32 or int64 (samples,): which of these samples is drawn when
    <hash>-BlendedDataset-train-description.txt     JSON: the descriptions of several, their weights
    <hash>-BlendedDataset-train-dataset_index.npy          int16 (samples,): which of them is drawn when
    <hash>-BlendedDataset-train-dataset_sample_index.npy   int64 (samples,): which of its samples

`hash` is the md5 of the description. A sample has sequence length + 1 tokens: the next one begins with its last token.

Source: NVIDIA/Megatron-LM megatron/core/datasets/gpt_dataset.py, blended_dataset.py, helpers.cpp (build_sample_idx).

Price: a page or two of each array per sample, for any size of the cache. The arrays are mapped, never loaded.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError, PermanentError

SPLIT = "train"
_DESCRIPTION = "description.txt"


@dataclass(frozen=True)
class Draws:
    """The samples that a run draws from one prefix: its description, and the three arrays beside it."""

    folder: Path
    description: dict[str, Any]

    @property
    def prefix(self) -> str:
        """The path of the .bin and .idx, without extension, as the training run was given it."""
        return str(self.description["dataset_path"])

    @property
    def seed(self) -> int:
        return int(self.description["random_seed"])

    @property
    def sequence_tokens(self) -> int:
        return int(self.description["sequence_length"])

    @property
    def split(self) -> str:
        """As --split was given; "" where each split has prefixes of its own."""
        return str(self.description["split"] or "")

    @cached_property
    def documents(self) -> NDArray[Any]:
        return _mapped(self._path("document_index.npy"))

    @cached_property
    def samples(self) -> NDArray[Any]:
        return _mapped(self._path("sample_index.npy"), 2)

    @cached_property
    def order(self) -> NDArray[Any]:
        return _mapped(self._path("shuffle_index.npy"))

    def _path(self, name: str) -> Path:
        return _cache_file(self.folder, self.description, name)

    def __len__(self) -> int:
        return len(self.order)

    def sequences(self, total: int) -> range:
        """The sequences of the .idx, of `total`, that belong to the training split."""
        share = self.description["split_matrix"]
        first, last = share[0] if share else (0.0, 1.0)
        return range(round(first * float(total)), round(last * float(total)))

    def spans(self, number: int, lengths: NDArray[Any]) -> list[tuple[int, int, int]]:
        """(sequence, first token, end) of each piece of the sample drawn as number `number`, in order.

        `lengths` are the tokens of every sequence of the .idx. CorruptDataError if they do not make a sample of the
        right length: the cache was made from other files.
        """
        row = int(self.order[number])
        if not 0 <= row < len(self.samples) - 1:
            raise self._unfit(f"sample {number:,}", f"0 to {len(self.samples) - 2:,}", f"{row:,}")
        (place, first), (last_place, last) = self.samples[row : row + 2].tolist()
        if not (0 <= place <= last_place < len(self.documents) and last_place - place <= self.sequence_tokens):
            raise self._unfit(
                f"sample {number:,}", f"at most {len(self.documents):,} places", f"{place} to {last_place}"
            )
        sequences = self.documents[place : last_place + 1].tolist()
        if not all(0 <= span < len(lengths) for span in sequences):
            raise self._unfit(f"sample {number:,}", f"sequences below {len(lengths):,}", f"{max(sequences):,}")
        ends = lengths[sequences].tolist()
        firsts = [first, *(0 for _ in sequences[1:])]
        if last >= ends[-1]:
            raise self._unfit(f"sample {number:,}", f"a last token below {ends[-1]:,}", f"{last:,}")
        ends[-1] = last + 1
        tokens = sum(ends) - sum(firsts)
        if min(firsts) < 0 or tokens != self.sequence_tokens + 1:
            raise self._unfit(f"sample {number:,}", f"{self.sequence_tokens + 1:,} tokens", f"{tokens:,}")
        return [span for span in zip(sequences, firsts, ends, strict=True) if span[1] < span[2]]

    def require_totals(self, lengths: NDArray[Any]) -> None:
        """CorruptDataError unless the arrays have the sizes that sequences of these lengths make."""
        mine = self.sequences(len(lengths))
        epochs, rest = divmod(len(self.documents), max(1, len(mine)))
        tokens = epochs * int(lengths[mine.start : mine.stop].sum(dtype=np.int64))
        expected = (tokens - 1) // self.sequence_tokens
        if rest or not epochs:
            raise self._unfit("the document index", f"epochs of {len(mine):,}", f"{len(self.documents):,}")
        if not len(self.samples) - 1 == len(self.order) == expected:
            got = f"{len(self.samples) - 1:,}, of which {len(self.order):,} are in the order"
            raise self._unfit("the sample index", f"{expected:,} samples", got)

    def _unfit(self, where: str, expected: str, got: str) -> CorruptDataError:
        return CorruptDataError(
            "index_cache.files_differ: the index cache does not match the dataset's files",
            where=f"{self._path(_DESCRIPTION)}, {where}",
            expected=expected,
            got=got,
            next_step="pass the cache of a run on this version of the dataset; Megatron does not notice when "
            "a cached dataset's files change",
        )


@dataclass(frozen=True)
class CachedRun:
    """What a training run draws: samples of one prefix (`blend` is None), or of several in the order of a blend."""

    folder: Path
    parts: tuple[Draws, ...]
    blend: dict[str, Any] | None = None

    @cached_property
    def _order(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        if self.blend is None:
            return None
        names = ("dataset_index.npy", "dataset_sample_index.npy")
        which, number = (_mapped(_cache_file(self.folder, self.blend, name)) for name in names)
        if len(which) != len(number):
            raise CorruptDataError(
                "index_cache.blend_lengths_differ: the two indices of a blend differ in length",
                where=_cache_file(self.folder, self.blend, names[0]),
                expected=f"{len(number):,}",
                got=f"{len(which):,}",
            )
        return which, number

    def __len__(self) -> int:
        return len(self._order[0]) if self._order else len(self.parts[0])

    def sample(self, number: int) -> tuple[Draws, int]:
        """The prefix from which the run's sample `number` is drawn, and its number there."""
        if self._order is None:
            return self.parts[0], number
        which, drawn = (int(index[number]) for index in self._order)
        if not (0 <= which < len(self.parts) and 0 <= drawn < len(self.parts[which])):
            raise CorruptDataError(
                "index_cache.blend_beyond_samples: a blend draws a missing sample",
                where=f"{self.folder}, sample {number:,}",
                got=f"{which}, {drawn:,}",
            )
        return self.parts[which], drawn

    @property
    def title(self) -> str:
        """A description that distinguishes this run from others of the same cache."""
        part = self.parts[0]
        split = f"split {part.split}" if part.split else "a blend for each split"
        return (
            f"seed {part.seed}, {part.sequence_tokens:,} tokens a sample, {split}, {len(self):,} samples of"
            f" {part.prefix}{f' and {len(self.parts) - 1} more' if len(self.parts) > 1 else ''}"
        )


def cached_runs(folder: Path) -> list[CachedRun]:
    """Every run whose training samples a cache holds: blends, and prefixes that are not in any blend.

    PermanentError for a folder without any, CorruptDataError for a description that does not match its name.
    """
    descriptions = {kind: _descriptions(folder, kind) for kind in ("BlendedDataset", "GPTDataset")}
    blends = [
        CachedRun(folder, tuple(Draws(folder, part) for part in blend["datasets"]), blend)
        for blend in descriptions["BlendedDataset"]
    ]
    blended = [part for blend in descriptions["BlendedDataset"] for part in blend["datasets"]]
    alone = [
        CachedRun(folder, (Draws(folder, description),))
        for description in descriptions["GPTDataset"]
        if description not in blended
    ]
    if not blends and not alone:
        raise PermanentError(
            "index_cache.missing: the folder holds no index cache of a GPTDataset",
            where=folder,
            expected=f"<hash>-GPTDataset-{SPLIT}-{_DESCRIPTION}",
            got=f"{len(sorted(folder.iterdir())):,} other files" if folder.is_dir() else "no folder",
            next_step="give Megatron's --data-cache-path, or <prefix>/cache/GPTDataset_indices",
        )
    return blends + alone


def _descriptions(folder: Path, kind: str) -> list[dict[str, Any]]:
    descriptions = []
    for path in sorted(folder.glob(f"*-{kind}-{SPLIT}-{_DESCRIPTION}")):
        description = _parsed(path.read_bytes())
        if description is None or path.name.partition("-")[0] != _hash(description):
            raise CorruptDataError(
                "index_cache.description_changed: a description of the index cache was changed, or is from another"
                " version of Megatron",
                where=path,
                expected="JSON with the md5 that is its name",
                got="other JSON, or none" if description is None else _hash(description),
            )
        descriptions.append(description)
    return descriptions


def _parsed(text: bytes) -> dict[str, Any] | None:
    """A description; None if it lacks a needed key."""
    try:
        description = json.loads(text)
        parts = [Draws(Path(), part) for part in description.get("datasets", [description])]
        whole = all(
            part.prefix and part.seed >= 0 and part.sequence_tokens > 0 and len(part.sequences(2)) <= 2
            for part in parts
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
        return None
    return dict(description) if parts and whole else None


def _hash(description: dict[str, Any]) -> str:
    text = json.dumps(description, indent=4).encode()  # as Megatron writes it: equal values have equal text
    return hashlib.md5(text, usedforsecurity=False).hexdigest()


def _cache_file(folder: Path, description: dict[str, Any], name: str) -> Path:
    return folder / f"{_hash(description)}-{description['class']}-{SPLIT}-{name}"


def _mapped(path: Path, *columns: int) -> NDArray[Any]:
    """An .npy of integers, 1-D or with this many columns, memory-mapped; CorruptDataError for any other file."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CorruptDataError(
            "index_cache.array_not_readable: an array of the index cache cannot be read",
            where=path,
            expected="the .npy that Megatron wrote next to the description",
            got=f"{type(error).__name__}: {error}",
        ) from error
    if array.dtype.kind not in "iu" or array.ndim != 1 + len(columns) or array.shape[1:] != columns:
        raise CorruptDataError(
            "index_cache.array_form: an array of the index cache has another form",
            where=path,
            expected=f"whole numbers, {' x '.join(map(str, ('any', *columns)))}",
            got=f"{array.dtype}, {' x '.join(map(str, array.shape))}",
        )
    return array
