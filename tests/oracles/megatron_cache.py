"""Index caches as Megatron's GPTDataset writes them, made plainly: every token of the stream is put down."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np


def write_draws(
    folder: Path,
    prefix: str,
    lengths: list[int],
    *,
    samples: int,
    sequence: int = 16,
    seed: int = 1,
    train: float = 1.0,
) -> tuple[dict[str, Any], list[list[tuple[int, int]]]]:
    """Write the cache of one prefix. Returns its description, and the (sequence, token) of every sample in order."""
    epochs = 1
    mine = list(range(round(train * len(lengths))))
    while epochs * sum(lengths[item] for item in mine) < samples * sequence + 1:
        epochs += 1
    random = np.random.RandomState(seed)
    documents = np.array(mine * epochs, np.int32)
    random.shuffle(documents)
    stream = [(place, token) for place, item in enumerate(documents.tolist()) for token in range(lengths[item])]
    starts = stream[::sequence][: (len(stream) - 1) // sequence + 1]
    order = np.arange(len(starts) - 1, dtype=np.uint32)
    random.shuffle(order)
    description = {
        "class": "GPTDataset",
        "dataset_path": prefix,
        "num_samples": samples,
        "index_split": "train",
        "random_seed": seed,
        "sequence_length": sequence,
        "split": f"{train:g},{1 - train:g}",
        "split_matrix": [[0, train], [train, 1.0], None],
        "tokenizer": {"class": "Plain"},
    }
    arrays = {"document_index": documents, "sample_index": np.array(starts, np.int32), "shuffle_index": order}
    save(folder, description, arrays)
    drawn = [stream[item * sequence : (item + 1) * sequence + 1] for item in order.tolist()]
    return description, [[(int(documents[place]), token) for place, token in sample] for sample in drawn]


def write_blend(folder: Path, descriptions: list[dict[str, Any]], draws: list[tuple[int, int]]) -> None:
    """Write a blend that draws these (dataset, sample)s in order."""
    which, number = zip(*draws, strict=True)
    weights = [1 / len(descriptions)] * len(descriptions)
    description = {"class": "BlendedDataset", "datasets": descriptions, "split": "train", "weights": weights}
    arrays = {"dataset_index": np.array(which, np.int16), "dataset_sample_index": np.array(number, np.int64)}
    save(folder, description | {"size": len(draws)}, arrays)


def save(folder: Path, description: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(description, indent=4)
    stem = f"{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}-{description['class']}-train-"
    (folder / f"{stem}description.txt").write_text(text)
    for name, array in arrays.items():
        np.save(folder / f"{stem}{name}.npy", array)
