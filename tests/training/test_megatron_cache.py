"""Samples read from an index cache are the windows of the stream that the cache was made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.training.megatron_cache import cached_runs
from tests.oracles.megatron_cache import save, write_blend, write_draws
from tests.raising import raises

LENGTHS = [5, 40, 1, 17, 3, 3, 60, 1, 1, 9]


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    sequence=st.integers(1, 24),
    samples=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_samples_of_any_cache_are_the_windows_of_its_stream(tmp_path_factory, lengths, sequence, samples, seed) -> None:
    folder = tmp_path_factory.mktemp("cache")
    drawn = write_draws(folder, "/x/web", lengths, samples=samples, sequence=sequence, seed=seed)[1]
    (run,) = cached_runs(folder)
    assert len(run) == len(drawn) >= samples
    for number, expected in enumerate(drawn):
        draws, item = run.sample(number)
        draws.require_totals(np.array(lengths, np.int32))
        spans = draws.spans(item, np.array(lengths, np.int32))
        assert [(ordinal, token) for ordinal, first, last in spans for token in range(first, last)] == expected
        assert all(first < last for _, first, last in spans)


def test_samples_of_a_split_are_those_of_its_sequences_alone(tmp_path: Path) -> None:
    drawn = write_draws(tmp_path, "/x/web", LENGTHS, samples=20, train=0.6)[1]
    (run,) = cached_runs(tmp_path)
    draws = run.parts[0]
    assert draws.sequences(len(LENGTHS)) == range(6)
    draws.require_totals(np.array(LENGTHS, np.int32))
    assert {ordinal for sample in drawn for ordinal, _ in sample} <= set(range(6))


def test_runs_of_a_cache_are_its_blends_and_the_prefixes_that_are_in_none(tmp_path: Path) -> None:
    a, _ = write_draws(tmp_path, "/x/a", LENGTHS, samples=9)
    b, _ = write_draws(tmp_path, "/x/b", LENGTHS, samples=9)
    write_draws(tmp_path, "/x/c", LENGTHS, samples=9)
    order = [(0, 0), (1, 0), (1, 1), (0, 1), (1, 2)]
    write_blend(tmp_path, [a, b], order)
    blend, alone = cached_runs(tmp_path)
    assert [part.prefix for part in blend.parts] == ["/x/a", "/x/b"]
    assert [part.prefix for part in alone.parts] == ["/x/c"]
    drawn = [blend.sample(number) for number in range(len(blend))]
    assert [(draws.prefix[-1], number) for draws, number in drawn] == [("ab"[which], number) for which, number in order]


def the_file(folder: Path, name: str) -> Path:
    (path,) = folder.glob(f"*{name}")
    return path


def rewritten(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        path = the_file(folder, name)
        np.save(path, change(np.load(path)))

    return rewrite


def cut_in_half(folder: Path) -> None:
    path = the_file(folder, "sample_index.npy")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES = {
    "truncated": (cut_in_half, "array_not_readable"),
    "missing": (lambda folder: the_file(folder, "document_index.npy").unlink(), "array_not_readable"),
    "pickled": (rewritten("document_index.npy", lambda array: array.astype(object)), "array_not_readable"),
    "floats": (rewritten("sample_index.npy", lambda array: array.astype(float)), "array_form"),
    "one_column": (rewritten("sample_index.npy", lambda array: array[:, 0]), "array_form"),
    "no_rows": (rewritten("shuffle_index.npy", lambda array: array[0]), "array_form"),
    "foreign_document": (rewritten("document_index.npy", lambda array: array + 5), "files_differ"),
    "negative_document": (rewritten("document_index.npy", lambda array: array - 9), "files_differ"),
    "other_starts": (rewritten("sample_index.npy", lambda array: array + np.array([0, 1])), "files_differ"),
    "negative_starts": (rewritten("sample_index.npy", lambda array: array - np.array([0, 3])), "files_differ"),
    "backwards": (rewritten("sample_index.npy", lambda array: array[::-1]), "files_differ"),
    "far_row": (rewritten("shuffle_index.npy", lambda array: array.astype(np.int64) + 10**9), "files_differ"),
    "negative_row": (rewritten("shuffle_index.npy", lambda array: array.astype(np.int64) - 10**9), "files_differ"),
    "fewer_samples": (rewritten("shuffle_index.npy", lambda array: array[:-1]), "files_differ"),
    "part_of_an_epoch": (rewritten("document_index.npy", lambda array: array[:-1]), "files_differ"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_cache_that_was_damaged_is_refused(tmp_path: Path, damage: str) -> None:
    write_draws(tmp_path, "/x/web", LENGTHS, samples=20)
    apply, code = DAMAGES[damage]
    apply(tmp_path)
    lengths = np.array(LENGTHS, np.int32)
    with raises(f"index_cache.{code}"):
        read_all(tmp_path, lengths)


def read_all(folder: Path, lengths: np.ndarray) -> None:
    (run,) = cached_runs(folder)
    draws = run.parts[0]
    draws.require_totals(lengths)
    for number in range(len(run)):
        draws.spans(number, lengths)


@pytest.mark.parametrize("lengths", [[*LENGTHS, 4], LENGTHS[:-1], [item + 1 for item in LENGTHS], LENGTHS[::-1]])
def test_cache_of_files_that_changed_is_refused(tmp_path: Path, lengths: list[int]) -> None:
    write_draws(tmp_path, "/x/web", LENGTHS, samples=20)
    with raises("index_cache.files_differ"):
        read_all(tmp_path, np.array(lengths, np.int32))


@pytest.mark.parametrize(("which", "number"), [(2, 0), (-1, 0), (0, 10**6), (1, -1)])
def test_blend_that_draws_what_is_not_there_is_refused(tmp_path: Path, which: int, number: int) -> None:
    parts = [write_draws(tmp_path, f"/x/{name}", LENGTHS, samples=9)[0] for name in "ab"]
    write_blend(tmp_path, parts, [(0, 0), (which, number)])
    run = cached_runs(tmp_path)[0]
    assert run.sample(0)[1] == 0
    with raises("index_cache.blend_beyond_samples"):
        run.sample(1)


def test_description_that_was_changed_is_refused(tmp_path: Path) -> None:
    write_draws(tmp_path, "/x/web", LENGTHS, samples=20, seed=1)
    path = the_file(tmp_path, "description.txt")
    path.write_text(path.read_text().replace('"random_seed": 1', '"random_seed": 2'))
    with raises("index_cache.description_changed"):
        cached_runs(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 10**5, '{"random_seed": 1}', "\udcff"])
def test_description_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "0-GPTDataset-train-description.txt").write_bytes(text.encode(errors="surrogateescape"))
    with raises("index_cache.description_changed", "other JSON, or none"):
        cached_runs(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"sequence_length": 0},
        {"sequence_length": "long"},
        {"random_seed": None},
        {"split_matrix": [None, [0, 1], None]},
        {"split_matrix": [[0, 10**400], None, None]},
        {"split_matrix": [[-5, 1], None, None]},
        {"dataset_path": ""},
        {"datasets": 7},
        {"datasets": []},
        {"datasets": [[]]},
    ],
)
def test_description_that_says_something_else_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    description, _ = write_draws(tmp_path / "whole", "/x/web", LENGTHS, samples=20)
    save(tmp_path / "changed", description | change, {})
    with raises("index_cache.description_changed"):
        cached_runs(tmp_path / "changed")


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_folder_without_a_cache_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with raises("index_cache.missing"):
        cached_runs(tmp_path / name)
