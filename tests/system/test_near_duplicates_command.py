"""`corpusmill near-duplicates`, and builds of near-duplicates alone: with references, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from corpusmill.commands import app
from corpusmill.config import DatasetConfig
from corpusmill.inspect.lineage import locate_id, render_located
from corpusmill.inspect.verify import verify_build
from corpusmill.report.html import render_html
from corpusmill.upload.stages.summarize import summarize
from tests.near_duplicates.corpora import corpus
from tests.oracles.near_duplicates import decide
from tests.raising import raises
from tests.report.page import Page
from tests.system.test_decontamination import build
from tests.system.test_near_duplicates import documents, listed, matches_of, settings, write_sources

FOUND = {"similarity": 0.5, "words": 2}
NONE = {"mode": "none"}


def write(path: Path, texts: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
    return path


def parts_of(root: Path, seed: int) -> tuple[list[Path], dict[str, tuple[str, float, int | None]]]:
    """(two references and the sources of texts in random order, what the definition lists of the sources: the kept
    document, the similarity, and the number of its reference).
    """
    texts = {f"d{number}": text for number, text in enumerate(corpus(seed, 120))}
    names = [*texts]
    cuts = {"one/a.jsonl": names[:30], "two/b.jsonl": names[30:50], "sources/c.jsonl": names[50:]}
    paths = [write(root / path, {name: texts[name] for name in own}).parent for path, own in cuts.items()]
    expected = {}
    for name, match in zip(names, decide([*texts.values()], "0.5", 2, references=50), strict=True):
        if match:
            reference = 1 if match.kept < 30 else 2 if match.kept < 50 else None
            expected[name] = (names[match.kept], float(match.similarity), reference)
    return paths, expected


def command(*arguments: object, pairs: object = "pairs.jsonl") -> Result:
    words = ["near-duplicates", *arguments, "--pairs", pairs, "--workers", 1, "--quiet"]
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)


def refused(code: str, *arguments: object, **options: object) -> None:
    with raises(code):
        command(*arguments, **options)


def test_command_lists_the_pairs_without_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = documents()
    write_sources(tmp_path, rows)
    monkeypatch.chdir(tmp_path)
    expected = matches_of(rows)
    for _ in range(2):
        done = command("corpus", pairs="found/pairs.jsonl")
        assert done.exit_code == 0, done.output
        assert f"{len(expected)} of 60 documents are near-duplicates" in done.output
        lines = map(json.loads, (tmp_path / "found" / "pairs.jsonl").read_text().splitlines())
        assert {row["id"]: (row["kept_id"], row["similarity"]) for row in lines} == expected
    (tmp_path / "found" / "pairs.jsonl").write_text("mine\n")
    refused("command.file_of_others", "corpus", pairs="found/pairs.jsonl")
    assert (tmp_path / "found" / "pairs.jsonl").read_text() == "mine\n"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_command_against_references_lists_what_the_definition_says(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, two, sources), expected = parts_of(tmp_path, seed)
    monkeypatch.chdir(tmp_path)
    against = ["--against", one, "--against", two.name]
    done = command(sources, *against, "--similarity", 0.5, "--words", 2)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    found = {row["id"]: (row["kept_id"], row["similarity"], row.get("kept_reference")) for row in rows}
    assert found == expected
    assert {reference for _, _, reference in expected.values()} >= {1, 2}
    assert f"{len(expected)} of 70 documents are near-duplicates of an earlier one" in done.output
    for number, path in ((1, one), (2, two)):
        copies = sum(reference == number for _, _, reference in expected.values())
        assert f"{copies} of these are copies of documents in {path}" in done.output
    for row in rows:
        number = int(row["kept_id"][1:])
        base, file = (0, "a.jsonl") if number < 30 else (30, "b.jsonl") if number < 50 else (50, "c.jsonl")
        assert (row["kept_file"], row["kept_line"]) == (file, number - base + 1)


def alone(root: Path, references: list[Path], **changes: Any) -> DatasetConfig:
    near = {"action": "remove", "most_removed": 1, **FOUND, **changes.pop("near", {})}
    dedup = {**NONE, "against": [*map(str, references)]}
    source = {"paths": [str(root / "sources")], "shard_bytes": "1KiB"}
    return settings(root, **{"near_duplicates": near, "dedup": dedup, "source": source, **changes})


def test_build_of_near_duplicates_alone_against_references_removes_what_the_definition_says(tmp_path: Path) -> None:
    (one, two, _), expected = parts_of(tmp_path, 4)
    built = build(alone(tmp_path, [one, two], card={}))
    assert listed(tmp_path) == {name: (kept, share) for name, (kept, share, _) in expected.items()}
    assert not verify_build(built).findings
    assert not built.units("reference_index")
    name = next(name for name, (_, _, reference) in expected.items() if reference == 2)
    assert f"kept        {two}: b.jsonl" in render_located(locate_id(built, name)[0])
    assert f"{len(expected)} of 70 documents" in Page(render_html(summarize(built))).text


@pytest.mark.parametrize("near", [None, {"action": "report", "within": "source"}])
def test_references_with_which_nothing_would_be_compared_are_refused(near: Any, tmp_path: Path) -> None:
    (one, _, _), _ = parts_of(tmp_path, 4)
    with raises("config.against_without_dedup"):
        alone(tmp_path, [one], near_duplicates=near)


def test_command_refuses_references_that_cannot_be_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _, sources), _ = parts_of(tmp_path, 4)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none").mkdir()
    write(tmp_path / "empty" / "a.jsonl", {})
    refused("source.missing", sources, "--against", "missing")
    refused("source.no_known_files", sources, "--against", "none")
    refused("reference.no_text", sources, "--against", "empty")
    refused("reference.file_in_dataset", sources, "--against", sources)
    refused("reference.file_in_dataset", sources, "--against", tmp_path / "sources" / "c.jsonl")
    refused("config.against_twice", sources, "--against", one, "--against", one)
    refused("source.contains_output", sources, "--against", one, pairs=one / "pairs.jsonl")
    assert not (tmp_path / "pairs.jsonl").exists()
    assert [path.name for path in one.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("option", ["--pairs", "--output"])
@pytest.mark.parametrize("place", ["below a file", "of the wrong kind", "below a dangling link"])
def test_output_that_cannot_be_written_is_refused_before_the_run(
    option: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sources(tmp_path, documents())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("gone")
    wrong = "folder" if option == "--pairs" else "file"
    path = {"below a file": "file/deep/out", "of the wrong kind": wrong, "below a dangling link": "link/out"}[place]
    command = {"--pairs": "near-duplicates", "--output": "dedup"}[option]
    words = [command, "corpus", option, path, "--workers", "1", "--quiet"]
    with raises("destination.not_writable"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("pairs", ["", ".", "/"])
def test_pairs_without_a_name_are_refused(pairs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, _, sources), _ = parts_of(tmp_path, 5)
    monkeypatch.chdir(tmp_path)
    refused("destination.not_writable", sources, pairs=pairs)


def test_pairs_below_the_home_folder_are_written_where_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, _, sources), _ = parts_of(tmp_path, 5)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(sources)
    told = command(".", "--work-folder", tmp_path / "work", pairs="~/pairs.jsonl")
    assert told.exit_code == 0
    assert (tmp_path / "home" / "pairs.jsonl").stat().st_size
    assert [path.name for path in sources.iterdir()] == ["c.jsonl"]
    refused("source.contains_output", ".", "--work-folder", tmp_path / "work", pairs="pairs.jsonl")
