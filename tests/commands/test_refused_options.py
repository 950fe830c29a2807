"""Options that another option makes meaningless are refused before anything is read; they were ignored."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from corpusmill.cli import app

REFUSED = {
    "verify --sample 3 --version latest": "--sample rebuilds records of the newest build, and takes no --version",
    "gc --keep-versions 2": "--keep-versions needs --destinations",
    "gc --destinations --everything --remove": "give --destinations or --everything, not both",
    "trace --format nanoset --step 1 --batch 8 --record 3": "and no --file or --record",
    "trace --format nanoset --first-sample 1 --record 0": "and no --file or --record",
    "locate --id seven --source news.jsonl": "give --source and --line, or --id",
    "locate --id seven --line 3": "give --source and --line, or --id",
    "locate --source news.jsonl": "give --source and --line, or --id",
    "forget --by legal@example.org": "--by needs --ids",
    "forget --by legal@example.org --purge": "--by needs --ids",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_option_that_another_makes_meaningless_is_refused(arguments: str) -> None:
    command, *options = arguments.split()
    refused = CliRunner().invoke(app, [command, "no-such.yaml", *options])
    assert refused.exit_code == 2, refused.output
    assert REFUSED[arguments] in " ".join(refused.output.replace("│", " ").split())
