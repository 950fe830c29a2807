"""An output folder holds what the last run delivered: no file of an earlier one, and nothing of a stranger's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.storage import open_store
from corpusmill.storage.local import LocalStore
from corpusmill.storage.output_folder import LIST, OutputFolder
from tests.raising import raises
from tests.system.corpus import lines_of, make_documents


@pytest.fixture(autouse=True)
def _small_files_are_cut(monkeypatch) -> None:
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus/deep").mkdir(parents=True)
    texts = make_documents(70)
    (tmp_path / "corpus/a.jsonl").write_bytes(lines_of(texts[:60]))
    (tmp_path / "corpus/deep/b.jsonl").write_bytes(lines_of(texts[60:]))
    return tmp_path / "corpus"


COMMANDS = ["dedup", "infini-gram", "tokenize"]


def run(root: Path, command: str, *inputs: str, shard_bytes: str = "1MiB") -> None:
    """The command on paths below `root`, to `root`/out."""
    if command == "tokenize":
        options = ["--tokenizer", "cl100k_base"]
    else:
        options = ["--shard-bytes", shard_bytes, "--work-folder", str(root / "work"), "--workers", "1"]
    paths = [str(root / path) for path in inputs]
    arguments = [command, *paths, "--output", str(root / "out"), *options]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["dedup", "infini-gram"])
def test_command_with_another_shard_size_leaves_no_file_of_the_run_before(tmp_path, corpus, command: str) -> None:
    """`a.jsonl` stayed beside `a.part00000.jsonl`: 810 lines for 405 documents, exit 0."""
    run(tmp_path, command, "corpus")
    whole = content(tmp_path / "out")
    run(tmp_path, command, "corpus", shard_bytes="16KiB")
    cut = content(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "replaced")
    run(tmp_path, command, "corpus", shard_bytes="16KiB")
    assert content(tmp_path / "out") == cut != whole
    assert len(cut) > len(whole)
    run(tmp_path, command, "corpus")
    assert content(tmp_path / "out") == whole
    if command == "dedup":
        assert sum(whole[name].count(b"\n") for name in ("a.jsonl", "deep/b.jsonl")) == 70


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_fewer_sources_removes_what_it_no_longer_delivers(tmp_path, corpus, command: str) -> None:
    run(tmp_path, command, "corpus", shard_bytes="16KiB")
    (corpus / "deep/b.jsonl").unlink()
    run(tmp_path, command, "corpus", shard_bytes="16KiB")
    after = content(tmp_path / "out")
    assert set(after) == {LIST, *json.loads(after[LIST])["files"]}
    assert not [name for name in after if name.startswith("deep")]
    assert not (tmp_path / "out/deep").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_command_refuses_a_folder_with_a_strangers_file_and_writes_nothing(tmp_path, corpus, command: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.jsonl").write_text("mine\n")
    with raises("output.files_of_others", "a.jsonl"):
        run(tmp_path, command, "corpus")
    assert content(tmp_path / "out") == {"a.jsonl": b"mine\n"}
    assert not (tmp_path / "work").exists()
    (tmp_path / "out/a.jsonl").rename(tmp_path / "out/.hidden")
    run(tmp_path, command, "corpus")
    run(tmp_path, command, "corpus")
    assert content(tmp_path / "out")[".hidden"] == b"mine\n"


@pytest.mark.parametrize("command", ["dedup", "tokenize"])
def test_command_of_other_sources_is_refused_before_it_removes_anything(tmp_path, corpus, command: str) -> None:
    run(tmp_path, command, "corpus/a.jsonl")
    before = content(tmp_path / "out")
    for other in (command, *({"dedup", "tokenize"} - {command})):
        with raises("output.other_command"):
            run(tmp_path, other, "corpus/deep/b.jsonl" if other == command else "corpus/a.jsonl")
        assert content(tmp_path / "out") == before
    run(tmp_path, command, "corpus/a.jsonl", "corpus/deep/b.jsonl")
    assert before.keys() < content(tmp_path / "out").keys()


def test_command_that_broke_off_while_it_delivered_leaves_nothing_to_the_next(tmp_path, corpus, monkeypatch) -> None:
    receive, calls = LocalStore.receive, []

    def receive_once(store: LocalStore, source: Path, name: str, sha256: str) -> None:
        calls.append(name)
        if len(calls) > 1:
            raise RuntimeError("killed")
        receive(store, source, name, sha256)

    with monkeypatch.context() as broken:
        broken.setattr(LocalStore, "receive", receive_once)
        with pytest.raises(RuntimeError, match="killed"):
            run(tmp_path, "dedup", "corpus", shard_bytes="16KiB")
    assert set(content(tmp_path / "out")) == {LIST, "a.part00000.jsonl"}
    run(tmp_path, "dedup", "corpus")
    assert set(content(tmp_path / "out")) == {LIST, "a.jsonl", "deep/b.jsonl"}


@pytest.mark.parametrize("output", ["corpus", "corpus/out", "corpus/deep/../out"])
@pytest.mark.parametrize("command", COMMANDS)
def test_command_refuses_an_output_below_its_inputs(tmp_path, corpus, command: str, output: str) -> None:
    options = ["--tokenizer", "cl100k_base"] if command == "tokenize" else ["--work-folder", str(tmp_path / "work")]
    arguments = [command, str(corpus), "--output", str(tmp_path / output), *options]
    with raises("source.contains_output", "--output"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_output_folder_in_a_bucket_loses_its_own_old_files_and_no_other(moto, moto_client, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto)
    place = "s3://corpus/out"
    for files in (["a.jsonl", "b.jsonl"], ["b.jsonl", "c/d.jsonl"]):
        OutputFolder(place, "dedup").replace(["b.jsonl"], files)
        for name in files:
            open_store(place).receive_bytes(b"{}\n", name)
    assert [file.name for file in open_store(place).list_files()] == [LIST, "b.jsonl", "c/d.jsonl"]
    open_store(place).receive_bytes(b"x", "other.txt")
    with raises("output.files_of_others", "1 others, such as other.txt"):
        OutputFolder(place, "dedup")


def test_output_folder_whose_list_is_damaged_is_refused(tmp_path) -> None:
    (tmp_path / LIST).write_text("{")
    with raises("output.list_not_readable"):
        OutputFolder(str(tmp_path), "dedup")
