"""Whole builds of random configurations, by parts of tasks in a random order, against builds by the command."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from corpusmill.builds.chain import EXPORT, Task, all_tasks, needed_tasks
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import run_part
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig
from corpusmill.engine.build import Build
from corpusmill.engine.parts import Part
from corpusmill.engine.runs import begin_run
from corpusmill.errors import CorpusmillError
from tests.search import beside
from tests.search.compared import MEMORY
from tests.search.folders import Result, built, delivered, rooted, small_limits
from tests.search.run import load_modules
from tests.search.settings import Change, changed, configuration, first_settings, with_files_beside
from tests.search.sources import Corpus, Source
from tests.search.test_chain import files, whole_builds
from tests.search.vocabularies import write_vocabulary


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with small_limits():
        yield


def built_by_parts(root: Path, config: DatasetConfig, parts: int, number: int) -> Result:
    """Build below `root` as a scheduler does: every part of a task in a new build, in an order drawn by `number`."""
    draw = Random(number)
    with rooted(root):
        try:
            plan = begin_run(plan_dataset(config, to_build=True))
            for task in needed_tasks(config, parts):
                of = 1 if task.round.alone else parts
                for part in draw.sample(range(1, of + 1), of):
                    run_part(plan, task.name, Part(part, parts))
        except CorpusmillError as error:
            return Result(error=type(error).__name__)
        require_earlier_inputs(open_build(plan), parts)
    return delivered(root, config.name)


def require_earlier_inputs(build: Build, parts: int) -> None:
    """Every step is in one part of one task, and reads from earlier tasks, or from the same part."""
    made_by: dict[tuple[str, str], tuple[int, int]] = {}
    tasks = needed_tasks(build.config, parts)
    for place, task in enumerate(tasks):
        for stage in (name for name in GRAPH.names if name in task.stages(build.config, parts)):
            for number in range(1, 2 if task.round.alone else parts + 1):
                for unit in task.units(build, stage, Part(number, parts)):
                    assert (stage, unit) not in made_by
                    made_by[stage, unit] = place, number
                    for read in build.inputs(stage, unit):
                        earlier, of_part = made_by[read]
                        assert earlier < place or (earlier, of_part) == (place, number), (stage, unit, read)
    assert set(made_by) == {(stage, unit) for stage in GRAPH.names for unit in build.units(stage)}


def compare_most(examples: int, number: int | None) -> Counter[str]:
    """Compare builds of random configurations, with files beside the corpus; how often each thing happened."""
    seen: Counter[str] = Counter()

    @settings(whole_builds, max_examples=examples)
    @given(
        files,
        st.lists(with_files_beside, max_size=20),
        st.lists(beside.edits.filter(lambda edit: not edit[0].startswith(beside.CODE)), max_size=6),
        st.integers(1, 5),
        st.integers(0, 1000),
    )
    def compare(
        files: dict[str, Source], wanted: list[Change], edits: list[beside.Edit], parts: int, order: int
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="parts-", dir=MEMORY if MEMORY.is_dir() else None))
        try:
            corpus = Corpus(folder / "corpus")
            for name, source in files.items():
                corpus.put(name, source)
            write_vocabulary(folder / "tiny.tiktoken", "plain")
            beside.write_first(folder)
            for edit in edits:
                beside.write(folder, edit)
            config = configuration(changed(first_settings("one"), wanted), folder, folder / "tiny.tiktoken")
            for name in ("whole", "parts"):
                (folder / name).mkdir()
            with patch("sys.path", [*sys.path, str(folder / beside.CODE)]):
                whole = built(folder / "whole", config)
                by_parts = built_by_parts(folder / "parts", config, parts, order)
            assert whole.findings == ""
            assert by_parts.differences(whole) == []
            seen[whole.error or "delivered"] += 1
            seen["of several parts"] += parts > 1 and not whole.error
        finally:
            shutil.rmtree(folder)
            for module in (beside.STEPS, beside.WORDS):
                sys.modules.pop(module, None)

    load_modules()
    (compare if number is None else seed(number)(compare))()
    return seen


@pytest.mark.parametrize(("number", "examples"), [(5, 10), pytest.param(None, 100, marks=pytest.mark.slow)])
def test_build_by_parts_of_tasks_in_any_order_is_the_commands(number: int | None, examples: int) -> None:
    seen = compare_most(examples, number)
    assert seen["of several parts"] > examples / 10, seen


def test_tasks_of_exports_are_one_for_each_format() -> None:
    exports: list[Task] = [task for task in all_tasks() if task.step.name == EXPORT]
    assert len({task.round.name for task in exports}) == len(exports) > 1
