"""Files that a command replaces: only what an earlier run of it wrote, never a file that someone named by mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.export import files


HEAD_BYTES = 4096
PAGE_MARK = b'<meta name="generator" content="corpusmill">'  # in the head of difference.html and tried.html


def require_earlier(path: Path, option: str, kind: str, is_earlier: Callable[[BinaryIO], bool]) -> None:
    """ConfigError if `path` exists and `is_earlier`, called with the open file, does not recognise its beginning."""
    if not path.exists():
        return
    with path.open("rb") as file:
        if not is_earlier(file):
            raise ConfigError(
                f"command.file_of_others: {option} names a file that this command did not write",
                where=path,
                expected=f"no file, or {kind} of an earlier run",
                next_step=f"give {option} another name",
            )


def is_page(file: BinaryIO) -> bool:
    """Whether a file is an HTML page of a command."""
    return PAGE_MARK in file.read(HEAD_BYTES)


def write_page(path: Path, text: str) -> None:
    """Write an HTML page; it appears under its name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole_file(path) as file:
        file.write(text.encode())
