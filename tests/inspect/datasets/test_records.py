"""Records by number: the same arrays that a plain reading of the delivered files gives."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from corpusmill import open_dataset, trace
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.inspect.datasets.dataset import Dataset
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

EOT = "<|endoftext|>"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[DatasetConfig, Path, list[str]]:
    root = tmp_path_factory.mktemp("numbered")
    texts = write_corpus(root / "corpus", documents=40)
    config = check_config(configuration(root, dedup={"mode": "none"}), where="test")
    build_dataset(config, workers=1)
    return config, root / "outputs" / "tiny" / "latest", texts


@pytest.fixture
def dataset(built) -> Dataset:
    return open_dataset(built[1], built[0])


def oracle(folder: Path, export: str) -> list[list[int]]:
    """Every record of an export, read with the standard library and numpy alone."""
    records = []
    for path in sorted(folder.glob(f"{export}/**/*")):
        if path.suffix == ".npy":
            records.append(np.load(path).tolist())
        elif path.suffix == ".tar":
            with tarfile.open(path) as archive:
                records += [json.loads(gzip.decompress(archive.extractfile(one).read())) for one in archive]  # type: ignore[union-attr]
        elif path.suffix == ".ds":
            tokens, ends = np.fromfile(path, "<u4"), np.fromfile(f"{path}.index", "<u8")
            records += [part.tolist() for part in np.split(tokens, ends[:-1].astype(int))]
        elif path.suffix == ".idx":
            index = path.read_bytes()
            sequences = int.from_bytes(index[18:26], "little")
            tokens, lengths = np.fromfile(path.with_suffix(".bin"), "<i4"), np.frombuffer(index, "<i4", sequences, 34)
            records += [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]
    return records


@pytest.mark.parametrize("export", ["megatron", "nanoset", "webdataset", "numpy", "numpy/train", "numpy/test"])
def test_records_of_an_export_by_number_are_those_of_its_files(built, dataset, export: str) -> None:
    expected, records = oracle(built[1], export), dataset[export]
    assert [ids.tolist() for ids in records] == expected != []
    assert [ids.tolist() for ids in dataset.records(export)] == expected
    assert len(records) == len(expected)
    draw = random.Random(5)
    for _ in range(50):
        number = draw.randrange(-len(expected), len(expected))
        assert records[number].tolist() == expected[number]
        part = slice(*(draw.choice([None, draw.randrange(-9, 50)]) for _ in range(2)), draw.choice([None, 1, 2, -1, 7]))
        assert [ids.tolist() for ids in records[part]] == expected[part]
        assert [ids.tolist() for ids in records[part][::-2]] == expected[part][::-2]
    for number in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            records[number]


@pytest.mark.parametrize("export", ["megatron", "nanoset", "numpy/train"])
@pytest.mark.parametrize("tokens", [1, 129, 4999, 5000, 8001])
def test_windows_are_cuts_of_the_stream_across_files(built, dataset, export: str, tokens: int) -> None:
    stream = [token for record in oracle(built[1], export) for token in record]
    windows = dataset[export].windows(tokens)
    assert len(windows) == len(stream) // tokens > 0
    for number in {0, 1, len(windows) // 2, len(windows) - 1} & set(range(len(windows))):
        assert windows[number].tolist() == stream[number * tokens : (number + 1) * tokens]
    assert len(windows[1:]) == len(windows) - 1


def test_windows_of_contexts_or_of_nothing_are_refused(dataset) -> None:
    with raises("dataset.windows_of_contexts"):
        dataset["webdataset"].windows(8)
    with raises("dataset.windows_of_slice"):
        dataset["megatron"][1:].windows(8)
    with raises("dataset.window_tokens"):
        dataset["megatron"].windows(0)


@pytest.mark.parametrize("export", ["megatron", "nanoset"])
def test_text_of_a_record_is_its_source_text(built, dataset, export: str) -> None:
    records = dataset[export]
    actual = sorted(records.text(number).removesuffix(EOT) for number in range(len(records)))
    assert actual == sorted(text for text in built[2] if text)


def test_document_of_a_record_is_what_trace_says_of_its_file(built, dataset) -> None:
    records, bounds = dataset["megatron"], [0]
    bounds += np.cumsum([file["records"] for file in dataset.files("megatron") if "records" in file]).tolist()
    assert len(bounds) > 2
    for number in (0, bounds[1] - 1, bounds[1], len(records) - 1):
        file = int(np.searchsorted(bounds, number, side="right")) - 1
        assert records.document(number) == trace(built[0], "megatron", file, number - bounds[file])


def test_document_without_the_configuration_or_with_another_version_is_refused(built, tmp_path) -> None:
    with raises("dataset.no_configuration"):
        open_dataset(built[1])["megatron"].document(0)
    write_corpus(tmp_path / "corpus", documents=12)
    other = check_config(configuration(tmp_path, dedup={"mode": "none"}), where="test")
    build_dataset(other, workers=1)
    with raises("dataset.other_version"):
        open_dataset(built[1], other)["megatron"].document(0)


def test_records_of_an_export_that_is_not_there_are_refused(dataset) -> None:
    for name in ("mosaic", "", "numpy/valid", "../x"):
        with raises("dataset.no_such_export"):
            dataset[name]


@pytest.mark.parametrize(
    "pattern", ["megatron/*.bin", "megatron/*.idx", "nanoset/*.index", "webdataset/*.tar", "numpy/*/*.npy"]
)
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_damaged_file_is_refused_when_its_first_record_is_read(built, tmp_path, pattern: str, damage: str) -> None:
    shutil.copytree(built[1].resolve(), tmp_path / "copy")
    path = max((tmp_path / "copy").glob(pattern))
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-1])
    with raises("dataset.file_damaged"):
        list(open_dataset(tmp_path / "copy")[pattern.split("/", maxsplit=1)[0]])


def test_records_travel_to_another_process_without_their_open_files(dataset) -> None:
    records = dataset["nanoset"]
    assert records.text(3)  # loads a tokenizer, which cannot travel
    assert records[3].tolist() == pickle.loads(pickle.dumps(records))[3].tolist()  # noqa: S301 (our own)
    windows = dataset["nanoset"].windows(7)
    assert windows[3].tolist() == pickle.loads(pickle.dumps(windows))[3].tolist()  # noqa: S301


def test_records_of_more_files_than_stay_open_are_all_read(built, dataset, monkeypatch) -> None:
    monkeypatch.setattr("corpusmill.inspect.datasets.records.MOST_OPEN", 1)
    for export in ("webdataset", "megatron", "numpy"):
        assert [ids.tolist() for ids in dataset[export]] == oracle(built[1], export)


def test_file_with_fewer_tokens_than_the_description_states_is_refused(built, tmp_path) -> None:
    shutil.copytree(built[1].resolve(), tmp_path / "copy")
    about = json.loads((tmp_path / "copy" / "dataset.json").read_text())
    for file in about["files"]:
        file.update({"slots": file["slots"] + 1000} if "slots" in file else {})
    (tmp_path / "copy" / "dataset.json").write_text(json.dumps(about))
    with raises("dataset.tokens_differ"):
        open_dataset(tmp_path / "copy")["nanoset"].windows(700)


def test_tar_whose_header_is_not_as_written_is_refused(built, tmp_path) -> None:
    """A size that goes backwards would be read for ever."""
    shutil.copytree(built[1].resolve(), tmp_path / "copy")
    path = min((tmp_path / "copy").glob("webdataset/*.tar"))
    content = bytearray(path.read_bytes())
    content[124:136] = b"\xff" * 10 + b"\xfe\x00"
    path.write_bytes(content)
    with raises("tar.header_differs"):
        open_dataset(tmp_path / "copy")["webdataset"][0]
