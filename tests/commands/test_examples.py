"""Every example of every `--help`, typed in a folder with two small datasets."""

from __future__ import annotations

import json
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
from tests.raising import raises

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


JSON = (
    "plan web.yaml",
    "verify web.yaml",
    "trace web.yaml --format megatron --file 0 --record 1",
    "peek outputs/web/latest",
)
JSON += ("locate web.yaml --id doc-8", "diff outputs/web/latest outputs/web/latest")


@pytest.mark.parametrize("line", JSON)
def test_result_as_json_is_json_alone(line: str, built: Path) -> None:
    with chdir(built):
        done = CliRunner().invoke(app, [*shlex.split(line), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    assert json.loads(done.stdout)


def test_names_that_messages_print_are_taken(built: Path) -> None:
    with chdir(built):
        prefix = next(Path("outputs/web/latest/megatron").glob("*.bin")).with_suffix("")
        assert typed(f"peek {prefix}") == typed("peek outputs/web/latest") == typed("peek outputs/web") == 0
        for source in ("news.jsonl", "data/news.jsonl", f"{built}/data/news.jsonl"):
            assert typed(f"locate web.yaml --source {source} --line 17") == 0


def test_purge_lists_first_and_removes_where_asked_to(built: Path) -> None:
    with chdir(built):
        assert typed("build web.yaml --workers 1") == 0
        before = sorted(Path("outputs/web").rglob("*"))
        listed = CliRunner().invoke(app, ["forget", "web.yaml", "--purge"], catch_exceptions=False)
        assert (listed.exit_code, "--remove does it" in listed.stdout) == (0, True)
        assert sorted(Path("outputs/web").rglob("*")) == before


def test_output_of_shuffle_text_is_replaced_only_where_asked_to(built: Path) -> None:
    with chdir(built):
        assert typed("shuffle-text data --output twice.jsonl") == 0
        with raises("command.output_exists"):
            typed("shuffle-text data --output twice.jsonl --seed 2")
        first = Path("twice.jsonl").read_bytes()
        assert typed("shuffle-text data --output twice.jsonl --seed 2 --force") == 0
        assert Path("twice.jsonl").read_bytes() != first


@pytest.mark.usefixtures("bucket")
def test_check_store_of_one_race_ends_well() -> None:
    assert typed("check-store s3://bucket/work --races 1") == 0


@pytest.mark.usefixtures("bucket")
def test_check_store_asks_the_endpoint_that_is_typed(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert typed(f"check-store s3://bucket/work --races 1 --endpoint-url {moto}") == 0
