"""Jaxformer's shards: bytes of numpy.save, straddling documents, names and the split."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.config import FramingConfig
from corpusmill.config.exports import ExportsConfig
from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.base import Readable
from corpusmill.export.numpy_shards import (
    open_shard,
    shard_bounds,
    shard_header,
    shard_names,
    verify_shard,
    with_eot_before,
    write_shard,
)
from tests.oracles import export as oracle
from tests.oracles.export import append, keep, put, put_number
from tests.raising import raises

EOT = 100_257
U4 = np.dtype("<u4")
documents = st.lists(st.lists(st.integers(0, 100_255), max_size=25), max_size=12)


def saved(tokens: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, tokens)
    return out.getvalue()


def export(folder, docs, shard_tokens, at=()):
    """What a stage does: the stream of all batches, cut every `shard_tokens`, pieces as they come."""
    pieces = [with_eot_before(batch, EOT, vocabulary_size=100_277) for batch in oracle.batches_of(docs, "u4", list(at))]
    stream = np.concatenate(pieces)
    names = []
    for number, (begin, end) in enumerate(pairwise(shard_bounds(stream.size, shard_tokens))):
        name, tokens = f"{number}.npy", end - begin
        write_shard(folder / name, [stream[begin : begin + 1], stream[begin + 1 : end]], tokens, U4)
        verify_shard(folder / name, tokens=tokens, dtype=U4, vocabulary_size=100_277)
        names.append(name)
    return names


@given(docs=documents, at=st.lists(st.integers(0, 12), max_size=3), shard_tokens=st.integers(1, 12))
def test_numpy_documents_straddle_shards_as_in_the_oracle(tmp_path_factory, docs, at, shard_tokens):
    folder = tmp_path_factory.mktemp("shards")
    actual = [np.load(folder / name, allow_pickle=False).tolist() for name in export(folder, docs, shard_tokens, at)]
    assert actual == oracle.jaxformer_shards(docs, EOT, shard_tokens)


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
@pytest.mark.parametrize("tokens", [1, 9, 10, 1000, 65_537])
def test_numpy_bytes_equal_numpy_save(tmp_path, dtype, tokens):
    stream = (np.arange(tokens) % 65_536).astype(dtype)
    counts = write_shard(tmp_path / "x.npy", [stream[:3], stream[3:3], stream[3:]], tokens, np.dtype(dtype))
    data = (tmp_path / "x.npy").read_bytes()
    assert data == saved(stream)
    assert counts == {"tokens": tokens, "bytes": len(data)}
    assert open_shard(tmp_path / "x.npy").tolist() == stream.tolist()


@pytest.mark.parametrize("tokens", [1, 100_000_000, 10**12])
def test_numpy_header_has_128_bytes(tokens):
    header = shard_header(tokens, U4)
    assert len(header) == 128
    assert header == saved(np.broadcast_to(np.uint32(0), 1))[:128].replace(
        b"(1,), }" + b" " * (len(str(tokens)) - 1), b"(%d,), }" % tokens
    )


@pytest.mark.parametrize("tokens", [4, 6])
def test_numpy_other_number_of_tokens_is_refused_and_leaves_nothing(tmp_path, tokens):
    with raises("numpy.pieces_miscounted"):
        write_shard(tmp_path / "x.npy", [np.ones(2, U4), np.ones(3, U4)], tokens, U4)
    assert list(tmp_path.iterdir()) == []


def test_numpy_narrowing_that_would_lose_an_id_is_refused(tmp_path):
    with raises("numpy.piece_differs"):
        write_shard(tmp_path / "x.npy", [np.array([1, 70_000], U4)], 2, np.dtype("<u2"))
    write_shard(tmp_path / "x.npy", [np.array([1, 65_535], U4)], 2, np.dtype("<u2"))
    assert open_shard(tmp_path / "x.npy").tolist() == [1, 65_535]


def test_numpy_shard_of_no_tokens_is_refused(tmp_path):
    with raises("numpy.shard_tokens"):
        write_shard(tmp_path / "x.npy", [], 0, U4)


def test_numpy_eot_that_does_not_fit_the_batch_is_refused():
    (batch,) = oracle.batches_of([[5, 6]], "u2", [])
    with raises("numpy.eot_too_large"):
        with_eot_before(batch, EOT, vocabulary_size=100_277)


@pytest.mark.parametrize(
    ("shards", "test_shards", "test", "train"),
    [
        (0, 350, 0, 0),
        (1, 350, 0, 1),
        (2, 350, 1, 1),
        (100, 350, 50, 50),
        (700, 350, 350, 350),
        (3500, 350, 350, 3150),
        (10, 0, 0, 10),
        (10, 3, 3, 7),
        (1, 0.1, 0, 1),
        (2, 0.1, 1, 1),
        (20, 0.1, 2, 18),
        (25, 0.1, 3, 22),
        (100, 0.29, 29, 71),
        (10, 0.0, 0, 10),
        (10, 0.9, 5, 5),
    ],
)
def test_numpy_split_always_leaves_train_data(shards, test_shards, test, train):
    names = shard_names(shards, test_shards)
    assert [name.split("/")[0] for name in names] == ["test"] * test + ["train"] * train


@pytest.mark.parametrize("test_shards", [-1, -0.1, 1.0, 1.5])
def test_numpy_split_that_is_no_split_is_refused(test_shards):
    with raises("numpy.held_out"):
        shard_names(10, test_shards)


def test_numpy_names_count_from_zero_in_each_split():
    assert shard_names(3, 1) == ["test/test_0000.npy", "train/train_0000.npy", "train/train_0001.npy"]


@pytest.mark.parametrize(("shards", "first"), [(10_001, "test/test_0000.npy"), (10_002, "test/test_00000.npy")])
def test_numpy_listing_order_is_stream_order_beyond_four_digits(shards, first):
    names = shard_names(shards, 1)
    assert names[0] == first
    assert names == sorted(names)
    assert len(set(names)) == shards


FAULTS = {
    # name of the fault -> damage, byte within the header, or from the end of the five tokens
    "magic": (put(0, b"\x94"), 0),
    "version": (put(6, b"\x02"), 6),
    "dtype": (put(21, b"<i"), 22),
    "shape": (put(60, b"(4,)"), 61),
    "header cut": (keep(100), 100),
    "no tokens": (keep(128), 128),
    "truncated": (keep(-1), -1),
    "junk": (append(b"\0"), None),
}


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
@pytest.mark.parametrize("fault", FAULTS)
def test_numpy_verify_names_the_byte_of(tmp_path, dtype, fault):
    path = tmp_path / "x.npy"
    end = write_shard(path, [np.arange(5, dtype=dtype)], 5, np.dtype(dtype))["bytes"]
    damage, at = FAULTS[fault]
    path.write_bytes(damage(path.read_bytes()))
    with raises("numpy.header_differs numpy.shard_size", f"{path}, byte {range(end)[at] if at is not None else end}\n"):
        verify_shard(path, tokens=5, dtype=np.dtype(dtype), vocabulary_size=10)
    with raises("numpy.header_malformed"):
        open_shard(path)


@pytest.mark.parametrize(("dtype", "layout"), [("<u2", "<H"), ("<u4", "<I")])
def test_numpy_verify_names_the_byte_of_an_id_beyond_the_vocabulary(tmp_path, dtype, layout):
    path = tmp_path / "x.npy"
    write_shard(path, [np.arange(5, dtype=dtype)], 5, np.dtype(dtype))
    at = 128 + 3 * np.dtype(dtype).itemsize
    path.write_bytes(put_number(at, layout, 10)(path.read_bytes()))
    with raises("export.id_not_in_vocabulary", "token 3 ", f"byte {at}\n"):
        verify_shard(path, tokens=5, dtype=np.dtype(dtype), vocabulary_size=10)


def test_raw_file_of_more_tokens_than_a_header_can_count_opens(tmp_path):
    with (tmp_path / "train.bin").open("wb") as file:
        file.truncate(2 * ((1 << 31) + 600))
    assert len(open_shard(tmp_path / "train.bin", np.dtype("<u2"))) == (1 << 31) + 600


def test_raw_file_of_zeros_is_read_as_tokens_and_not_as_a_header(tmp_path):
    np.zeros(512, "<u2").tofile(tmp_path / "train.bin")
    assert len(open_shard(tmp_path / "train.bin", np.dtype("<u2"))) == 512
    about = Readable(FramingConfig(), np.dtype("<u2"))
    ((tokens, lengths),) = FORMATS["numpy"].blocks(tmp_path / "train.bin", about)
    assert (len(tokens), lengths.tolist()) == (512, [512])


@pytest.mark.parametrize(
    ("tokens", "wanted", "told"),
    [
        (2_500, {}, "2 shards, so val gets 80 % of the tokens instead of 10 %"),
        (4_000, {}, "2 shards, so val gets 50 % of the tokens instead of 10 %"),
        (900, {}, "1 shard, so val gets 0 % of the tokens instead of 10 %"),
        (20_000, {}, ""),
        (20_000, {"test_share": 0.001}, "val gets 10 % of the tokens instead of 0.1 %"),
        (20_000, {"test_share": 0.8}, "50 % of the tokens instead of 80 %: no more than half can be held out"),
        (900, {"test_share": 0.0}, ""),
        (20_000, {"test_shards": 3}, ""),
        (20_000, {"test_shards": 7}, "val gets 5 of the 7 test_shards"),
        (3_900, {"merge_rest": True}, "1 shard, so val gets 0 % of the tokens instead of 10 %"),
        (3_900, {"merge_rest": True, "test_shards": 1}, "val gets 0 of the 1 test_shards"),
        (5_900, {"merge_rest": True, "test_share": 0.2}, ""),
        (5_900, {"layout": "bin", "tokens_per_shard": 10**9}, ""),
        (5_900, {"layout": "bin", "test_share": 0.8}, "50 % of the tokens instead of 80 %: no more than half"),
    ],
)
def test_split_that_the_files_cannot_give_is_told(tokens: int, wanted: dict[str, Any], told: str) -> None:
    values = {"layout": "llmc", "tokens_per_shard": 2_000} | wanted
    doubt = FORMATS["numpy"].doubt(ExportsConfig.model_validate({"numpy": values}), 0, tokens)
    assert told in doubt
    assert bool(doubt) == bool(told)


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.floats(0.001, 0.5), st.booleans())
def test_split_that_is_not_doubted_is_near_what_was_asked_and_the_advice_is_right(
    tokens: int, shard_tokens: int, held_out: float, merge_rest: bool
) -> None:
    def doubt_of(size: int) -> str:
        values = {"layout": "llmc", "tokens_per_shard": size, "test_share": held_out, "merge_rest": merge_rest}
        return FORMATS["numpy"].doubt(ExportsConfig.model_validate({"numpy": values}), 0, tokens)

    sizes = oracle.shard_sizes(tokens, shard_tokens, merge_rest)
    held = min(max(1, int(held_out * len(sizes) + 0.5)), len(sizes) // 2)
    near = held_out / 2 <= sum(sizes[:held]) / tokens <= held_out * 2
    doubt = doubt_of(shard_tokens)
    assert near == (not doubt)
    advised = re.findall(r"to ([\d,]+) or less", doubt)
    if advised and advised != ["1"]:
        assert not doubt_of(int(advised[0].replace(",", "")))


@given(st.integers(0, 10**4), st.integers(1, 10**3), st.booleans())
def test_shards_are_those_of_a_plain_cut(tokens: int, shard_tokens: int, merge_rest: bool) -> None:
    bounds = shard_bounds(tokens, shard_tokens, merge_rest=merge_rest)
    assert [last - first for first, last in pairwise(bounds)] == oracle.shard_sizes(tokens, shard_tokens, merge_rest)
