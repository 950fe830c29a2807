"""What somebody types first: nothing, a file that is not there, a folder of other things. Exit 2, and what to type."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from corpusmill.cli import main
from tests.commands.reference import each_command, example_of

COMMANDS = {name: command for name, _, command in each_command()}
NEEDS_NOTHING = {"config example"}
ASKS = {"init"}  # for each of its arguments: tests/commands/test_init.py
# Options without which a command asks for them first.
REQUIRED = {
    "reprocess": "--stage tokenize --shard 0",
    "export": "--format megatron",
    "trace": "--format megatron --file 0",
    "locate": "--id doc-7",
    "run-task": "tokenize",
    "claim": "-- true",
    "dedup": "--output out",
    "infini-gram": "--output out",
    "tokenize": "--tokenizer cl100k_base --output out",
    "megatron": "--tokenizer cl100k_base --output out/web",
    "nanoset": "--tokenizer cl100k_base --output out",
    "decontaminate": "--benchmark items.jsonl --hits hits.jsonl",
    "near-duplicates": "--pairs pairs.jsonl",
    "init": "--tokenizer cl100k_base --export megatron",
    "shuffle": "--output out",
    "shuffle-text": "--output out.jsonl",
    "merge": "--output out",
    "mix": "--budget-tokens 1M --output out",
    "repair": "nosuch",
    "diff": "nosuch",
}


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "photo.png").write_bytes(b"\x89PNG")
    (tmp_path / "items.jsonl").write_text('{"question": "q"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CORPUSMILL_ROOT", raising=False)


def run(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["corpusmill", *words])
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    with pytest.raises(SystemExit) as caught:
        main()
    printed = capsys.readouterr()
    return int(caught.value.code or 0), " ".join((printed.out + printed.err).replace("│", " ").split())


def typed(name: str, argument: str) -> list[str]:
    first = ["corpusmill.steps.gopher:Quality"] if name == "step try" else []
    return [*name.split(), *first, argument, *REQUIRED.get(name, "").split()]


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NEEDS_NOTHING - ASKS))
def test_command_without_arguments_names_what_is_missing_and_an_example(
    name: str, monkeypatch: Any, capsys: Any
) -> None:
    code, printed = run(name.split(), monkeypatch, capsys)
    assert code == 2, printed
    assert example_of(COMMANDS[name]) in printed


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NEEDS_NOTHING))
@pytest.mark.parametrize("argument", ["nosuch", "things"])
def test_command_on_what_it_cannot_read_exits_with_two_and_names_it(
    name: str, argument: str, monkeypatch: Any, capsys: Any, tmp_path: Path
) -> None:
    before = {*tmp_path.iterdir()}
    code, printed = run(typed(name, argument), monkeypatch, capsys)
    assert code == 2, printed
    assert argument in printed
    assert "Traceback" not in printed
    assert not {*tmp_path.iterdir()} - before, "leaves something"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("nosuch", "use must be module:name, such as my_filters:long_enough"),
        ("nosuch:keep", "no source file of a module nosuch"),
        ("corpusmill.steps.gopher:Nosuch", "no Nosuch in module corpusmill.steps.gopher"),
    ],
)
def test_step_that_is_not_there_exits_with_two_and_names_it(
    step: str, told: str, monkeypatch: Any, capsys: Any
) -> None:
    code, printed = run(["step", "try", step, "items.jsonl"], monkeypatch, capsys)
    assert (code, told in printed) == (2, True), printed
