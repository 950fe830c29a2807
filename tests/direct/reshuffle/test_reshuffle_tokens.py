"""`corpusmill shuffle` of token shards and .npy shards: every document once, in another order, the format unchanged."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.direct.reshuffle.folders import ready_inputs, whole_folder
from corpusmill.direct.reshuffle.shards import reshuffle_npy, reshuffle_token_shards
from corpusmill.direct.reshuffle.tars import reshuffle
from corpusmill.export.files import INCOMPLETE
from corpusmill.tokens.token_shard import open_token_shard, write_described_shard
from tests.quick import examples
from tests.raising import raises
from tests.system.described import describe

EOT = 9
ABOUT = {"dtype": "uint16", "tokenizer": "test", "sha256": "0" * 64, "vocabulary_size": 10, "eot_id": EOT}
ABOUT |= {"bos_id": None, "pad_id": EOT, "revision": ""}
DOCUMENTS = st.lists(st.lists(st.integers(0, 8), max_size=7), max_size=20)
SHARDS = st.lists(DOCUMENTS, min_size=1, max_size=4).filter(any)


def write_shards(shards: list[list[list[int]]], folder: Path, **changes: object) -> list[Path]:
    folders = []
    for number, documents in enumerate(shards):
        item = folder / f"{number:05d}"
        item.mkdir(parents=True)
        tokens = np.array([token for document in documents for token in document], np.uint16)
        ends = np.cumsum([len(document) for document in documents], dtype=np.uint64)
        write_described_shard([(tokens, ends)], ABOUT | changes, item)
        folders.append(item)
    return folders


def documents_in(folder: Path) -> list[tuple[int, ...]]:
    shards = [open_token_shard(path) for path in sorted(folder.iterdir())]
    return [tuple(shard.document(ordinal).tolist()) for shard in shards for ordinal in range(shard.documents)]


def options(root: Path, **changes: object) -> dict:
    return {"seed": 3, "memory_bytes": 1 << 20, "scratch": root / "scratch", **changes}


@examples(40)
@given(SHARDS, st.sampled_from([1, 200, 1 << 20]), st.integers(1, 40))
def test_shuffle_only_token_shards_every_document_once_whatever_the_memory(
    tmp_path_factory, shards, memory_bytes: int, size: int
) -> None:
    root = tmp_path_factory.mktemp("tokens")
    folders = write_shards(shards, root / "in")
    done = reshuffle_token_shards(
        folders, root / "out", **options(root, memory_bytes=memory_bytes), tokens_per_shard=size
    )
    expected = [tuple(document) for shard in shards for document in shard]
    assert Counter(documents_in(root / "out")) == Counter(expected)
    assert done.records == len(expected)
    reshuffle_token_shards(folders, root / "again", **options(root), tokens_per_shard=size)
    assert documents_in(root / "again") == documents_in(root / "out")
    sizes = [len(open_token_shard(path).tokens) for path in sorted((root / "out").iterdir())]
    assert all(item < size + 7 for item in sizes)


def test_shuffle_only_token_shards_keep_their_tokenizer_and_change_the_order(tmp_path) -> None:
    shards = [[[number % 8, number // 8] for number in range(50)], [[1]], []]
    reshuffle_token_shards(write_shards(shards, tmp_path / "in"), tmp_path / "out", **options(tmp_path))
    actual = documents_in(tmp_path / "out")
    assert actual != [tuple(document) for shard in shards for document in shard]
    for path in (tmp_path / "out").iterdir():
        assert json.loads((path / "token_shard.json").read_text()) == ABOUT
        assert open_token_shard(path).source_ends.tolist() == [open_token_shard(path).documents]


def test_shuffle_only_token_shards_of_two_tokenizers_are_refused(tmp_path) -> None:
    item = write_shards([[[1, 2]]], tmp_path / "a")
    two = write_shards([[[1, 2]]], tmp_path / "b", eot_id=8)
    with raises("reshuffle.tokenizers_differ", "eot_id: 8"):
        reshuffle_token_shards(item + two, tmp_path / "out", **options(tmp_path))
    assert not (tmp_path / "out").exists()


def write_npy(stream: list[int], size: int, folder: Path, name: str = "train_{:04d}.npy") -> list[Path]:
    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, len(stream), size)):
        np.save(folder / name.format(number), np.array(stream[first : first + size], np.uint32))
    return sorted(folder.glob("*.npy"))


def stream_in(folder: Path) -> list[int]:
    return [token for path in sorted(folder.glob("*.npy")) for token in np.load(path).tolist()]


def documents_of(stream: list[int]) -> tuple[list[int], list[tuple[int, ...]]]:
    """(what stands before the first EOT, the documents with their EOT)."""
    begins = [at for at, token in enumerate(stream) if token == EOT]
    return stream[: begins[0]], [tuple(stream[a:b]) for a, b in pairwise([*begins, len(stream)])]


@examples(60)
@given(
    st.lists(st.integers(0, 8), max_size=9),
    DOCUMENTS.filter(bool),
    st.integers(1, 12),
    st.sampled_from([1, 90, 1 << 20]),
)
def test_shuffle_only_npy_documents_that_straddle_files_stay_whole(
    tmp_path_factory, head, documents, size: int, memory_bytes: int
) -> None:
    root = tmp_path_factory.mktemp("npy")
    stream = head + [token for document in documents for token in (EOT, *document)]
    files = write_npy(stream, size, root / "in")
    done = reshuffle_npy(files, root / "out", **options(root, memory_bytes=memory_bytes), eot_id=EOT)
    actual = stream_in(root / "out")
    assert documents_of(actual)[0] == head
    assert Counter(documents_of(actual)[1]) == Counter(documents_of(stream)[1])
    assert done.records == len(documents)
    assert [path.name for path in sorted((root / "out").iterdir())] == [path.name for path in files]
    assert [len(np.load(path)) for path in sorted((root / "out").iterdir())] == [len(np.load(path)) for path in files]


@examples(40)
@given(st.integers(1, 200), st.integers(1, 30), st.integers(1, 20), st.sampled_from([1, 90, 1 << 20]))
def test_shuffle_only_npy_slices_of_a_length_every_one_once_and_the_rest_last(
    tmp_path_factory, tokens: int, size: int, length: int, memory_bytes: int
) -> None:
    root = tmp_path_factory.mktemp("npy")
    files = write_npy(list(range(tokens)), size, root / "in")
    reshuffle_npy(files, root / "out", **options(root, memory_bytes=memory_bytes), context_tokens=length)
    actual, whole = stream_in(root / "out"), tokens // length * length
    slices = [actual[at : at + length] for at in range(0, whole, length)]
    assert sorted(slices) == [list(range(at, at + length)) for at in range(0, whole, length)]
    assert actual[whole:] == list(range(whole, tokens))


def test_shuffle_only_npy_blocks_smaller_than_documents_change_nothing(tmp_path, monkeypatch) -> None:
    stream = [token for number in range(40) for token in (EOT, *([number % 8] * (number % 23)))]
    files = write_npy(stream, 100, tmp_path / "in")
    actual = []
    for block in (1 << 20, 7):
        monkeypatch.setattr("corpusmill.direct.reshuffle.shards.BLOCK_TOKENS", block)
        reshuffle_npy(files, tmp_path / str(block), **options(tmp_path), eot_id=EOT)
        actual.append(stream_in(tmp_path / str(block)))
    assert actual[0] == actual[1]
    assert actual[0] != stream


def test_shuffle_only_npy_numbers_beyond_their_digits_are_read_in_stream_order(tmp_path) -> None:
    """Jaxformer's train_10000 sorts before its train_9999."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, tokens in ((9999, [EOT, 1]), (10000, [2, EOT, 3])):
        np.save(folder / f"train_{number:04d}.npy", np.array(tokens, np.uint16))
    reshuffle_npy(sorted(folder.iterdir()), tmp_path / "out", **options(tmp_path), eot_id=EOT)
    assert sorted(documents_of(stream_in(tmp_path / "out"))[1]) == [(EOT, 1, 2), (EOT, 3)]


def test_shuffle_only_npy_two_splits_and_no_eot_and_no_record_are_refused(tmp_path) -> None:
    train = write_npy([EOT, 1, 2], 5, tmp_path / "train")
    test = write_npy([EOT, 1, 2], 5, tmp_path / "test", "test_{:04d}.npy")
    with raises("reshuffle.not_one_series"):
        reshuffle_npy(train + test, tmp_path / "out", **options(tmp_path), eot_id=EOT)
    with raises("reshuffle.no_document_begins"):
        reshuffle_npy(train, tmp_path / "out", **options(tmp_path), eot_id=7)
    with raises("reshuffle.record_kind"):
        reshuffle_npy(train, tmp_path / "out", **options(tmp_path))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("numbers", [(0, 2), (1, 2, 4), (0, 0)])
def test_shuffle_only_npy_series_with_a_gap_is_refused(tmp_path, numbers: tuple[int, ...]) -> None:
    """Documents run from file to file, so what lies before and after the gap would become one."""
    (tmp_path / "in").mkdir()
    for digits, number in enumerate(numbers, 4):
        np.save(tmp_path / f"in/train_{number:0{digits}d}.npy", np.array([EOT, 1], np.uint16))
    with raises("reshuffle.series_with_gap"):
        reshuffle_npy(sorted((tmp_path / "in").iterdir()), tmp_path / "out", **options(tmp_path), eot_id=EOT)
    assert not (tmp_path / "out").exists()


def test_shuffle_only_npy_last_file_of_a_dataset_missing_is_refused(tmp_path) -> None:
    files = write_npy([EOT, 1, 2, EOT, 3], 2, tmp_path / "web/numpy/train")
    describe(tmp_path / "web", files)
    assert len(ready_inputs([str(tmp_path / "web/numpy/train")])[1]) == 3
    files[-1].unlink()
    for folder in ("web/numpy/train", "web"):
        with raises("dataset.file_damaged"):
            ready_inputs([str(tmp_path / folder)])


def test_shuffle_only_stale_output_is_refused_and_a_killed_runs_rest_removed(tmp_path) -> None:
    folders = write_shards([[[1], [2]]], tmp_path / "in")
    (tmp_path / "out" / INCOMPLETE / "00000").mkdir(parents=True)
    reshuffle_token_shards(folders, tmp_path / "out", **options(tmp_path))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["00000"]
    with raises("reshuffle.output_not_empty"):
        reshuffle_token_shards(folders, tmp_path / "out", **options(tmp_path))


def test_shuffle_only_full_disk_is_said_and_leaves_nothing(tmp_path) -> None:
    """/dev/full stands for the disk."""

    def written() -> None:
        with whole_folder(tmp_path / "out") as inner:
            (inner / "00000").write_bytes(b"written before")
            Path("/dev/full").write_bytes(b"x")

    with raises("shuffle.disk_full"):
        written()
    assert list((tmp_path / "out").iterdir()) == []


def test_shuffle_only_inputs_of_two_kinds_of_none_or_twice_are_refused(tmp_path) -> None:
    write_shards([[[1]]], tmp_path / "both/tokens")
    write_npy([EOT, 1], 5, tmp_path / "both/npy")
    (tmp_path / "both/text.jsonl").write_text("{}\n")
    with raises("reshuffle.several_kinds"):
        ready_inputs([str(tmp_path / "both")])
    with raises("reshuffle.several_kinds"):
        ready_inputs([str(tmp_path / "both/text.jsonl")])
    with raises("source.reached_twice"):
        ready_inputs([str(tmp_path / "both/npy"), str(tmp_path / "both/npy/train_0000.npy")])


def test_shuffle_only_truncated_npy_and_token_shard_are_refused(tmp_path) -> None:
    (file,) = write_npy([EOT, 1, 2], 5, tmp_path / "npy")
    file.write_bytes(file.read_bytes()[:-1])
    with raises("numpy.header_malformed"):
        reshuffle_npy([file], tmp_path / "out", **options(tmp_path), eot_id=EOT)
    (folder,) = write_shards([[[1, 2]]], tmp_path / "in")
    (folder / "tokens").write_bytes(b"\1\0")
    with raises("token_shard.files_disagree"):
        reshuffle_token_shards([folder], tmp_path / "out", **options(tmp_path))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["tokens", "npy"])
def test_shuffle_command_takes_tokens_and_says_what_it_did(tmp_path, kind: str) -> None:
    write_shards([[[1, 2], [3]], [[4]]], tmp_path / "tokens")
    write_npy([EOT, 1, 2, EOT, 3, EOT, 4], 4, tmp_path / "npy")
    command = ["shuffle", str(tmp_path / kind), "--output", str(tmp_path / "out"), "--seed", "5"]
    command += ["--work-folder", str(tmp_path / "s"), *(["--eot-id", str(EOT)] if kind == "npy" else [])]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "3 records" in done.output
    assert len(list((tmp_path / "out").iterdir())) == 2
    wrong = CliRunner().invoke(app, [*command, "--context-tokens", "3"])
    assert wrong.exit_code != 0


@pytest.mark.parametrize("kind", ["tokens", "tars"])
def test_shuffle_only_zero_records_are_refused(tmp_path, kind: str) -> None:
    if kind == "tokens":
        write_shards([[], []], tmp_path / "in")
    else:
        (tmp_path / "in").mkdir()
        tarfile.open(tmp_path / "in/a.tar", "w").close()
    actual = ready_inputs([str(tmp_path / "in")])[1]
    run = reshuffle_token_shards if kind == "tokens" else partial(reshuffle, contexts_per_shard=5)
    with raises("reshuffle.no_records"):
        run(actual, tmp_path / "out", **options(tmp_path))
    assert list((tmp_path / "out").iterdir()) == []
