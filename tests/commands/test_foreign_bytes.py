"""Every command that reads files of lines, on gzip under the name of text beside good lines."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.errors import SourceError
from tests.system.corpus import lines_of, make_documents

COMMANDS = {
    "init": ["init", "data", "--tokenizer", "cl100k_base", "--export", "megatron", "--output", "out"],
    "dedup": ["dedup", "data", "--output", "out"],
    "infini-gram": ["infini-gram", "data", "--output", "out"],
    "tokenize": ["tokenize", "data", "--tokenizer", "cl100k_base", "--output", "out"],
    "megatron": ["megatron", "data", "--tokenizer", "cl100k_base", "--output", "out"],
    "nanoset": ["nanoset", "data", "--tokenizer", "cl100k_base", "--output", "out"],
    "decontaminate": [
        "decontaminate",
        "data",
        "--benchmark",
        "items.jsonl",
        "--question-field",
        "text",
        "--hits",
        "out",
    ],
    "shuffle-text": ["shuffle-text", "data", "--output", "out"],
    "step try": ["step", "try", "steps:keep", "data"],
}


@pytest.fixture(autouse=True)
def _inside_a_folder_with_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/good.jsonl").write_bytes(lines_of(make_documents(40)))
    Path("items.jsonl").write_text(json.dumps({"text": "some question of a benchmark that nobody has asked yet"}))
    Path("steps.py").write_text("def keep(document):\n    return True\n")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("command", COMMANDS)
def test_compressed_file_named_as_text_stops_every_command(command: str, compress: Callable[[bytes], bytes]) -> None:
    """3 malformed lines of 20,000 were below the limit, and the documents of the file were missing."""
    Path("data/false.jsonl").write_bytes(compress(lines_of(make_documents(9))))
    done = CliRunner().invoke(app, COMMANDS[command])
    assert isinstance(done.exception, SourceError), done.output
    assert "not what its name says" in str(done.exception)
    assert "false.jsonl" in str(done.exception)
    assert not Path("out").is_file()


def test_compressed_standard_input_is_shuffled_as_the_lines_in_it() -> None:
    lines = lines_of(make_documents(9))
    done = CliRunner().invoke(app, ["shuffle-text", "-"], input=gzip.compress(lines))
    assert done.exit_code == 0, done.output
    assert sorted(done.stdout_bytes.splitlines()) == sorted(lines.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_files_of_other_kinds_in_a_folder_are_counted_and_named_by_every_command(
    command: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("data/b.json", "data/more/c.csv", "data/d.jsonl.7z", "data/e.txt", "data/_SUCCESS"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("{}")
    done = CliRunner().invoke(app, COMMANDS[command])
    assert done.exit_code == 0, done.output
    told = done.output + caplog.text
    assert told.count("4 files of other kinds skipped: b.json, d.jsonl.7z, e.txt, ...") == 1
