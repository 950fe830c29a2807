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
def test_megatron_indexed_dataset_rows_are_ours(prefix) -> None:
    dtype, sequences, boundaries = plainly(prefix)
    dataset = IndexedDataset(str(prefix))
    assert len(dataset) == len(sequences) > 1
    assert dataset.index.dtype == dtype
    assert dataset.document_indices.tolist() == boundaries
    assert dataset.sequence_lengths.tolist() == [len(sequence) for sequence in sequences]
    for number, sequence in enumerate(sequences):
        assert np.array_equal(dataset[number].copy(), sequence)
    streamed = IndexedDataset(str(prefix), mmap=False)
    assert np.array_equal(streamed[len(sequences) - 1].copy(), sequences[-1])


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda path: path.name)
def test_megatron_indexed_dataset_builder_writes_the_same_bytes(prefix, tmp_path) -> None:
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


def gpt_config(sequence: int, seed: int, cache: Path | None = None, **data: object) -> GPTDatasetConfig:
    return GPTDatasetConfig(
        random_seed=seed,
        sequence_length=sequence,
        **data,
        path_to_cache=str(cache) if cache else None,
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


@pytest.mark.parametrize(
    "prefix", [item for item in PREFIXES if item.parent == SHUFFLED][:2], ids=lambda path: path.name
)
def test_megatron_gpt_dataset_samples_are_the_references(prefix) -> None:
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
        actual = dataset[number]
        assert actual["tokens"].tolist() == stream[first : first + sequence].tolist()
        assert actual["labels"].tolist() == stream[first + 1 : first + sequence + 1].tolist()


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
    printed = json.loads((folder / "mixture.json").read_text())
    sequence, samples = printed["sequence_tokens"], printed["samples"]
    config = gpt_config(sequence, printed["seed"], **given_by(way, folder))
    train, _, _ = BlendedMegatronDatasetBuilder(GPTDataset, [samples, 0, 0], lambda: True, config).build()
    drawn = np.bincount(train.dataset_index[:samples], minlength=len(train.datasets))
    for source in printed["sources"]:
        files = [
            number for number in range(len(drawn)) if train.datasets[number].dataset_path.startswith(source["folder"])
        ]
        there = sum(
            int(train.datasets[file].dataset.sequence_lengths[train.datasets[file].indices].sum()) for file in files
        )
        trained = int(drawn[files].sum()) * sequence
        stated = source[way]
        assert (stated["there"], stated["tokens"]) == (there, trained)
        assert stated["epochs"] == pytest.approx(trained / there, rel=1e-12)
    assert sum(item[way]["drawn"] for item in printed["sources"]) == samples
    if folder.name != "100,0,0":
        assert printed["sources"][0]["megatron"]["epochs"] != printed["sources"][0]["megatron_splits"]["epochs"]


@pytest.fixture(scope="session")
def one_rank(tmp_path_factory) -> None:
    """A BlendedDataset with a cache asks torch which rank this is."""
    store = torch.distributed.FileStore(str(tmp_path_factory.mktemp("ranks") / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def tokens_of(records: list) -> list[int]:
    """The tokens that a traced sample's spans of our parts hold."""
    tokens = []
    for file, record, first, last, _ in records:
        _, sequences, _ = plainly(SHUFFLED / Path(file).name)
        tokens += sequences[record][first:last].tolist()
    return tokens


PARTS = [str(item) for item in PREFIXES if item.parent == SHUFFLED]
OTHERS = [str(path.with_suffix("")) for path in sorted((SHUFFLED.parents[2] / "few/latest/megatron").glob("*.idx"))]


@pytest.mark.parametrize(
    ("blend", "split", "samples"),
    [
        (([PARTS[0]], None), "1,0,0", 300),
        (([PARTS[1]], None), "70,20,10", 1000),
        ((PARTS, [3.0, 1.0, 1.0, 2.0, 0.5]), "80,15,5", 900),
        (([*PARTS, *OTHERS], [1.0] * len([*PARTS, *OTHERS])), "100,0,0", 700),
    ],
    ids=["epochs", "split", "blend", "with_another_dataset"],
)
def test_trace_samples_of_a_cache_are_the_samples_that_megatron_draws(
    blend, split, samples, tmp_path, one_rank, traced
) -> None:
    sequence, batch = 64, 50
    config = gpt_config(sequence, 77, tmp_path, blend=blend, split=split)
    train, _, _ = BlendedMegatronDatasetBuilder(GPTDataset, [samples, 0, 0], lambda: True, config).build()
    strange = 0
    for first in (0, samples // 2, samples - batch):
        actual = traced(megatron_cache=str(tmp_path), first=first, count=batch, split=split, seed=77)
        assert [number for number, _, _ in actual] == [*range(first, first + batch)]
        for number, file, records in actual:
            drawn = train[number]
            if file in OTHERS:
                assert (records, blend[0][int(drawn["dataset_id"])]) == ([], file)
                strange += 1
                continue
            tokens = tokens_of(records)
            assert drawn["tokens"].tolist() == tokens[:-1]
            assert drawn["labels"].tolist() == tokens[1:]
    assert bool(strange) == (len(blend[0]) > len(PARTS))


def test_trace_samples_of_a_cache_of_another_run_is_refused_by_what_differs(tmp_path, one_rank, traced) -> None:
    for seed, sequence in ((1, 64), (2, 64), (1, 32)):
        config = gpt_config(sequence, seed, tmp_path / "ours", blend=([PARTS[0]], None), split="70,20,10")
        BlendedMegatronDatasetBuilder(GPTDataset, [100, 0, 0], lambda: True, config).build()
    config = gpt_config(64, 1, tmp_path / "theirs", blend=([OTHERS[0]], None), split="70,20,10")
    BlendedMegatronDatasetBuilder(GPTDataset, [100, 0, 0], lambda: True, config).build()
    ours, theirs = ({"megatron_cache": str(tmp_path / name), "first": 0} for name in ("ours", "theirs"))
    assert len(traced(**ours, seed=2)) == len(traced(**ours, sequence_tokens=32)) == 1
    assert "holds several runs" in traced(**ours)
    assert "holds several runs" in traced(**ours, seed=1, split="70,20,10")
    for other in ({"seed": 3}, {"sequence_tokens": 65}, {"split": "80,10,10"}):
        assert "holds no run on this dataset" in traced(**ours, **other)
    assert "does not have the name of a part of this dataset" in traced(**theirs)


def test_megatron_dataset_in_a_bucket_is_read(tmp_path, bucket) -> None:
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


def test_megatron_first_document_is_shown(shown) -> None:
    prefix = next(prefix for prefix in PREFIXES if prefix.parent == SHUFFLED)
    dataset = IndexedDataset(str(prefix))  # its records are views, and end with it
    plain = plainly(prefix)[1][0]
    shown(
        "megatron-core",
        "IndexedDataset",
        "megatron",
        dataset[0].copy(),
        plain,
        lambda: map(dataset.get, range(len(dataset))),
    )
