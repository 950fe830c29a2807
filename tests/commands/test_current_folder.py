"""Paths typed on a command line start at the current folder, also where CORPUSMILL_ROOT is another one.

The same commands run in a folder without CORPUSMILL_ROOT, and in a copy of it while CORPUSMILL_ROOT is a third folder,
which has other texts under the same names.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.cli import app
from tests.system.corpus import configuration, lines_of, make_documents
from tests.tokens.vocabularies import GPT2, shared

TYPED = {
    "tokens": "tokenize data --tokenizer gpt2.json --output tokens",
    "parts": "megatron data --tokenizer gpt2.json --output parts/web --workers 1",
    "nanoset": "nanoset data --tokenizer gpt2.json --output nanoset --workers 1",
    "clean": "dedup data --minimum-bytes 100 --against old --output clean --workers 1",
    "ngrams": "infini-gram data --output ngrams --workers 1",
    "hits.jsonl": "decontaminate data --benchmark items.jsonl --hits hits.jsonl",
    "named.jsonl": "decontaminate data --benchmark quiz=items.jsonl --hits named.jsonl",
    "shuffled.jsonl": "shuffle-text data --output shuffled.jsonl",
    "reshuffled": "shuffle tokens --output reshuffled",
    "merged": "merge parts --output merged/all",
}
ONLY_HERE = {
    "step try": "step try corpusmill.steps.gopher:Quality only",
    "mix": "mix outputs/tiny/latest --budget-tokens 1M --output mixture",
    "diff": "diff outputs/tiny/latest outputs/tiny/latest --page page.html",
    "repair": "repair outputs/tiny backup/tiny",
}


def write_sources(folder: Path, seed: int) -> None:
    """data/, old/ and items.jsonl of texts that depend on the seed."""
    texts = make_documents(40, seed=seed)
    for name, own in {"data": texts, "old": make_documents(20, seed=seed + 1)}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "news.jsonl").write_bytes(lines_of(own))
    (folder / "items.jsonl").write_bytes(lines_of(texts[:1]).replace(b'"text"', b'"question"'))


def files_of(place: Path) -> dict[str, bytes]:
    """{path below a folder: bytes}, or that of a single file."""
    paths = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in paths}


def run(folder: Path, line: str) -> int:
    with chdir(folder):
        return CliRunner().invoke(app, shlex.split(line)).exit_code


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path, dict[str, int]]:
    """The folder without a root, the same with one, that root, and the exit codes of `ONLY_HERE` there."""
    plain, here, root = (tmp_path_factory.mktemp(name) for name in ("plain", "here", "root"))
    write_sources(plain, seed=1)
    (plain / "only").mkdir()
    shutil.copy(plain / "data" / "news.jsonl", plain / "only")
    shutil.copy(shared(GPT2), plain / "gpt2.json")
    shutil.copytree(plain, here, dirs_exist_ok=True)
    places = [{"path": str(here / "outputs")}, {"path": str(here / "backup")}]
    source = {"paths": [str(here / "data")]}
    config = configuration(here, source=source, destinations=places, exports={"megatron": {}, "nanoset": {}})
    (here / "tiny.yaml").write_text(yaml.safe_dump(config))
    assert run(here, "build tiny.yaml --workers 1") == 0
    write_sources(root, seed=9)
    (root / "gpt2.json").write_text("{}")
    before = os.environ.pop("CORPUSMILL_ROOT", None)
    try:
        assert [run(plain, line) for line in TYPED.values()] == [0] * len(TYPED)
        os.environ["CORPUSMILL_ROOT"] = str(root)
        for line in TYPED.values():
            run(here, line)
        codes = {name: run(here, line) for name, line in ONLY_HERE.items()}
    finally:
        os.environ.pop("CORPUSMILL_ROOT", None)
        if before is not None:
            os.environ["CORPUSMILL_ROOT"] = before
    return plain, here, root, codes


@pytest.mark.parametrize("output", TYPED)
def test_command_with_another_root_reads_and_writes_the_current_folder(
    output: str, folders: tuple[Path, Path, Path, dict[str, int]]
) -> None:
    plain, here, _, _ = folders
    expected = files_of(plain / output)
    assert expected
    assert files_of(here / output) == expected


@pytest.mark.parametrize("command", ONLY_HERE)
def test_command_with_another_root_finds_what_only_the_current_folder_has(
    command: str, folders: tuple[Path, Path, Path, dict[str, int]]
) -> None:
    assert folders[3][command] == 0


def test_root_of_commands_without_a_configuration_stays_as_it_was(
    folders: tuple[Path, Path, Path, dict[str, int]],
) -> None:
    assert sorted(files_of(folders[2])) == ["data/news.jsonl", "gpt2.json", "items.jsonl", "old/news.jsonl"]


def test_forget_reads_ids_in_the_current_folder_and_the_list_of_a_configuration_below_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, root = tmp_path / "here", tmp_path / "root"
    write_sources(root, seed=1)
    here.mkdir()
    (here / "ids.txt").write_text("here\n")
    (root / "ids.txt").write_text("elsewhere\n")
    forget = {"path": "takedowns.jsonl", "copies": "keep"}
    config = configuration(root, source={"paths": ["data"]}, forget=forget)
    (here / "tiny.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("CORPUSMILL_ROOT", str(root))
    assert run(here, "forget tiny.yaml --ids ids.txt") == 0
    (row,) = map(json.loads, (root / "takedowns.jsonl").read_text().splitlines())
    assert row["id"] == "here"


@pytest.mark.parametrize(
    "line",
    [
        "tokenize data --tokenizer cl100k_base --output data/tokens",
        "megatron data --tokenizer cl100k_base --output data/web",
        "decontaminate data --benchmark items.jsonl --hits data/hits.jsonl",
        "dedup data --output data/clean",
        "infini-gram data --output data/ngrams",
    ],
)
def test_output_below_an_input_of_the_current_folder_is_refused_with_another_root(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("here", "root")):
        write_sources(tmp_path / name, seed=number)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path / "root"))
    before = files_of(tmp_path)
    assert run(tmp_path / "here", line) == 1
    assert {name: data for name, data in files_of(tmp_path).items() if "work" not in Path(name).parts} == before


def test_dedup_expands_the_home_folder_in_each_of_its_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write_sources(tmp_path / "home", seed=1)
    (tmp_path / "here").mkdir()
    line = "dedup ~/data --minimum-bytes 100 --output ~/clean --work-folder ~/work --workers 1"
    assert run(tmp_path / "here", line) == 0
    assert (tmp_path / "home" / "clean" / "news.jsonl").is_file()
    assert (tmp_path / "home" / "work").is_dir()
    assert not list((tmp_path / "here").iterdir())
