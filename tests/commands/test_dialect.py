"""One dialect: an option has one name, one type and one meaning."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from corpusmill.commands import app
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


ENDPOINT = "--endpoint-url"
SHORT = {"--workers": "-j", "--quiet": "-q", "--verbose": "-v", "--force": "-f"}


@pytest.mark.parametrize("option", SHORT)
def test_short_option_of_the_habit_is_on_every_command_that_has_the_long_one(option: str) -> None:
    having = [item for _, item in PARAMETERS if option in item.opts]
    assert having
    assert all(SHORT[option] in item.opts for item in having)


def test_command_that_reads_a_store_reads_public_buckets_too() -> None:
    asked = {option: {name for name, item in PARAMETERS if option in item.opts} for option in (ENDPOINT, "--anonymous")}
    assert asked[ENDPOINT] - asked["--anonymous"] == {"check-store"}  # writes


@pytest.mark.parametrize("name", ["", *ALL])
def test_short_help_is_the_help(name: str) -> None:
    short, long = (CliRunner().invoke(app, [*name.split(), word]) for word in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)


def test_program_completes_commands_in_a_shell() -> None:
    done = CliRunner().invoke(
        app,
        [],
        prog_name="corpusmill",
        env={"_CORPUSMILL_COMPLETE": "complete_bash", "COMP_WORDS": "corpusmill tok", "COMP_CWORD": "1"},
    )
    assert done.output.split() == ["tokenize"]


def test_help_lists_the_panels_in_the_order_of_work() -> None:
    output = CliRunner().invoke(app, ["--help"]).output
    panels = re.findall(r"─ ([A-Z][a-z ]+) ─", output)
    assert panels == ["Options", "Build", "Inspect", "Single steps", "Datasets", "Transfers"]


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'numba', 'pydantic', 'yaml', 'pyarrow', 'tokenizers', 'boto3', 'orjson'}"
    run = "from corpusmill.commands import app\ntry: app(['--help'])\nexcept SystemExit: pass\n"
    code = f"import sys\n{run}assert not {heavy} & sys.modules.keys(), {heavy} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
