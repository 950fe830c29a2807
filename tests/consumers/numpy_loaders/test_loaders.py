"""The slicing rules of the loaders of Jaxformer, build-nanogpt and nanoGPT, applied to what we write."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

OUTPUTS = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"])
SHARDS = OUTPUTS / "all" / "latest" / "numpy"
RAW = OUTPUTS / "raw" / "latest" / "numpy"
EOT, VOCABULARY = 100_257, 100_277
TOKENS = 5000


def listed_by_jaxformer(prefix: str) -> list[Path]:
    """Objects whose name begins with the prefix, in lexicographic order, but for the first: the folder's own."""
    names = sorted(path.relative_to(SHARDS).as_posix() for path in SHARDS.rglob("*") if path.is_file())
    return [SHARDS / name for name in names if name.startswith(prefix)][1:]


@pytest.mark.parametrize("split", ["val", "train"])
def test_numpy_jaxformers_loader_finds_every_shard(split: str) -> None:
    assert listed_by_jaxformer(split) == sorted((SHARDS / split).glob("*.npy"))
    assert listed_by_jaxformer(split)


@pytest.mark.parametrize("split", ["val", "train"])
def test_numpy_jaxformers_windows_have_their_shapes(split: str) -> None:
    batch, microbatch, dp, t = 4, 2, 2, 64
    for path in listed_by_jaxformer(split):
        data = np.load(path)
        assert data.ndim == 1
        assert data.dtype == np.uint32
        assert data.flags.c_contiguous
        batches = (len(data) - 1) // (batch * t * dp)
        x, y = data[:-1][: batches * batch * t * dp], data[1:][: batches * batch * t * dp]
        x, y = (item.reshape(batches, microbatch, dp * batch // microbatch, t) for item in (x, y))
        assert (x.reshape(-1)[1:] == y.reshape(-1)[:-1]).all()
        assert int(data.max()) < VOCABULARY


def test_numpy_every_shard_but_the_last_is_full() -> None:
    sizes = [len(np.load(path)) for split in ("val", "train") for path in sorted((SHARDS / split).glob("*.npy"))]
    assert set(sizes[:-1]) == {TOKENS}
    assert 0 < sizes[-1] <= TOKENS


def test_numpy_checkpoint_is_read_by_continue() -> None:
    """The newest checkpoints/*.txt, split at the colon: shard and documents."""
    texts = list((SHARDS / "checkpoints").glob("*.txt"))
    assert len(texts) == 1
    shard, documents = (int(part) for part in texts[0].read_text().split(":"))
    stream = np.concatenate([np.load(path) for split in ("val", "train") for path in listed_by_jaxformer(split)])
    full = len(stream) // TOKENS
    assert shard == full - 1
    assert documents == int((stream[: full * TOKENS] == EOT).sum())


def test_numpy_build_nanogpts_loader_finds_its_split() -> None:
    """DataLoaderLite: names that hold the split, sorted, loaded as int32."""
    for split in ("val", "train"):
        names = sorted(path.name for path in (SHARDS / split).iterdir() if split in path.name)
        assert names
        for name in names:
            assert np.load(SHARDS / split / name).astype(np.int32).min() >= 0


@pytest.mark.parametrize("split", ["val", "train"])
def test_numpy_nanogpts_memmap_reads_the_raw_file(split: str) -> None:
    """get_batch: np.memmap in mode r, random windows of block_size, widened to int64."""
    data = np.memmap(RAW / f"{split}.bin", dtype=np.uint32, mode="r")
    block = 64
    starts = np.linspace(0, len(data) - block - 1, 20).astype(int)
    x = np.stack([data[i : i + block].astype(np.int64) for i in starts])
    y = np.stack([data[i + 1 : i + 1 + block].astype(np.int64) for i in starts])
    assert (x[:, 1:] == y[:, :-1]).all()
    assert int(data.max()) < VOCABULARY


def test_numpy_raw_files_hold_the_same_stream_as_the_shards() -> None:
    shards = [np.load(path) for split in ("val", "train") for path in sorted((SHARDS / split).glob("*.npy"))]
    raw = [np.fromfile(RAW / f"{split}.bin", np.uint32) for split in ("val", "train")]
    assert raw[0].size > 0
    assert (np.concatenate(raw) == np.concatenate(shards)).all()


def test_numpy_first_tokens_are_shown(shown) -> None:
    paths = sorted((SHARDS / "train").glob("*.npy"))
    plain = np.fromfile(paths[0], "<u4", 64, offset=128)
    shown("numpy", "load", "numpy, layout npy", np.load(paths[0])[:64], plain, lambda: map(np.load, paths))
    raw = np.memmap(RAW / "train.bin", np.uint32, "r")
    shown("numpy", "memmap", "numpy, layout bin", raw[:64], np.fromfile(RAW / "train.bin", "<u4", 64), lambda: [raw])
