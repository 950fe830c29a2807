"""The application that the commands register with: panels and examples."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from corpusmill.errors import plain
from corpusmill.version import __version__

ADDRESS = re.compile(r"\w[\w+.-]+:/")  # a Path holds one of the two slashes


def refusing_addresses(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command so that a value of type Path must not be an address; one of type str may be one."""

    @wraps(command)
    def run(**values: Any) -> Any:
        for name, value in values.items():
            for path in value if isinstance(value, list) else [value]:
                if isinstance(path, Path) and ADDRESS.match(str(path)):
                    raise typer.BadParameter(
                        f"{str(path).replace(':/', '://', 1)} is an address, but a path of this machine is required",
                        param_hint=f"{name.replace('_', '-')!r}",
                    )
        return command(**values)

    return run


BUILD, INSPECT, STEPS, DATASETS, TRANSFERS = "Build", "Inspect", "Single steps", "Datasets", "Transfers"
Function = Callable[..., Any]


class Command(TyperCommand):
    """Prints refused values without pydantic's words, and its example where no argument is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = plain(error.message)  # of pydantic, by which typer reads values
            if not args:
                error.message = f"{error.message.rstrip('.')}. {self.epilog}".lstrip(". ")
            raise


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"corpusmill {__version__}")
        raise typer.Exit


app = typer.Typer(
    help="Raw text dumps in, training-ready tokens out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


config_app = typer.Typer(help="Write, check and lock dataset configurations.", no_args_is_help=True)
app.add_typer(config_app, name="config", rich_help_panel=BUILD)


def command(
    panel: str, example: str, *, name: str | None = None, to: typer.Typer = app
) -> Callable[[Function], Function]:
    """Register a command in a panel of `corpusmill --help`; its own `--help` shows the example, and a test runs it."""
    register = to.command(name, cls=Command, rich_help_panel=panel, epilog=f"Example:\n\ncorpusmill {example}")
    return lambda function: register(refusing_addresses(function))
