"""The console program: what it prints and how it exits where a path, or a program, is not what someone thought."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from corpusmill import cli
from corpusmill.version import __version__
from tests.commands.folder import write_folder

TOKENIZER = "--tokenizer cl100k_base"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """web.yaml, data/, a file `taken` and a folder `folder`; it is the current folder."""
    write_folder(tmp_path)
    (tmp_path / "taken").write_text("mine\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "occupied.yaml").write_text(
        (tmp_path / "web.yaml").read_text().replace("work_folder: work", "work_folder: taken")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    monkeypatch.delenv("CORPUSMILL_TASK", raising=False)
    return tmp_path


def run(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and everything printed."""
    monkeypatch.setattr(sys, "argv", ["corpusmill", *line.split()])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    output = capsys.readouterr()
    return int(caught.value.code or 0), output.out + output.err


@pytest.mark.parametrize(
    "line",
    [
        f"megatron data {TOKENIZER} --output taken/web",
        f"nanoset data {TOKENIZER} --output taken",
        f"nanoset data {TOKENIZER} --output taken/below",
        f"tokenize data {TOKENIZER} --output taken",
        "shuffle-text data --output folder",
        "shuffle-text data --output taken/lines.jsonl",
        "step try my_filters:long_enough data --page folder",
        "step try my_filters:long_enough data --page taken/page.html",
        "decontaminate data --benchmark items.jsonl --hits folder",
        "build occupied.yaml",
        "plan occupied.yaml",
        "estimate occupied.yaml",
        "claim web.yaml -- nosuchprogram",
        "run-task nosuch/receipt.json tokenize 1/1",
    ],
)
def test_command_with_an_unusable_path_prints_an_error_with_a_next_step(
    line: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = run(line, monkeypatch, capsys)
    assert code in {1, 2}, printed
    assert "error[" in printed
    assert "\n  next" in printed
    assert "Traceback" not in printed
    assert (root / "taken").read_text() == "mine\n"


def test_init_of_an_output_in_a_missing_folder_creates_the_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", f"corpusmill init data {TOKENIZER} --export megatron --output a/b/x.yaml".split())
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code, capsys.readouterr()
    assert (root / "a/b/x.yaml").is_file()


def test_main_of_an_operating_system_error_that_is_not_of_a_path_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "data")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(OSError, match="Input/output error"):
        cli.main()


def test_main_in_a_schedulers_task_leaves_an_error_of_a_path_to_be_retried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        Path("nosuch").read_bytes()

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setenv("CORPUSMILL_TASK", "1")
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 75
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected", "next_step"),
    [
        ("run-task web.yaml tokenize 1/16", "work/<name>/plan/<plan>/receipt.json", "corpusmill plan CONFIG"),
        ("run-task work/web/index/1/receipt.json tokenize 1/16", "work/<name>/plan/", "corpusmill plan CONFIG"),
        ("shuffle shard --output out", "the files token_shard.json", "write it again: corpusmill tokenize"),
        ("merge parts/a parts/b --output merged", "34 bytes", "restore the file from another copy"),
    ],
)
def test_command_on_a_file_that_someone_named_does_not_advise_to_delete_it(
    line: str,
    expected: str,
    next_step: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for folder in ("shard", "parts"):
        (root / folder).mkdir()
    (root / "shard/token_shard.json").write_text("{}")
    for name in ("a.idx", "a.bin", "b.idx", "b.bin"):
        (root / "parts" / name).write_bytes(b"MMIDIDX\x00\x00")
    code, printed = run(line, monkeypatch, capsys)
    assert code in {1, 2}
    assert expected in printed
    assert f"next      {next_step}" in printed


@pytest.mark.parametrize(
    "line",
    [
        f"tokenize nosuch {TOKENIZER} --output out",
        f"init nosuch {TOKENIZER} --export megatron --output new.yaml",
        "decontaminate data --benchmark nosuch.jsonl --hits hits.jsonl",
        "decontaminate data --benchmark folder --hits hits.jsonl",
    ],
)
def test_command_on_a_missing_input_names_no_key_of_a_configuration(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = run(line, monkeypatch, capsys)
    assert code == 2
    assert "check the path" in printed
    assert "source.paths" not in printed


@pytest.mark.parametrize(
    ("line", "code", "expected"),
    [
        ("--version", 0, f"corpusmill {__version__}"),
        ("shuffle folder --output out", 2, "an input has no file of a kind that can be shuffled"),
        ("shuffle-text folder --output out.jsonl", 2, "an input has no file of a kind that can be shuffled"),
        ("merge folder --output merged", 2, "got       0 .bin and 0 .ds files"),
        ("verify web.yaml --sample 0", 2, "Invalid value for '--sample': must be at least 1"),
        ("verify web.yaml --sample few", 2, "Invalid value for '--sample': must be a whole number"),
        ("tokenize data --tokenizer x --output out --max-rejected-share 2", 2, "must be at most 1"),
        ("shuffle shards --output out", 1, "expected  --eot-id (whole documents) or --context-tokens"),
        ("trace web.yaml --format foo --file 1", 2, "Invalid value for '--format': 'foo' is not one of"),
        ("diff latest latest", 2, "add --config, or give the version's folder or address"),
        ("verify folder", 2, "there is no copy of a dataset here"),
        ("plan folder", 2, "corpusmill verify FOLDER, or corpusmill repair A B --check"),
        (
            "tokenize data --tokenizer folder/vocabulary --output out",
            1,
            "a tokenizer file must end in .tiktoken, .json or .model",
        ),
    ],
)
def test_command_prints_words_that_fit_its_options(
    line: str, code: int, expected: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "folder/vocabulary").write_text("YQ== 0\n")
    (root / "shards").mkdir()
    np.save(root / "shards/train_0000.npy", np.zeros(4, np.uint16))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ended, printed = run(line, monkeypatch, capsys)
    assert (ended, expected in printed) == (code, True), printed
