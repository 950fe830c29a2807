"""The application that the commands register with: panels, examples, and old names refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from corpusmill.commands.local_paths import refusing_addresses
from corpusmill.commands.renamed import COMMANDS, OPTIONS
from corpusmill.version import __version__

BUILD, INSPECT, STEPS, DATASETS, TRANSFERS = "Build", "Inspect", "Single steps", "Datasets", "Transfers"
Function = Callable[..., Any]


class Group(TyperGroup):
    """Refuses a command's old name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            ctx.fail(f"{args[0]} is now called {COMMANDS[args[0]]}")
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """Refuses an option's old name, and prints refused values without pydantic's words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {name for param in self.params for name in (*param.opts, *param.secondary_opts, param.metavar)}
        for name in (argument.partition("=")[0] for argument in args):
            if name in OPTIONS and name not in names and OPTIONS[name] in names:
                ctx.fail(f"{name} is now called {OPTIONS[name]}")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # of pydantic, by which typer reads values
            raise


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"corpusmill {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Group,
    help="Raw text dumps in, training-ready tokens out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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
