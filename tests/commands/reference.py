"""docs/commands.md as the commands' own help has it; `python -m tests.commands.reference` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from corpusmill.commands import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
HEAD = """# Commands

`corpusmill COMMAND --help` prints all of this, too. Three rules hold everywhere. An option is named like the
configuration key; `eot` and `bos` mean a token in one section and a switch in another, so they have two options each:
`--eot-token` and `--eod`, `--bos-token` and `--bos`. Input files are arguments, and output goes to `--output`. A
command on a configured dataset takes its configuration first. `python -m tests.commands.reference` writes this page,
and a test runs every example.
"""


def each_command(group: Any = None, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """(name as typed, panel, command), in the order of the help."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from each_command(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command.rich_help_panel, command


def example_of(command: Any) -> str:
    """The line of a command's help that can be typed."""
    return str(command.epilog.rpartition("\n\n")[2])


def names_of(parameter: Any) -> list[str]:
    """An option as it is typed; an argument by its metavar."""
    if parameter.param_type_name == "argument":
        return [parameter.metavar or parameter.name.upper()]
    return [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")]


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    commands = list(each_command())
    for panel in dict.fromkeys(panel for _, panel, _ in commands):
        parts += [f"\n## {panel}\n\n| command | what it does | example |\n|---|---|---|\n"]
        for name, of, command in commands:
            if of == panel:
                parts.append(f"| `{name}` | {_cell(command.help)} | `{example_of(command)}` |\n")
    for kind in ("argument", "option"):
        parts.append(f"\n## {kind.capitalize()}s\n\n| {kind} | meaning | of |\n|---|---|---|\n")
        takes: dict[str, dict[str, list[str]]] = {}
        for name, _, command in commands:
            for parameter in command.params:
                if parameter.param_type_name == kind:
                    typed = " / ".join(names_of(parameter))
                    takes.setdefault(typed, {}).setdefault(parameter.help or "", []).append(name)
        for typed, meanings in sorted(takes.items()):
            for meaning, names in meanings.items():
                parts.append(f"| `{typed}` | {_cell(meaning)} | {', '.join(names)} |\n")
    return "".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(render())
