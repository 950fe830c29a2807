"""OLMo-core 3.0.0 reads our raw ids: windows, packed documents, the documents of the csv, and every rank's part."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from olmo_core.data import (
    DataCollator,
    NumpyDatasetDType,
    NumpyFSLDataLoader,
    NumpyFSLDatasetConfig,
    NumpyPackedFSLDatasetConfig,
    TokenizerConfig,
)
from olmo_core.data.utils import get_document_indices, iter_document_indices

DATASETS = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"])
ALL = DATASETS / "all" / "latest"  # cl100k_base: ids of four bytes
NARROW = DATASETS / "olmo" / "latest"  # 600 ids, two bytes, several files, BOS before each document


def about(folder: Path) -> dict:
    return json.loads((folder / "dataset.json").read_text())["vocabulary"]


def files(folder: Path) -> list[Path]:
    return sorted((folder / "olmo").glob("*.npy"))


def dtype_of(folder: Path) -> np.dtype:
    return np.dtype(about(folder)["dtype"]).newbyteorder("<")


def documents(folder: Path, path: Path) -> list[list[int]]:
    """By the csv, read plainly."""
    tokens = np.fromfile(path, dtype_of(folder))
    with gzip.open(path.with_suffix(".csv.gz"), "rt", newline="") as lines:
        return [tokens[int(row[0]) : int(row[1])].tolist() for row in csv.reader(lines)]


def tokenizer(folder: Path) -> TokenizerConfig:
    ids = about(folder)
    bos = ids["bos_id"] if folder == NARROW else None
    return TokenizerConfig(
        vocab_size=ids["size"], eos_token_id=ids["eot_id"], pad_token_id=ids["size"] - 1, bos_token_id=bos
    )


@pytest.mark.parametrize("folder", [ALL, NARROW])
@pytest.mark.parametrize("length", [8, 64])
def test_fixed_length_dataset_reads_every_window_of_every_file(folder, length, tmp_path) -> None:
    paths, ids = files(folder), tokenizer(folder)
    config = NumpyFSLDatasetConfig.glob(
        str(folder / "olmo" / "*.npy"), sequence_length=length, tokenizer=ids, work_dir=str(tmp_path)
    )
    dataset = config.build()
    dataset.prepare()
    windows = [
        tokens[first : first + length].tolist()
        for tokens in (np.fromfile(path, dtype_of(folder)) for path in paths)
        for first in range(0, len(tokens) - length + 1, length)
    ]
    assert ids.vocab_size > 256
    assert [dataset[place]["input_ids"].tolist() for place in range(len(dataset))] == windows
    assert len(paths) > (folder == NARROW)


@pytest.mark.parametrize("folder", [ALL, NARROW])
@pytest.mark.parametrize("by_array", [True, False])
def test_documents_are_those_of_the_index_by_scan_and_by_csv(folder, by_array) -> None:
    ids = tokenizer(folder)
    for path in files(folder):
        expected, tokens = documents(folder, path), np.fromfile(path, dtype_of(folder))
        found = iter_document_indices(
            path,
            use_array_if_local=by_array,
            eos_token_id=ids.eos_token_id,
            bos_token_id=ids.bos_token_id,
            dtype=dtype_of(folder).type,
        )
        assert [tokens[start:end].tolist() for start, end in found] == expected
        assert [tuple(map(int, span)) for span in get_document_indices(path)][-1][1] == len(tokens)


@pytest.mark.parametrize("folder", [ALL, NARROW])
def test_packed_dataset_holds_every_document_in_whole(folder, tmp_path) -> None:
    expected = sorted(document for path in files(folder) for document in documents(folder, path))
    length = 1 << (max(map(len, expected)) - 1).bit_length()
    dataset = NumpyPackedFSLDatasetConfig.glob(
        str(folder / "olmo" / "*.npy"),
        sequence_length=length,
        tokenizer=tokenizer(folder),
        generate_doc_lengths=True,
        work_dir=str(tmp_path),
    ).build()
    dataset.prepare()
    actual = []
    for place in range(len(dataset)):
        item = dataset[place]
        cut = np.split(item["input_ids"].numpy(), np.cumsum(item["doc_lens"].numpy())[:-1])
        eos = [np.flatnonzero(piece == about(folder)["eot_id"]) for piece in cut]  # padding follows the last
        actual += [piece[: places[-1] + 1].tolist() for piece, places in zip(cut, eos, strict=True) if len(places)]
    assert sorted(actual) == expected


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_together_read_every_window_once(ranks, tmp_path) -> None:
    length, tok = 16, tokenizer(NARROW)
    seen: list[int] = []
    for rank in range(ranks):
        dataset = NumpyFSLDatasetConfig.glob(
            str(NARROW / "olmo" / "*.npy"), sequence_length=length, tokenizer=tok, work_dir=str(tmp_path)
        ).build()
        loader = NumpyFSLDataLoader(
            dataset,
            collator=DataCollator(pad_token_id=tok.pad_token_id),
            global_batch_size=8 * length,
            work_dir=str(tmp_path / str(ranks)),
            dp_world_size=ranks,
            dp_rank=rank,
            seed=1,
        )
        loader.reshuffle(epoch=1)
        seen += [int(index) for batch in loader for index in batch["index"]]
        total = len(dataset)
    assert len(seen) == len(set(seen)) == total // 8 * 8


def test_real_npy_files_are_not_where_the_glob_of_tokens_finds_them() -> None:
    """OLMo-core would take a header for tokens and raise no error."""
    for folder in (ALL, NARROW):
        assert all(path.read_bytes()[:6] != b"\x93NUMPY" for path in (folder / "olmo").rglob("*.npy"))
    for path in files(NARROW):
        offsets = np.load(path.with_suffix(".offsets"))
        assert offsets.tolist() == np.cumsum([0, *map(len, documents(NARROW, path))]).tolist()


def test_dtype_that_olmo_core_infers_is_the_files_own() -> None:
    for folder in (ALL, NARROW):
        config = NumpyFSLDatasetConfig(
            paths=[str(path) for path in files(folder)], sequence_length=8, tokenizer=tokenizer(folder)
        )
        assert config.get_dtype() == NumpyDatasetDType(about(folder)["dtype"]).as_np_dtype()


def test_first_window_is_shown(shown, tmp_path) -> None:
    pattern = str(ALL / "olmo" / "*.npy")
    dataset = NumpyFSLDatasetConfig.glob(
        pattern, sequence_length=64, tokenizer=tokenizer(ALL), work_dir=str(tmp_path)
    ).build()
    dataset.prepare()
    plain = np.fromfile(files(ALL)[0], dtype_of(ALL))[:64]

    def every() -> Iterator[Any]:
        return (dataset[number]["input_ids"] for number in range(len(dataset)))

    shown("ai2-olmo-core", "NumpyFSLDatasetConfig", "olmo", dataset[0]["input_ids"], plain, every)
