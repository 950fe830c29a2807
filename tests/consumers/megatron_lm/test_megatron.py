"""megatron-core 0.16.1 reads what we wrote, and its builder writes the same bytes."""

from __future__ import annotations

import json
import os
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.object_storage_utils import ObjectStorageConfig
from megatron.core.datasets.utils import get_blend_from_list

IN_ORDER = Path(os.environ["CORPUSMILL_CONSUMER_IN_ORDER"]) / "megatron"
SHUFFLED = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "all" / "latest" / "megatron"
MIXTURES = Path(os.environ["CORPUSMILL_CONSUMER_MIXTURE"])
# Several sequences a document and empty documents at uint16; whole documents at int32.
PREFIXES = [path.with_suffix("") for folder in (IN_ORDER, SHUFFLED) for path in sorted(folder.glob("*.idx"))]
WIDTHS = {8: np.uint16, 4: np.int32}


def plainly(prefix: Path) -> tuple[np.dtype, list[np.ndarray], list[int]]:
    """(dtype, sequences, boundaries) by the format's description alone."""
    index = prefix.with_name(f"{prefix.name}.idx").read_bytes()
    magic, version, code, sequences, boundaries = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    ends = np.frombuffer(index, "<i8", boundaries, 34 + 12 * sequences)
    tokens = np.fromfile(prefix.with_name(f"{prefix.name}.bin"), WIDTHS[code])
    return np.dtype(WIDTHS[code]), np.split(tokens, np.cumsum(lengths)[:-1]), ends.tolist()


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda path: path.name)
def test_megatron_m20_indexed_dataset_rows_are_ours(prefix) -> None:
    dtype, sequences, boundaries = plainly(prefix)
    dataset = IndexedDataset(str(prefix))
    assert len(dataset) == len(sequences) > 1
    assert dataset.index.dtype == dtype
    assert dataset.document_indices.tolist() == boundaries
    assert dataset.sequence_lengths.tolist() == [len(one) for one in sequences]
    for number, sequence in enumerate(sequences):
        assert np.array_equal(dataset[number].copy(), sequence)
    streamed = IndexedDataset(str(prefix), mmap=False)
    assert np.array_equal(streamed[len(sequences) - 1].copy(), sequences[-1])


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda path: path.name)
def test_megatron_m20_indexed_dataset_builder_writes_the_same_bytes(prefix, tmp_path) -> None:
    dtype, sequences, boundaries = plainly(prefix)
    builder = IndexedDatasetBuilder(str(tmp_path / "x.bin"), dtype=dtype.type)
    for first, last in pairwise(boundaries):
        for sequence in sequences[first:last]:
            builder.add_item(torch.from_numpy(sequence.astype(np.int64)))
        builder.end_document()
    builder.finalize(str(tmp_path / "x.idx"))
    for ending in (".bin", ".idx"):
        assert (tmp_path / f"x{ending}").read_bytes() == prefix.with_name(prefix.name + ending).read_bytes()


class Vocabulary:
    """As much of a tokenizer as a GPTDataset asks for."""

    def __init__(self) -> None:
        self.vocab_size, self.eod, self.pad = 100_277, 100_257, 0
        self.unique_identifiers = {"class": "Vocabulary"}


def gpt_config(sequence: int, seed: int, **data: object) -> GPTDatasetConfig:
    return GPTDatasetConfig(
        random_seed=seed,
        sequence_length=sequence,
        **data,
        path_to_cache=None,
        tokenizer=Vocabulary(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        mid_level_dataset_surplus=0.005,
    )


def gpt_samples(prefix: Path, sequence: int, wanted: int, seed: int) -> GPTDataset:
    config = gpt_config(sequence, seed, blend=([str(prefix)], None), split="1,0,0")
    train, _, _ = BlendedMegatronDatasetBuilder(GPTDataset, [wanted, 0, 0], lambda: True, config).build()
    return train


@pytest.mark.parametrize("prefix", [one for one in PREFIXES if one.parent == SHUFFLED][:2], ids=lambda path: path.name)
def test_megatron_m20_gpt_dataset_samples_are_the_references(prefix) -> None:
    sequence, seed = 64, 1234
    _, sequences, _ = plainly(prefix)
    total = sum(map(len, sequences))
    samples = (total - 1) // sequence
    random = np.random.RandomState(seed)
    order = np.arange(len(sequences), dtype=np.int32)
    random.shuffle(order)
    stream = np.concatenate([sequences[number] for number in order])
    shuffled = np.arange(samples, dtype=np.uint32)
    random.shuffle(shuffled)
    dataset = gpt_samples(prefix, sequence, samples // 2, seed)
    assert len(dataset) == samples
    for number in range(samples):
        first = int(shuffled[number]) * sequence
        found = dataset[number]
        assert found["tokens"].tolist() == stream[first : first + sequence].tolist()
        assert found["labels"].tolist() == stream[first + 1 : first + sequence + 1].tolist()


def given_by(way: str, folder: Path) -> dict[str, object]:
    """What Megatron's arguments make of the files of a mixture."""
    if way == "megatron":
        items = (folder / "megatron_data_path.txt").read_text().split()
        return {"blend": get_blend_from_list(items), "split": folder.name}
    splits = json.loads((folder / "megatron_splits.json").read_text())
    return {"blend_per_split": [get_blend_from_list(splits[name]) for name in ("train", "valid", "test")]}


@pytest.mark.parametrize("way", ["megatron", "megatron_splits"])
@pytest.mark.parametrize("folder", sorted(MIXTURES.iterdir()), ids=lambda path: path.name)
def test_megatron_mixture_epochs_stated_are_the_epochs_drawn(folder, way) -> None:
    """Tokens trained on from a source's files, over the tokens of their documents that belong to the split."""
    said = json.loads((folder / "mixture.json").read_text())
    sequence, samples = said["sequence_tokens"], said["samples"]
    config = gpt_config(sequence, said["seed"], **given_by(way, folder))
    train, _, _ = BlendedMegatronDatasetBuilder(GPTDataset, [samples, 0, 0], lambda: True, config).build()
    drawn = np.bincount(train.dataset_index[:samples], minlength=len(train.datasets))
    for source in said["sources"]:
        files = [one for one in range(len(drawn)) if train.datasets[one].dataset_path.startswith(source["folder"])]
        there = sum(
            int(train.datasets[one].dataset.sequence_lengths[train.datasets[one].indices].sum()) for one in files
        )
        trained = int(drawn[files].sum()) * sequence
        stated = source[way]
        assert (stated["there"], stated["tokens"]) == (there, trained)
        assert stated["epochs"] == pytest.approx(trained / there, rel=1e-12)
    assert sum(one[way]["drawn"] for one in said["sources"]) == samples
    if folder.name != "100,0,0":
        assert said["sources"][0]["megatron"]["epochs"] != said["sources"][0]["megatron_splits"]["epochs"]


def test_megatron_m24_dataset_in_a_bucket_is_read(tmp_path, bucket) -> None:
    prefix = PREFIXES[-1]
    for ending in (".bin", ".idx"):
        bucket.upload_file(str(prefix) + ending, f"megatron/{prefix.name}{ending}")
    dataset = IndexedDataset(
        f"s3://datasets/megatron/{prefix.name}",
        mmap=False,
        object_storage_config=ObjectStorageConfig(path_to_idx_cache=str(tmp_path)),
    )
    _, sequences, _ = plainly(prefix)
    assert all(np.array_equal(dataset[i].copy(), sequence) for i, sequence in enumerate(sequences))
