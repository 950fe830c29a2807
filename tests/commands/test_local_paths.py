"""No command takes an address for a path: it made a folder called `s3:` in the current one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corpusmill.cli import app

COMMANDS = {
    "shuffle-text": ["in.jsonl", "--output"],
    "shuffle": ["in", "--output"],
    "tokenize": ["in.jsonl", "--tokenizer", "cl100k_base", "--output"],
    "megatron": ["in.jsonl", "--tokenizer", "cl100k_base", "--output"],
    "nanoset": ["in.jsonl", "--tokenizer", "cl100k_base", "--output"],
    "merge": ["a", "b", "--output"],
    "mix": ["in", "--budget-tokens", "1B", "--output"],
    "peek": [],
}


@pytest.fixture(autouse=True)
def _inside_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("address", ["s3://bucket/out", "gs://bucket/out.gz", "hf://datasets/a/b"])
@pytest.mark.parametrize("command", COMMANDS)
def test_address_where_a_command_takes_a_path_is_refused_and_nothing_is_made(command: str, address: str) -> None:
    done = CliRunner().invoke(app, [command, *COMMANDS[command], address])
    assert done.exit_code == 2, done.output
    assert "is an address" in " ".join(done.output.replace("│", " ").split())
    assert os.listdir() == []  # noqa: PTH208


def test_config_of_an_address_is_refused() -> None:
    done = CliRunner().invoke(app, ["config", "check", "s3://bucket/a.yaml"])
    assert (done.exit_code, "is an address" in " ".join(done.output.replace("│", " ").split())) == (2, True)


@pytest.mark.usefixtures("hasty")
def test_address_of_an_input_and_of_dedups_output_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """These are text: what cannot be reached is another error."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    done = CliRunner().invoke(app, ["dedup", "nowhere", "--output", "s3://bucket/out", "--work-folder", "work"])
    assert done.exit_code == 1
    assert "address" not in done.output
