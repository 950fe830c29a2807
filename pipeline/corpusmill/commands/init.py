"""The first command: asks, or takes options, and writes a configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from corpusmill.commands.app import BUILD, command
from corpusmill.commands.options import AnyTokenizerName
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.builds import starting


FORMATS = "webdataset, numpy, megatron, nanoset"


@command(BUILD, "init data --tokenizer cl100k_base --exports megatron,nanoset --output new.yaml")
def init(
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="Where the text is: a folder, file, glob or address.")
    ] = None,
    tokenizer: AnyTokenizerName = None,
    exports: Annotated[str | None, typer.Option(help=f"Formats, separated by commas: {FORMATS}.")] = None,
    text_field: Annotated[str | None, typer.Option(help="The key of the text; default: detected.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="The configuration to write; default: the folder's name and .yaml.")
    ] = None,
) -> None:
    """Inspect your files and write a configuration with a comment per key. Asks for what no option sets."""
    folder = folder or _answer("FOLDER", "Folder with your text", "data")
    tokenizer = tokenizer or _answer("--tokenizer", "Tokenizer (an encoding, a file or a hub id)", "cl100k_base")
    formats = _formats(exports or _answer("--exports", f"Formats ({FORMATS})", "megatron"))
    output = output or Path(f"{starting.dataset_name(Path(folder).resolve().name)}.yaml")
    typer.echo(starting.write_starter(folder, tokenizer, formats, text_field, output))
    typer.echo(f"\n{output} is written; edit it as you like.  Next: corpusmill build {output}")


def _answer(name: str, question: str, default: str) -> str:
    """A person's answer; BadParameter where there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("required here: there is no terminal to ask on", param_hint=name)
    return str(typer.prompt(question, default=default))


def _formats(text: str) -> list[str]:
    known = FORMATS.split(", ")
    formats = [name for name in (part.strip() for part in text.split(",")) if name]
    if not formats or (unknown := [name for name in formats if name not in known]):
        raise typer.BadParameter(
            f"{unknown[0] if formats else text!r} is not a format; known: {FORMATS}", param_hint="--exports"
        )
    return list(dict.fromkeys(formats))
