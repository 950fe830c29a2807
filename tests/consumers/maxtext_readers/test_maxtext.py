"""MaxText's readers of Megatron's format: sequences, documents, windows, and Megatron's order of samples."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from maxtext.input_pipeline._mmap_datasource import (
    MMapIndexedDataset,
    create_mmap_npy_source,
    create_mmap_source,
)
from maxtext.input_pipeline._mmap_index_utils import get_num_documents, get_total_tokens

IN_ORDER = Path(os.environ["CORPUSMILL_CONSUMER_IN_ORDER"]) / "megatron"
SHUFFLED = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "all" / "latest" / "megatron"
# Several sequences a document and empty documents at uint16; whole documents at int32.
PREFIXES = [path.with_suffix("") for folder in (IN_ORDER, SHUFFLED) for path in sorted(folder.glob("*.idx"))]
WIDTHS = {8: np.uint16, 4: np.int32}
EOD = 100_257
SEQUENCE = 64


def plainly(prefix: Path) -> tuple[list[np.ndarray], list[int]]:
    """(sequences, boundaries) by the format's description alone."""
    index = prefix.with_name(f"{prefix.name}.idx").read_bytes()
    _, _, code, sequences, boundaries = struct.unpack_from("<9sQBQQ", index)
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    ends = np.frombuffer(index, "<i8", boundaries, 34 + 12 * sequences)
    tokens = np.fromfile(prefix.with_name(f"{prefix.name}.bin"), WIDTHS[code])
    return np.split(tokens, np.cumsum(lengths)[:-1]), ends.tolist()


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda path: path.name)
def test_maxtext_sequences_and_documents_are_ours(prefix) -> None:
    sequences, boundaries = plainly(prefix)
    dataset = MMapIndexedDataset(str(prefix))
    assert len(dataset) == len(sequences) > 1
    assert dataset.doc_idx.tolist() == boundaries
    assert all(np.array_equal(dataset[number], sequence) for number, sequence in enumerate(sequences))
    assert get_num_documents([str(prefix)]) == len(boundaries) - 1
    assert get_total_tokens([str(prefix)]) == sum(map(len, sequences))


def test_maxtext_windows_of_all_parts_are_the_stream_of_their_tokens() -> None:
    parts = [prefix for prefix in PREFIXES if prefix.parent == SHUFFLED]
    stream = np.concatenate([sequence for prefix in parts for sequence in plainly(prefix)[0]])
    source = create_mmap_source(str(SHUFFLED), split_sentences=False, seq_length=SEQUENCE, eod_id=EOD)
    assert len(parts) > 1
    assert len(source) == len(stream) // SEQUENCE
    windows = stream[: len(source) * SEQUENCE].reshape(-1, SEQUENCE)
    assert all(np.array_equal(source[number]["text"], window) for number, window in enumerate(windows))


def test_maxtext_samples_in_megatrons_order_are_the_references(tmp_path) -> None:
    """One epoch: documents shuffled with the seed, cut into samples that share a token, and these shuffled again."""
    prefix, seed = next(prefix for prefix in PREFIXES if prefix.parent == SHUFFLED), 1234
    sequences, _ = plainly(prefix)
    samples = (sum(map(len, sequences)) - 1) // SEQUENCE
    random = np.random.RandomState(seed)
    order = np.arange(len(sequences), dtype=np.int32)
    random.shuffle(order)
    stream = np.concatenate([sequences[number] for number in order])
    shuffled = np.arange(samples, dtype=np.uint32)
    random.shuffle(shuffled)
    source = create_mmap_npy_source(
        f"{tmp_path}|{prefix}", EOD, SEQUENCE, split_sentences=False, num_samples=samples, seed=seed
    )
    assert len(source) == samples
    for number, place in enumerate(shuffled.tolist()):
        window = stream[place * SEQUENCE : (place + 1) * SEQUENCE + 1]
        assert source[number]["text"].tolist() == window.tolist()


def test_maxtext_first_sequence_is_shown(shown) -> None:
    prefix = next(prefix for prefix in PREFIXES if prefix.parent == SHUFFLED)
    dataset = MMapIndexedDataset(str(prefix))
    plain = plainly(prefix)[0][0]
    shown(
        "maxtext",
        "MMapIndexedDataset",
        "megatron",
        dataset[0].copy(),
        plain,
        lambda: map(dataset.get, range(len(dataset))),
    )
