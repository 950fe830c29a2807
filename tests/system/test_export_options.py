"""Options of the exports and the shuffle, in whole builds."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.cli import app
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.errors import ConfigError
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.inspect.datasets.peek import peek_record
from corpusmill.inspect.lineage import verify_records
from corpusmill.inspect.verify import render, verify_build
from corpusmill.report.summary import from_json
from corpusmill.report.terminal import print_summary
from corpusmill.shuffle.cells import cells_of
from corpusmill.upload.stages.summarize import summarize
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus
from tests.tokens.vocabularies import shared


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=1))


def outputs(root: Path, name: str = "tiny") -> Path:
    return (root / "outputs" / name / "latest").resolve()


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    write_corpus(folder / "corpus", documents=60)
    return folder


def test_numpy_raw_layout_is_verified_peeked_into_and_reported_by_its_tokens(root) -> None:
    """Files of `layout: bin` end like Megatron's data, which have the tokens of another name."""
    built = build(root, exports={"numpy": {"layout": "bin", "test_share": 0.25}, "megatron": {}})
    assert not verify_build(built).findings, render(verify_build(built))
    assert verify_records(built, 40, 1)
    train = outputs(root) / "numpy" / "train.bin"
    assert peek_record(train, 7, 5).ids.tolist() == np.fromfile(train, "<u4")[7:12].tolist()
    exports = {export.format: export for export in summarize(built).exports}
    eots = built.total("tokenize", "documents_out") - built.total("tokenize", "documents_empty")
    assert sum(file.tokens or 0 for file in exports["numpy"].files) == built.total("tokenize", "tokens") + eots
    assert sum(file.records or 0 for file in exports["megatron"].files) == eots


@pytest.mark.parametrize("layout", ["llmc", "automodel"])
def test_numpy_shards_behind_a_header_have_the_tokens_of_the_npy_shards(root, layout: str) -> None:
    """Read back by numpy alone, and by everything of ours that reads a dataset."""
    known = {"tokenizer": {"name": "gpt2", "file": str(shared("gpt2.tokenizer.json"))}}
    wanted = {"tokens_per_shard": 3000, "test_shards": 1, "test_name": "val"}
    plain = build(root, name="plain", exports={"numpy": wanted}, **known)
    there = outputs(root, "plain") / "numpy"
    expected = [np.load(path) for split in ("val", "train") for path in sorted(there.glob(f"{split}/*"))]
    settings = {"numpy": wanted | {"layout": layout, "file_name": "web_{split}_{number}.bin"}}
    built = build(root, name=layout, exports=settings, **known)
    paths = [outputs(root, layout) / "numpy" / file.name for file in sorted(outputs(root, layout).glob("numpy/*"))]
    assert [path.name for path in paths] == [f"web_train_{number:06d}.bin" for number in range(len(expected) - 1)] + [
        "web_val_000000.bin"
    ]
    magic, width = {"llmc": (20240520, 0), "automodel": (278895051, 2)}[layout]
    for path, tokens in zip([paths[-1], *paths[:-1]], expected, strict=True):
        header = np.fromfile(path, "<i4", 256).tolist()
        assert header == [magic, 1, len(tokens), width, *[0] * 252]
        assert np.fromfile(path, "<u2", offset=1024).tolist() == tokens.tolist()
    assert not verify_build(built).findings, render(verify_build(built))
    assert verify_records(built, 40, 1)
    dataset = open_dataset(outputs(root, layout))
    assert dataset.description["formats"]["numpy"]["layout"] == layout
    assert [ids.tolist() for ids in dataset["numpy"]] == [ids.tolist() for ids in [*expected[1:], expected[0]]]
    assert "layout" not in open_dataset(outputs(root, "plain")).description["formats"]["numpy"]
    assert plain.total("export", "slots") == built.total("export", "slots")
    paths[0].write_bytes(paths[0].read_bytes()[:-2])
    assert verify_build(built).findings


def test_numpy_shards_of_llama3_hold_ids_of_four_bytes_and_the_rest_joins_the_last_shard(root) -> None:
    wanted = {"tokens_per_shard": 3000, "test_shards": 1, "test_name": "val"}
    plain = build(root, name="plain_wide", exports={"numpy": wanted})
    there = outputs(root, "plain_wide") / "numpy"
    parts = [*sorted(there.glob("val/*")), *sorted(there.glob("train/*"))]
    expected = np.concatenate([np.load(path) for path in parts])
    assert len(expected) % 3000
    built = build(root, name="llama3", exports={"numpy": wanted | {"layout": "llama3", "merge_rest": True}})
    folder = outputs(root, "llama3") / "numpy"
    paths = [*sorted(folder.glob("val/*")), *sorted(folder.glob("train/*"))]
    sizes = []
    for path in paths:
        header = np.fromfile(path, "<i4", 256).tolist()
        sizes.append(header[2])
        assert header == [20240801, 7, sizes[-1], 0, *[0] * 252]
    shards = len(expected) // 3000
    assert sizes == [3000] * (shards - 1) + [3000 + len(expected) % 3000]
    assert np.array_equal(np.concatenate([np.fromfile(path, "<u4", offset=1024) for path in paths]), expected)
    assert not verify_build(built).findings, render(verify_build(built))
    assert verify_records(built, 40, 1)
    assert sum(len(ids) for ids in open_dataset(outputs(root, "llama3"))["numpy"]) == len(expected)
    assert plain.total("export", "slots") == built.total("export", "slots")


def test_numpy_bos_index_lists_where_documents_begin_in_each_shard(root) -> None:
    settings = {"layout": "automodel", "tokens_per_shard": 3000, "bos_index": True}
    built = build(root, name="beginnings", exports={"numpy": settings})
    paths = sorted(outputs(root, "beginnings").glob("numpy/*/*.bin"))
    for path in paths:
        tokens = np.fromfile(path, "<u4", offset=1024)
        index = np.fromfile(path.with_suffix(".bos.idx"), "<i4")
        assert index.tolist() == np.flatnonzero(tokens == 100257).tolist()
    assert len(paths) > 2
    assert not verify_build(built).findings, render(verify_build(built))
    index = paths[1].with_suffix(".bos.idx")
    index.write_bytes(index.read_bytes()[:-4])
    assert verify_build(built).findings


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"merge_rest": True}, "config.merge_rest_layout"),
        ({"bos_index": True, "layout": "llmc"}, "config.bos_index_layout"),
        ({"layout": "llmc", "merge_rest": True, "tokens_per_shard": 1_073_739_776 // 2 + 1}, "config.shard_too_large"),
    ],
)
def test_numpy_options_of_other_layouts_are_refused(root, changes, code) -> None:
    with pytest.raises(ConfigError, match=code):
        check_config(configuration(root, exports={"numpy": changes}), where="test")


def test_numpy_layout_whose_readers_take_two_bytes_is_refused_or_warned_of_before_the_build(root, caplog) -> None:
    with raises("numpy.layout_width", "automodel"):
        build(root, name="wide", exports={"numpy": {"layout": "llmc"}})
    narrow = {"tokenizer": {"name": "gpt2", "file": str(shared("gpt2.tokenizer.json"))}}
    with raises("numpy.layout_wide", "llmc"):
        build(root, name="narrow", exports={"numpy": {"layout": "llama3"}}, **narrow)
    build(root, name="wide", exports={"numpy": {"layout": "bin"}})
    assert "nanoGPT's own loader reads 2" in caplog.text


def test_shuffle_order_that_chance_would_not_give_is_warned_of(root, monkeypatch, caplog) -> None:
    """Keys that rise with the ordinal: the order of the source, which a seed gives once in a lifetime."""

    def unshuffled(_seed: int, _kind: str, shard: int, records: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
        keys = (np.uint64(shard) << np.uint64(40)) + np.arange(records, dtype=np.uint64)
        return cells_of(keys, cells), keys

    monkeypatch.setattr("corpusmill.shuffle.cells.draw_placements", unshuffled)
    built = build(root, name="unshuffled", exports={"webdataset": {"context_tokens": 33, "contexts_per_shard": 50}})
    summary = from_json((built.folder("report", "report") / "summary.json").read_bytes())
    assert summary.shuffle is not None
    assert {warning.name.partition(":")[2].strip() for warning in summary.shuffle.warnings} == {
        "correlation of source and final position",
        "neighbours of one document",
        "how unevenly the sources spread over the files (1: as chance spreads them)",
    }
    printed = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum("shuffled order is improbable" in item for item in printed) == 3
    console = Console(file=io.StringIO(), record=True, width=200)
    print_summary(summary, Path("report.html"), console)
    assert "warning: improbable order (p < 0.001): try another seed" in console.export_text()


def test_report_states_the_quality_of_the_shuffle(root) -> None:
    built = build(root, exports={"webdataset": {"context_tokens": 129, "contexts_per_shard": 50}})
    summary = from_json((built.folder("report", "report") / "summary.json").read_bytes())
    assert summary.shuffle is not None
    assert {item.name.partition(":")[2].strip() for item in summary.shuffle.quality} == {
        "correlation of source and final position",
        "neighbours of one document",
        "how unevenly the sources spread over the files (1: as chance spreads them)",
    }
    assert not summary.shuffle.warnings
    page = (built.folder("report", "report") / "report.html").read_text()
    assert "neighbours of one document" in page


def test_export_command_writes_one_format_and_uploads_nothing(tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(configuration(tmp_path)))
    done = CliRunner().invoke(app, ["export", str(path), "--format", "webdataset", "--workers", "1"])
    assert done.exit_code == 0, done.output
    folder = Path(done.output.split()[0])
    assert folder.name == "webdataset"
    assert list(folder.glob("*.tar"))
    assert not [path for path in (tmp_path / "work").rglob("*") if path.name in {"numpy", "megatron", "nanoset"}]
    assert (Path(done.output.split()[-1]) / "webdataset/manifest.jsonl").is_file()
    assert not (tmp_path / "outputs").exists()


def test_export_command_of_a_format_that_the_framing_excludes_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(
        yaml.safe_dump(configuration(tmp_path, exports={"megatron": {}}, framing={"empty_documents": "boundary"}))
    )
    done = CliRunner().invoke(app, ["export", str(path), "--format", "nanoset"])
    assert isinstance(done.exception, ConfigError)
    assert "only megatron can hold a document without tokens" in str(done.exception)
    assert f"{path} with --format nanoset" in str(done.exception)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"file_name": "x.npy"}, "config.file_name_without_number"),
        ({"file_name": "../{split}{number}.npy"}, "config.file_name_malformed"),
        ({"file_name": "{split}{number}{x}.npy"}, "config.file_name_malformed"),
        ({"test_name": "train"}, "config.split_names_equal"),
        ({"layout": "bin", "test_shards": 1}, "config.bin_layout"),
        ({"layout": "bin", "checkpoints": True}, "config.npy_layout"),
        ({"layout": "automodel", "placeholders": True}, "config.npy_layout"),
        ({"file_name": "{split}{number}.bin"}, "config.file_name_ending"),
        ({"layout": "llmc", "tokens_per_shard": 1_073_739_777}, "config.shard_too_large"),
    ],
)
def test_numpy_names_that_are_none_are_refused(tmp_path, wrong, code: str) -> None:
    with raises(code):
        check_config(configuration(tmp_path, exports={"numpy": wrong}), where="test")
