"""Merging parts: the bytes of one write of everything, whatever the parts."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.export import megatron, nanoset
from corpusmill.inspect.datasets.merge import merge_exports, merge_files, merge_parts
from tests.oracles import export as oracle
from tests.raising import raises
from tests.system.described import describe

EOD = 50_256
parts_of_documents = st.lists(
    st.lists(st.lists(st.integers(0, 50_000), min_size=1, max_size=9), min_size=1, max_size=6), min_size=1, max_size=5
)


def write_megatron(folder: Path, name: str, docs: list[list[int]], vocabulary_size: int = 50_257) -> Path:
    dtype = megatron.token_dtype(vocabulary_size)
    batches = oracle.batches_of(docs, "u2", [])
    megatron.write_part(folder, name, batches, dtype=dtype, eod_id=EOD, vocabulary_size=vocabulary_size)
    return folder / name


def write_nanoset(folder: Path, name: str, docs: list[list[int]], tokenizer_name: str = "gpt2") -> Path:
    batches = oracle.batches_of(docs, "u2", [])
    nanoset.write_file(folder, name, batches, eos_id=EOD, tokenizer_name=tokenizer_name, vocabulary_size=50_257)
    return folder / f"{name}.ds"


def contents(folder: Path, stem: str) -> dict[str, bytes]:
    return {path.name.removeprefix(stem): path.read_bytes() for path in sorted(folder.glob(f"{stem}.*"))}


@given(parts=parts_of_documents)
def test_merge_parts_is_the_bytes_of_one_write(tmp_path_factory, parts) -> None:
    folder = tmp_path_factory.mktemp("merge")
    prefixes = [write_megatron(folder, f"p{number}", docs) for number, docs in enumerate(parts)]
    everything = [doc for docs in parts for doc in docs]
    write_megatron(folder, "whole", everything)
    counts = merge_parts(prefixes, folder / "merged")
    assert contents(folder, "merged") == contents(folder, "whole")
    assert counts["documents"] == len(everything)
    assert counts["tokens"] == sum(map(len, everything)) + len(everything)


@given(parts=parts_of_documents)
def test_merge_files_is_the_bytes_of_one_write(tmp_path_factory, parts) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = [write_nanoset(folder, f"p{number}", docs) for number, docs in enumerate(parts)]
    write_nanoset(folder, "whole", [doc for docs in parts for doc in docs])
    merge_files(paths, folder / "merged.ds")
    assert contents(folder, "merged") == contents(folder, "whole")


def test_merge_parts_several_sequences_and_empty_documents_keep_their_boundaries(tmp_path) -> None:
    """What Megatron's own tool writes for `[5,6]`, ``, `[9]`: two sequences, three documents, boundaries 0 1 1 2."""
    prefix = write_megatron(tmp_path, "classic", [[5], [9]])
    index = prefix.with_name("classic.idx")
    head = megatron.HEADER.pack(megatron.MAGIC, 1, 8, 2, 4)
    index.write_bytes(head + index.read_bytes()[34 : 34 + 24] + np.array([0, 1, 1, 2], "<i8").tobytes())
    merge_parts([prefix, prefix.with_name("classic"), prefix], tmp_path / "merged")
    merged = megatron.open_part(tmp_path / "merged")
    assert merged.boundaries.tolist() == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6]
    assert [merged.sequence(number).tolist() for number in range(6)] == [[5, EOD], [9, EOD]] * 3
    assert [merged.document(number).tolist() for number in range(9)] == [[5, EOD], [], [9, EOD]] * 3


def test_merge_exports_folder_is_read_in_natural_order(tmp_path) -> None:
    for number in (10, 2, 1):
        write_megatron(tmp_path, f"p{number}", [[number]])
    (tmp_path / "out").mkdir()
    merge_exports([tmp_path], tmp_path / "out" / "m")
    merged = megatron.open_part(tmp_path / "out" / "m")
    assert [int(merged.document(number)[0]) for number in range(3)] == [1, 2, 10]


def test_merge_parts_different_widths_are_refused_with_both(tmp_path) -> None:
    prefixes = [write_megatron(tmp_path, "narrow", [[1]]), write_megatron(tmp_path, "wide", [[1]], 70_000)]
    with raises("merge.widths_differ", "uint16", "int32"):
        merge_parts(prefixes, tmp_path / "merged")
    assert not list(tmp_path.glob("merged*"))


def test_merge_files_different_tokenizers_are_refused_with_both(tmp_path) -> None:
    paths = [write_nanoset(tmp_path, "a", [[1]]), write_nanoset(tmp_path, "b", [[1]], tokenizer_name="other")]
    with raises("merge.tokenizers_differ", "gpt2|2", "other|2"):
        merge_files(paths, tmp_path / "merged.ds")


@pytest.mark.parametrize("change", [-2, 2])
def test_merge_parts_tokens_that_do_not_fit_the_index_are_refused(tmp_path, change: int) -> None:
    prefix = write_megatron(tmp_path, "p", [[1, 2, 3]])
    data = prefix.with_name("p.bin").read_bytes()
    prefix.with_name("p.bin").write_bytes(data[:change] if change < 0 else data + b"\0" * change)
    with raises("export.token_file_size"):
        merge_parts([prefix], tmp_path / "merged")


def test_merge_files_tokens_that_do_not_fit_the_index_are_refused(tmp_path) -> None:
    path = write_nanoset(tmp_path, "p", [[1, 2, 3]])
    path.write_bytes(path.read_bytes()[:-2])
    with raises("export.token_file_size"):
        merge_files([path], tmp_path / "merged.ds")


def write_masked(folder: Path, name: str, docs: list[list[int]], mask: bytes) -> Path:
    path = write_nanoset(folder, name, docs)
    nanoset.loss_path(path).write_bytes(mask)
    return path


def test_merge_files_loss_masks_are_concatenated(tmp_path) -> None:
    paths = [write_masked(tmp_path, "a", [[1, 2]], b"\1\0\1"), write_masked(tmp_path, "b", [[3]], b"\0\1")]
    merge_files(paths, tmp_path / "merged.ds")
    assert nanoset.loss_path(tmp_path / "merged.ds").read_bytes() == b"\1\0\1\0\1"


@pytest.mark.parametrize("masked", [0, 1])
def test_merge_files_loss_mask_beside_some_files_only_is_refused(tmp_path, masked: int) -> None:
    paths = [write_nanoset(tmp_path, name, [[1, 2]]) for name in "ab"]
    nanoset.loss_path(paths[masked]).write_bytes(b"\1\0\1")
    with raises("merge.loss_mask_missing"):
        merge_files(paths, tmp_path / "merged.ds")
    assert not list(tmp_path.glob("merged*"))


def test_merge_files_loss_mask_of_another_length_is_refused(tmp_path) -> None:
    with raises("merge.loss_mask_differs"):
        merge_files([write_masked(tmp_path, "a", [[1, 2]], b"\1\0")], tmp_path / "merged.ds")
    assert not list(tmp_path.glob("merged*"))


def test_merge_files_stale_loss_mask_under_the_output_name_is_refused(tmp_path) -> None:
    path = write_nanoset(tmp_path, "a", [[1, 2]])
    (tmp_path / "merged.ds.loss").write_bytes(b"\1\1\1")
    with raises("output.exists"):
        merge_files([path], tmp_path / "merged.ds")


@pytest.mark.parametrize(("output", "name"), [("corpus-1.5B", "corpus-1.5B.ds"), ("c-1.5B.ds", "c-1.5B.ds")])
def test_merge_exports_dot_in_the_output_name_is_no_extension(tmp_path, output: str, name: str) -> None:
    (tmp_path / "out").mkdir()
    merge_exports([write_nanoset(tmp_path, "a", [[1, 2]])], tmp_path / "out" / output)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {name, f"{name}.index", f"{name}.metadata"}


def test_merge_output_that_is_there_is_refused_and_kept(tmp_path) -> None:
    prefix = write_megatron(tmp_path, "p", [[1, 2, 3]])
    before = contents(tmp_path, "p")
    with raises("output.exists"):
        merge_parts([prefix], prefix)
    assert contents(tmp_path, "p") == before
    with raises("merge.nothing"):
        merge_parts([], tmp_path / "merged")


def test_merge_folder_of_both_formats_is_refused(tmp_path) -> None:
    write_megatron(tmp_path, "p", [[1]])
    write_nanoset(tmp_path, "q", [[1]])
    with raises("merge.several_formats"):
        merge_exports([tmp_path], tmp_path / "merged")


@pytest.mark.parametrize("tokens", [2, 2047, 2048, 2049, 4096, 10_001])
def test_merge_tokens_of_any_number_of_windows_and_writes_are_copied_whole(tmp_path, monkeypatch, tokens) -> None:
    monkeypatch.setattr(
        "corpusmill.inspect.datasets.merge.WINDOW_BYTES", 4096
    )  # 2,048 tokens; a mapping begins at a page
    monkeypatch.setattr("corpusmill.inspect.datasets.merge.WRITE_BYTES", 1000)
    documents = [[7] * (tokens - 1), list(range(tokens)), [1]]
    prefixes = [write_megatron(tmp_path, f"p{number}", [document]) for number, document in enumerate(documents)]
    merge_parts(prefixes, tmp_path / "merged")
    write_megatron(tmp_path, "whole", documents)
    assert contents(tmp_path, "merged") == contents(tmp_path, "whole")


def test_merge_that_finds_no_space_says_so_and_leaves_nothing(tmp_path, monkeypatch) -> None:
    prefix = write_megatron(tmp_path, "p", [[1, 2, 3]])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    (tmp_path / "out").mkdir()
    with raises("export.disk_full"):
        merge_parts([prefix], tmp_path / "out" / "merged")
    assert not list((tmp_path / "out").iterdir())


def test_merge_offsets_beyond_two_gib_stay_exact(tmp_path, monkeypatch) -> None:
    """A sparse part of 2^31 + 6 bytes, then a small one: pointers are 64-bit. The copy is of holes."""
    prefix = write_megatron(tmp_path, "big", [[1], [2]])
    with prefix.with_name("big.bin").open("r+b") as file:
        file.truncate((1 << 31) + 6)
    index = bytearray(prefix.with_name("big.idx").read_bytes())
    index[34:42] = np.array([1, (1 << 30) + 2], "<i4").tobytes()
    index[42:58] = np.array([0, 2], "<i8").tobytes()
    prefix.with_name("big.idx").write_bytes(index)
    small = write_megatron(tmp_path, "small", [[7, 8]])
    # 2 GiB on disk would prove nothing more.
    monkeypatch.setattr("corpusmill.inspect.datasets.merge._concatenate", lambda _paths, _data: None)
    merge_parts([prefix, small], tmp_path / "merged")
    pointers = np.frombuffer((tmp_path / "merged.idx").read_bytes(), "<i8", 3, 34 + 12)
    assert pointers.tolist() == [0, 2, (1 << 31) + 6]


def test_merge_output_in_a_folder_that_is_not_there_makes_it(tmp_path) -> None:
    item = write_nanoset(tmp_path, "one", [[1, 2]])
    output = tmp_path / "new" / "folder" / "all.ds"
    assert merge_exports([item], output)["documents"] == 1
    assert output.read_bytes() == item.read_bytes()


def test_merge_glob_that_names_both_halves_of_a_part_takes_it_once(tmp_path) -> None:
    """`merge megatron/*`, as a shell expands it, doubled every document."""
    for number in range(2):
        write_megatron(tmp_path, f"p{number}", [[number, 7]])
        write_masked(tmp_path, f"n{number}", [[number, 7]], b"\1\1\1")
    write_megatron(tmp_path, "whole", [[0, 7], [1, 7]])
    counts = merge_exports(sorted(tmp_path.glob("p*")), tmp_path / "merged")
    assert (counts["parts"], counts["documents"]) == (2, 2)
    assert contents(tmp_path, "merged") == contents(tmp_path, "whole")
    assert merge_exports(sorted(tmp_path.glob("n*")), tmp_path / "merged.ds")["documents"] == 2


@pytest.mark.parametrize(
    ("write", "first", "second"),
    [
        (write_megatron, "v1/p.bin", "v1/p.bin"),
        (write_megatron, "v1/p", "v1/p.idx"),
        (write_megatron, "v1/p", "latest/p"),
        (write_megatron, "v1", "latest/p.bin"),
        (write_megatron, "v1", "latest"),
        (write_nanoset, "v1/p.ds", "v1/../v1/p.ds"),
        (write_nanoset, "latest", "v1/p.ds"),
    ],
)
def test_merge_part_named_twice_is_refused(tmp_path, write, first: str, second: str) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "latest").symlink_to("v1")
    write(tmp_path / "v1", "p", [[1, 2]])
    with raises("merge.part_twice"):
        merge_exports([tmp_path / first, tmp_path / second], tmp_path / "out" / "merged")
    assert not (tmp_path / "out").exists()


def finished(folder: Path, write, vocabulary: str = "gpt2") -> Path:
    """A finished dataset of two files, described as a build describes it."""
    (folder / "format").mkdir(parents=True)
    for number in range(2):
        write(folder / "format", f"p{number}", [[number, 7]])
    describe(folder, folder.glob("format/*"), vocabulary)
    return folder / "format"


@pytest.mark.parametrize(
    ("write", "missing"),
    [(write_megatron, [".bin", ".idx"]), (write_nanoset, [".ds", ".ds.index", ".ds.metadata"])],
)
def test_merge_folder_of_a_dataset_with_a_missing_file_is_refused(tmp_path, write, missing: list[str]) -> None:
    folder = finished(tmp_path / "web", write)
    for ending in missing:
        (folder / f"p1{ending}").unlink()
    with raises("dataset.file_damaged", f"p1{missing[0]}"):
        merge_exports([folder], tmp_path / "merged")
    assert not list(tmp_path.glob("merged*"))
    one = folder / f"p0{missing[0]}"  # named by itself, a file is what the user wants
    assert merge_exports([one], tmp_path / "one")["documents"] == 1


@pytest.mark.parametrize(("write", "ending"), [(write_megatron, ".idx"), (write_nanoset, ".ds")])
@pytest.mark.parametrize("second", ["web/v2", "copy/v1"])
def test_merge_parts_of_two_versions_or_copies_are_refused(tmp_path, write, ending: str, second: str) -> None:
    """Documents of both would appear twice."""
    folders = [finished(tmp_path / place, write) for place in ("web/v1", second)]
    (tmp_path / "web/latest").symlink_to("v1")
    for inputs in (folders, [folder / f"p{number}{ending}" for number, folder in enumerate(folders)]):
        with raises("merge.versions_differ", str(folders[1])):
            merge_exports(inputs, tmp_path / "merged")
    assert not list(tmp_path.glob("merged*"))
    one = [folders[0] / f"p0{ending}", tmp_path / "web/latest/format" / f"p1{ending}"]
    assert merge_exports(one, tmp_path / "one")["documents"] == 2


@pytest.mark.parametrize(("write", "ending"), [(write_megatron, ".bin"), (write_nanoset, ".ds")])
def test_merge_parts_of_two_vocabularies_of_one_width_are_refused(tmp_path, write, ending: str) -> None:
    folders = [finished(tmp_path / name, write, vocabulary=name) for name in ("gpt2", "other")]
    for number, folder in enumerate(folders):
        described = folder.parent / "dataset.json"
        described.write_text(described.read_text().replace('"web"', f'"web{number}"'))
    with raises("merge.vocabularies_differ", "name gpt2", "name other"):
        merge_exports([folder / f"p0{ending}" for folder in folders], tmp_path / "merged")
    assert not list(tmp_path.glob("merged*"))


def test_merge_files_of_two_widths_are_refused_with_both(tmp_path) -> None:
    paths = [write_nanoset(tmp_path, name, [[1]]) for name in ("narrow", "wide")]
    wide = oracle.nanoset([[1]], EOD, 4)
    paths[1].write_bytes(wide[0])
    nanoset.metadata_path(paths[1]).write_bytes(nanoset.metadata_text("gpt2", 4, 2))
    with raises("merge.tokenizers_differ", "gpt2|2", "gpt2|4"):
        merge_files(paths, tmp_path / "merged.ds")
    assert not list(tmp_path.glob("merged*"))


@pytest.mark.parametrize("first", [write_megatron, write_nanoset])
def test_merge_part_of_each_format_is_refused(tmp_path, first) -> None:
    paths = {write_megatron: tmp_path / "p", write_nanoset: tmp_path / "q.ds"}
    for write, path in paths.items():
        write(tmp_path, path.stem, [[1]])
    inputs = sorted(paths.values(), key=lambda path: path != paths[first])
    with raises("export.file_missing"):
        merge_exports(inputs, tmp_path / "merged")
    assert not list(tmp_path.glob("merged*"))


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["part-0-00000.npy", "part-0-00000.csv.gz"], "merge.no_part merge.several_formats"),
        (["shard_00000000.tar"], "merge.no_part merge.several_formats"),
        (["train-00000.parquet"], "merge.no_part merge.several_formats"),
        (["train_000000.bin", "train_000000.bos.idx"], "export.file_missing"),
    ],
)
def test_merge_file_and_folder_of_a_format_that_is_not_merged_are_refused(tmp_path, names: list[str], code) -> None:
    (tmp_path / "format").mkdir()
    for name in names:
        (tmp_path / "format" / name).write_bytes(bytes(2048))
    for path in (tmp_path / "format", *sorted((tmp_path / "format").iterdir())):
        with raises(code):
            merge_exports([path], tmp_path / "merged")
    assert not list(tmp_path.glob("merged*"))


def test_merge_file_of_another_size_than_its_dataset_states_is_refused(tmp_path) -> None:
    folder = finished(tmp_path / "web", write_nanoset)
    write_nanoset(folder, "p1", [[1, 7, 7]])
    for inputs in ([folder], [folder / "p0.ds", folder / "p1.ds"]):
        with raises("dataset.file_damaged", "another size"):
            merge_exports(inputs, tmp_path / "merged")
    assert merge_exports([folder / "p0.ds"], tmp_path / "one")["documents"] == 1


def test_merge_dataset_json_of_another_program_states_nothing_and_a_damaged_one_is_an_error(tmp_path) -> None:
    folder = finished(tmp_path / "web", write_megatron)
    for number, text in enumerate(("[1]", '{"files": {"a": 1}}', '{"name": "x"}')):
        (tmp_path / "web/dataset.json").write_text(text)
        assert merge_exports([folder], tmp_path / f"merged{number}")["documents"] == 2
    for text in ('{"vocab', "[" * 100_000):
        (tmp_path / "web/dataset.json").write_text(text)
        with raises("dataset.description_changed"):
            merge_exports([folder], tmp_path / "merged")


def test_merge_command_says_what_it_merged(tmp_path) -> None:
    for number in range(2):
        write_nanoset(tmp_path, f"p{number}", [[number]])
    (tmp_path / "out").mkdir()
    done = CliRunner().invoke(app, ["merge", str(tmp_path), "--output", str(tmp_path / "out" / "all.ds")])
    assert done.exit_code == 0, done.output
    assert "2 parts, 2 documents, 4 tokens" in done.output
    assert nanoset.open_file(tmp_path / "out" / "all.ds").total_tokens == 4


def test_merge_parts_memory_does_not_grow_with_the_documents(tmp_path) -> None:
    """Megatron's tool holds 136 bytes a document at its peak; mapped pages are evicted, too (benchmarks/merge.py)."""
    import tracemalloc

    peaks = []
    for documents in (70_000, 700_000):
        ends = np.arange(1, documents + 1, dtype=np.uint64)
        batch = (np.zeros(documents, np.uint16), ends)
        name = f"p{documents}"
        megatron.write_part(tmp_path, name, [batch], dtype=megatron.UINT16, eod_id=1, vocabulary_size=2)
        tracemalloc.start()
        merge_parts([tmp_path / name, tmp_path / name], tmp_path / f"merged{documents}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 1_000_000
