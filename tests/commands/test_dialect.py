"""One dialect: an option has one name, one type and one meaning, and old names are refused with the new one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from corpusmill.commands import app
from corpusmill.commands.renamed import COMMANDS, OPTIONS
from tests.commands.reference import PAGE, each_command, example_of, names_of, render

ALL = {name: command for name, _, command in each_command()}
PARAMETERS = [(name, param) for name, command in ALL.items() for param in command.params]
# What is written, and what a document without tokens becomes, differ with the format.
MEANING_DIFFERS = {"--output", "--empty-documents", "--text-field"}
# infini-gram's shards are its output; dedup's are not seen there.
DEFAULT_DIFFERS = {"--workers", "--shard-bytes"}


def test_reference_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == render(), "python -m tests.commands.reference writes it anew"


@pytest.mark.parametrize(
    "option", sorted({name for _, item in PARAMETERS for name in names_of(item) if name[0] == "-"})
)
def test_option_of_several_commands_means_the_same(option: str) -> None:
    same = [item for _, item in PARAMETERS if option in names_of(item)]
    assert len({item.is_flag for item in same}) == 1
    if option not in MEANING_DIFFERS:
        assert len({(item.help, item.metavar, item.min, item.max, item.multiple) for item in same}) == 1
        assert option in DEFAULT_DIFFERS or len({repr(item.default) for item in same if not item.required}) <= 1


@pytest.mark.parametrize("name", ALL)
def test_command_has_a_panel_and_an_example_of_itself_in_its_help(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert f"corpusmill {name}" in re.sub(r"\s+", " ", done.output.partition("Example:")[2])
    assert example_of(ALL[name]).startswith(f"corpusmill {name}")


def test_help_lists_the_panels_in_the_order_of_work() -> None:
    output = CliRunner().invoke(app, ["--help"]).output
    panels = re.findall(r"─ ([A-Z][a-z ]+) ─", output)
    assert panels == ["Options", "Build", "Inspect", "Single steps", "Datasets", "Transfers"]


REFUSED = [
    (name, old)
    for name, command in ALL.items()
    for old, new in OPTIONS.items()
    if (names := {item for parameter in command.params for item in names_of(parameter)}) >= {new} and old not in names
]


@pytest.mark.parametrize(("name", "old"), REFUSED)
def test_old_option_is_refused_with_the_new_name(name: str, old: str) -> None:
    first = (name, old) == next(item for item in REFUSED if item[1] == old)
    for argument in ([old, "1"], [f"{old}=1"])[: 2 if first else 1]:
        done = CliRunner().invoke(app, [*name.split(), *argument])
        assert done.exit_code == 2
        assert f"{old} is now called {OPTIONS[old]}" in done.output


def test_every_old_option_is_refused_somewhere() -> None:
    assert {old for _, old in REFUSED} == OPTIONS.keys()


@pytest.mark.parametrize("old", COMMANDS)
def test_old_command_is_refused_with_the_new_name(old: str) -> None:
    done = CliRunner().invoke(app, [old, "data", "--output", "x"])
    assert done.exit_code == 2
    assert f"{old} is now called {COMMANDS[old]}" in done.output
    assert COMMANDS[old] in ALL


@pytest.mark.parametrize(
    ("arguments", "new"), [("export webdataset web.yaml", "--format"), ("sample-corpus sample", "--output")]
)
def test_old_argument_is_refused_with_the_option_that_it_is_now(arguments: str, new: str) -> None:
    done = CliRunner().invoke(app, arguments.split())
    assert done.exit_code == 2
    assert new in done.output


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'numba', 'pydantic', 'yaml', 'pyarrow', 'tokenizers', 'boto3', 'orjson'}"
    run = "from corpusmill.commands import app\ntry: app(['--help'])\nexcept SystemExit: pass\n"
    code = f"import sys\n{run}assert not {heavy} & sys.modules.keys(), {heavy} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
