"""Paths of this machine on the command line: an address such as s3://bucket would become a folder called `s3:`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import typer

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
