"""datatrove 0.10.1 writes what we write, and reads what we wrote; transformers loads the tokenizer we name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer, DocumentTokenizerMerger
from datatrove.utils.dataset import DatatroveFolderDataset

os.environ["TOKENIZERS_PARALLELISM"] = "false"
IN_ORDER = Path(os.environ["CORPUSMILL_CONSUMER_IN_ORDER"])
ORDERED = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "ordered" / "latest" / "nanoset"
SHUFFLED = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "all" / "latest" / "nanoset"
TOKENIZER = IN_ORDER / "tokenizer" / "tokenizer.json"
EOS_TEXT = "<|endoftext|>"
# (folder, bytes of a token, EOS)
FOLDERS = [(IN_ORDER / "nanoset", 2, 0), (SHUFFLED, 4, 100257)]


def plainly(folder: Path, width: int) -> list[tuple[np.ndarray, list[int]]]:
    """(tokens, ends) of every file in order of name."""
    paths = sorted(folder.glob("*.ds"))
    assert paths
    return [(np.fromfile(path, f"<u{width}"), np.fromfile(f"{path}.index", "<u8").tolist()) for path in paths]


def run(steps: list, folder: Path) -> None:
    LocalPipelineExecutor(steps, logging_dir=str(folder / "log"), workers=1, tasks=1, skip_completed=False).run()


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("datatrove")
    steps = [
        JsonlReader(str(IN_ORDER), glob_pattern="source.jsonl.zst", compression="zstd"),
        DocumentTokenizer(
            str(folder / "out"),
            tokenizer_name_or_path=str(TOKENIZER),
            eos_token=EOS_TEXT,
            shuffle_documents=False,
            save_loss_metadata=True,
        ),
    ]
    run(steps, folder)
    return folder / "out"


@pytest.mark.parametrize("folder", [IN_ORDER / "nanoset", ORDERED], ids=["command", "build"])
@pytest.mark.parametrize("ending", ["", ".index", ".metadata"])
def test_datatrove_document_tokenizer_writes_the_same_bytes(written, folder, ending) -> None:
    theirs = written / f"00000_unshuffled.ds{ending}"
    ours = folder / f"00000_unshuffled.ds{ending}"
    assert ours.read_bytes() == theirs.read_bytes()
    assert theirs.stat().st_size > 0


def test_datatrove_file_names_are_datatroves(written) -> None:
    ours = {path.name for path in (IN_ORDER / "nanoset").iterdir()}
    assert {path.name for path in written.iterdir()} - ours == {"00000_unshuffled.ds.loss"}
    assert all(
        re.fullmatch(r"\d{5}_\d{5}_doc_shuffled\.ds(\.index|\.metadata)?", path.name) for path in SHUFFLED.iterdir()
    )


@pytest.mark.parametrize(("folder", "width", "eos"), FOLDERS)
@pytest.mark.parametrize("sequence", [7, 128, 2048])
def test_datatrove_folder_dataset_reads_every_window(folder, width, eos, sequence) -> None:
    actual = DatatroveFolderDataset(str(folder), seq_len=sequence, token_size=width)
    windows = [
        tokens[first : first + sequence + 1]
        for tokens, _ in plainly(folder, width)
        for first in range(0, len(tokens) - sequence, sequence + 1)
    ]
    assert len(actual) == len(windows)
    assert all(np.array_equal(actual[i]["input_ids"].numpy(), window) for i, window in enumerate(windows))


def positions_of(tokens: np.ndarray, ends: list[int], first: int, count: int) -> list[int]:
    """Position in its document of each of `count` tokens, the window's beginning being 0 in any case."""
    starts = {0, *ends}
    actual = []
    for place in range(first, first + count):
        actual.append(0 if place in starts or place == first else actual[-1] + 1)
    return actual


@pytest.mark.parametrize(("folder", "width", "eos"), FOLDERS)
@pytest.mark.parametrize("from_eos", [False, True])
def test_datatrove_positions_restart_at_every_document(folder, width, eos, from_eos) -> None:
    sequence = 64
    actual = DatatroveFolderDataset(
        str(folder),
        seq_len=sequence,
        token_size=width,
        return_positions=True,
        positions_from_eos_token_id=eos if from_eos else None,
    )
    expected = [
        positions_of(tokens, ends, first, sequence + 1)
        for tokens, ends in plainly(folder, width)
        for first in range(0, len(tokens) - sequence, sequence + 1)
    ]
    got = [actual[i]["positions"].numpy().tolist() for i in range(len(actual))]
    assert got == expected


def test_datatrove_merger_without_shuffle_is_the_concatenation(tmp_path) -> None:
    merger = DocumentTokenizerMerger(str(SHUFFLED), str(tmp_path / "out"), save_filename="merged", shuffle=False)
    merger.run(None, rank=0, world_size=1)
    whole = b"".join(path.read_bytes() for path in sorted(SHUFFLED.glob("*.ds")))
    assert (tmp_path / "out" / "000_merged.ds").read_bytes() == whole


def test_datatrove_autotokenizer_loads_what_the_metadata_names() -> None:
    from transformers import AutoTokenizer

    (path,) = (IN_ORDER / "auto").glob("*.metadata")
    name, size = path.read_text().split("\n")[0].split("|")
    tokenizer = AutoTokenizer.from_pretrained(name)
    assert int(size) == 2
    described = json.loads((Path(name) / "tokenizer.json").read_text())
    added = {item["content"] for item in described["added_tokens"]}
    assert len(tokenizer) == len(added | described["model"]["vocab"].keys())
    tokens, ends = plainly(IN_ORDER / "auto", 2)[0]
    first = tokens[: ends[0]].tolist()
    assert first[-1] == tokenizer.eos_token_id
    text = tokenizer.decode(first[:-1])
    assert tokenizer(text)["input_ids"] == first[:-1]


def test_datatrove_folder_in_a_bucket_is_read(bucket) -> None:
    for path in SHUFFLED.iterdir():
        bucket.upload_file(str(path), f"nanoset/{path.name}")
    near = DatatroveFolderDataset(str(SHUFFLED), seq_len=128, token_size=4, return_positions=True)
    far = DatatroveFolderDataset("s3://datasets/nanoset", seq_len=128, token_size=4, return_positions=True)
    assert len(near) == len(far) > 0
    for i in (0, len(near) // 2, len(near) - 1):
        assert np.array_equal(near[i]["input_ids"], far[i]["input_ids"])
        assert np.array_equal(near[i]["positions"], far[i]["positions"])


def test_nanotron_old_loader_finds_the_ds_files_alone() -> None:
    """`use_old_brrr_dataloader` walks the folder for names that match this and reads them by their size."""
    pattern = re.compile(r".*\.ds$")
    for folder, width, _ in FOLDERS:
        names = sorted(name for _, _, files in os.walk(folder) for name in files if pattern.match(name))
        assert names == sorted(path.name for path in folder.glob("*.ds"))
        assert all((folder / name).stat().st_size % width == 0 for name in names)
        assert all((folder / name).stat().st_size > 0 for name in names)


def traced_tokens(records: list) -> list[int]:
    """The tokens that a traced sample's spans of our files hold."""
    actual = []
    for file, record, first, last, _ in records:
        path = SHUFFLED / f"{Path(file).name}.ds"
        begin = 0 if not record else int(np.fromfile(f"{path}.index", "<u8")[record - 1])
        actual += np.fromfile(path, "<u4")[begin + first : begin + last].tolist()
    return actual


def nanoset_order(windows: int, seed: int) -> np.ndarray:
    """nanotron's Nanoset of one folder: the windows of an epoch in order, then shuffled."""
    order = np.arange(windows)
    np.random.RandomState(seed).shuffle(order)
    return order


@pytest.mark.parametrize("sequence", [31, 500])
@pytest.mark.parametrize("seed", [None, 0, 1234])
def test_trace_samples_of_a_nanoset_are_the_windows_that_datatrove_reads(sequence, seed, traced) -> None:
    folder = DatatroveFolderDataset(
        str(SHUFFLED),
        seq_len=sequence,
        filename_pattern="*.ds",
        recursive=False,
        token_size=4,
        shuffle=seed is not None,
    )
    windows = len(folder)
    order = np.arange(windows) if seed is None else np.tile(nanoset_order(windows, seed), 3)
    first = 0 if seed is None else windows - 10  # into the second epoch
    actual = traced(first=first, count=windows, sequence_tokens=sequence, seed=seed)
    assert len(actual) == windows > 10
    for number, _, records in actual:
        assert folder[int(order[number])]["input_ids"].tolist() == traced_tokens(records)
    if seed is None:
        assert "the run draws fewer samples" in traced(first=1, count=windows, sequence_tokens=sequence)


def drawn_by_nanotron(windows: list[int], weights: list[float], seed: int) -> list[tuple[int, int]]:
    """nanotron 0.4's Nanoset of several folders: (folder, window) of an epoch, as its build_nanoset_index says."""
    shares = np.array(weights) / np.sum(weights)
    drawn = np.zeros(len(windows), np.int64)
    folders, samples = np.empty(sum(windows), np.uint64), np.empty(sum(windows), np.int64)
    for step in range(sum(windows)):
        folder = int(np.argmax(shares * max(step, 1.0) - drawn))
        folders[step], samples[step] = folder, drawn[folder] % windows[folder]
        drawn[folder] += 1
    np.random.RandomState(seed).shuffle(folders)
    np.random.RandomState(seed).shuffle(samples)
    return [*zip(folders.tolist(), samples.tolist(), strict=True)]


def test_trace_samples_of_a_nanoset_mixture_are_the_windows_of_the_folders_in_nanotron_yaml(traced) -> None:
    import yaml

    mixture = Path(os.environ["CORPUSMILL_CONSUMER_MIXTURE"]) / "100,0,0"
    (stage,) = yaml.safe_load((mixture / "nanotron.yaml").read_text())["data_stages"]
    stated = stage["data"]["dataset"]
    folders = [
        DatatroveFolderDataset(folder, seq_len=64, filename_pattern="*.ds", recursive=False, token_size=4, shuffle=True)
        for folder in stated["dataset_folder"]
    ]
    order = drawn_by_nanotron([*map(len, folders)], stated["dataset_weights"], stage["data"]["seed"])
    order += order[:10]  # the second epoch begins like the first
    actual = traced(first=0, count=len(order), mixture=str(mixture / "mixture.json"))
    assert {folder for folder, _ in order} == {0, 1}
    for (folder, window), (_, file, records) in zip(order, actual, strict=True):
        if folder == 0:
            assert folders[0][window]["input_ids"].tolist() == traced_tokens(records)
        else:
            assert (str(Path(stated["dataset_folder"][1]).parent), []) == (file, records)


def test_datatrove_first_window_is_shown(shown) -> None:
    dataset = DatatroveFolderDataset(str(SHUFFLED), seq_len=64, token_size=4)
    window = dataset[0]["input_ids"]

    def every() -> Iterator[Any]:
        return (dataset[number]["input_ids"] for number in range(len(dataset)))

    shown("datatrove", "DatatroveFolderDataset", "nanoset", window, plainly(SHUFFLED, 4)[0][0][:65], every)
