"""Every example of every `--help`, typed in a folder with two small datasets."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import chdir
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from corpusmill.commands import app
from tests.commands.folder import write_folder
from tests.commands.reference import each_command, example_of
from tests.quick import quick

EXAMPLES = {name: example_of(command) for name, _, command in each_command()}
FIRST = ("build web.yaml --workers 1", "build books.yaml --workers 1")
WRITES = {
    "build": "outputs/web/latest/dataset.json",
    "tokenize": "tokens/news.jsonl/token_shard.json",
    "dedup": "clean/news.jsonl",
    "infini-gram": "ngrams/0/table",
    "megatron": "parts/web_text_document.idx",
    "nanoset": "nanoset/00000_unshuffled.ds",
    "shuffle": "reshuffled/manifest.jsonl",
    "shuffle-text": "shuffled.jsonl.zst",
    "decontaminate": "hits.jsonl",
    "merge": "all_text_document.bin",
    "mix": "mixture/mixture.json",
}
SLOW = {"check-store", "estimate"}  # requests to a store, builds


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("examples")
    write_folder(root)
    with chdir(root):
        for line in FIRST:
            assert typed(line) == 0
    return root


def typed(line: str) -> int:
    done = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
    return done.exit_code


@pytest.fixture
def bucket(moto: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The bucket that an example names."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    moto_client.create_bucket(Bucket="bucket")
    yield
    moto_client.delete_bucket(Bucket="bucket")


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("name", quick(sorted(EXAMPLES, key=SLOW.__contains__), len(EXAMPLES) - len(SLOW)))
def test_example_of_a_commands_help_runs_as_it_is_typed(name: str, built: Path) -> None:
    with chdir(built):
        words = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in shlex.split(EXAMPLES[name])]
        program, *arguments = chain.from_iterable(words)  # as a shell does it
        assert program == "corpusmill"
        assert typed(shlex.join(arguments)) == 0
        assert name not in WRITES or (built / WRITES[name]).exists()


@pytest.mark.usefixtures("bucket")
def test_check_store_of_one_race_ends_well() -> None:
    assert typed("check-store s3://bucket/work --races 1") == 0
