"""Where the command line begins: the commands, and what their errors look like to the shell."""

from __future__ import annotations

import gc
import logging
import sys

import typer

from corpusmill.commands import app
from corpusmill.errors import CorpusmillError

GARBAGE_THRESHOLD = 50_000  # objects; at Python's 700, looking for garbage takes a tenth of a small job's time


def main() -> None:
    """Run a command; our errors are messages, not tracebacks."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        app()
    except CorpusmillError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
