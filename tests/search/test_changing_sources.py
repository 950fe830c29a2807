"""Sources that change while a dataset is built: a typed error, or the bytes of one content, never a mixture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.engine.build import Build
from corpusmill.errors import CorpusmillError
from tests.quick import quick
from tests.search.folders import Result, built, built_from_scratch, delivered, rooted, small_limits
from tests.search.settings import changed, configuration, first_settings
from tests.search.sources import Corpus, Source
from tests.search.vocabularies import write_vocabulary

LINES = tuple(f'{{"id": {number}, "text": "the water and the stone {number:06d}"}}' for number in range(40))
OTHERS = tuple(line.replace("stone", "Stone") for line in LINES)
STAGES = list(GRAPH.names)


def replaced(corpus: Corpus, name: str) -> None:
    """Another file of the same size takes its place."""
    path = corpus.folder / name
    new = path.with_name("new")
    Source(OTHERS, 90).write(new.with_suffix(path.suffix))
    new.with_suffix(path.suffix).replace(path)


def appended(corpus: Corpus, name: str) -> None:
    """More documents at its end."""
    corpus.change(name, Source((*LINES, *OTHERS), 90), keep_times=False)


def cut_short(corpus: Corpus, name: str) -> None:
    """Half of it is gone."""
    os.truncate(corpus.folder / name, (corpus.folder / name).stat().st_size // 2)


def removed(corpus: Corpus, name: str) -> None:
    """It is gone."""
    corpus.remove(name)


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with small_limits():
        yield


@pytest.mark.parametrize("before", quick(["writeback", "index"], 1))
@pytest.mark.parametrize("change", [replaced, appended, cut_short, removed])
@pytest.mark.parametrize("name", quick(["c9.jsonl.zst", "a.jsonl"], 1))
def test_source_changed_between_two_stages_is_an_error_or_one_of_the_two_datasets(
    tmp_path: Path, name: str, change: Callable[[Corpus, str], None], before: str
) -> None:
    corpus = Corpus(tmp_path / "corpus")
    corpus.put(name, Source(LINES, 90))
    corpus.put("z.jsonl", Source(LINES[:3]))
    write_vocabulary(tmp_path / "tiny.tiktoken", "plain")
    config = configuration(first_settings("one"), tmp_path, tmp_path / "tiny.tiktoken")
    old = built_from_scratch(tmp_path / "old", config)
    root = tmp_path / "root"
    root.mkdir()
    with rooted(root):
        plan_receipt = plan_dataset(config)
        at = STAGES.index(before)
        run_build(plan_receipt, workers=1, until=STAGES[at - 1])
        change(corpus, name)
        changed_midway = ended(root, open_build(plan_receipt))
    new = built_from_scratch(tmp_path / "new", config)
    if not changed_midway.error:
        assert not changed_midway.differences(old) or not changed_midway.differences(new)
    again = built(root, config)
    assert not again.differences(new)


def ended(root: Path, build: Build) -> Result:
    try:
        run_build(build.plan_receipt, workers=1)
    except CorpusmillError as error:
        return Result(error=type(error).__name__)
    return delivered(root, build.config.name)


@pytest.mark.parametrize("mode", quick(["remove", "annotate", "none"], 1))
def test_source_changed_while_it_is_read_is_an_error_or_one_of_the_two_datasets(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every opening of the file in turn: it is replaced once the reader has it open."""
    corpus = Corpus(tmp_path / "corpus")
    write_vocabulary(tmp_path / "tiny.tiktoken", "plain")
    wanted = changed(first_settings("one"), [("dedup.mode", mode)])
    config = configuration(wanted, tmp_path, tmp_path / "tiny.tiktoken")
    corpus.put("a.jsonl", Source(OTHERS))
    new = built_from_scratch(tmp_path / "new", config)
    corpus.put("a.jsonl", Source(LINES))
    old = built_from_scratch(tmp_path / "old", config)
    real = Path.open
    moments, finished = 0, False
    while not finished:
        corpus.put("a.jsonl", Source(LINES))
        root = tmp_path / f"root-{moments}"
        root.mkdir()
        opened = 0

        def opens(path: Path, *arguments: object, at: int = moments, **named: object) -> object:
            nonlocal opened
            stream = real(path, *arguments, **named)  # type: ignore[call-overload]
            if path.name == "a.jsonl" and path.parent == corpus.folder:
                opened += 1
                if opened == at + 1:
                    with real(path, "r+b") as file:
                        file.write(Source(OTHERS).text())
            return stream

        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", opens)
            result = built(root, config)
        finished = opened <= moments
        assert result.error or not result.differences(old) or not result.differences(new), moments
        assert not built(root, config).differences(old if finished else new)
        moments += 1
    assert moments > 1
