"""Whole builds of random configurations against the plain-Python oracle of the chain (tests/oracles/chain.py)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.search.compared import MEMORY
from tests.search.folders import built, small_limits
from tests.search.plain import expected, misstated, read_back
from tests.search.settings import STEPS, Change, changed, changes, configuration, first_settings
from tests.search.sources import NAMES, Corpus, Source, documents, sources
from tests.search.vocabularies import write_vocabulary

# What the oracle does not say: patterns of paths, tokshuf's ids; and settings by which nothing is delivered.
UNSAID = {"source.paths", "tokenizer.special_ids", "audit.share", "audit.minimum_documents"}
REFUSED = {"TokenizerError", "RejectedDocumentsError", "ConfigError"}

names = st.sampled_from([name for name in NAMES if ".part0" not in name])
files = st.dictionaries(names, sources, min_size=1, max_size=4)
printed = st.lists(changes.filter(lambda change: change[0] not in UNSAID), max_size=14)


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with small_limits():
        yield


def equals_oracle(files: dict[str, Source], wanted: list[Change]) -> bool:
    """Build once, and compare every delivered file; whether there are any."""
    folder = Path(tempfile.mkdtemp(prefix="oracle-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        corpus = Corpus(folder / "corpus")
        for name, source in files.items():
            # Where a parquet file's row groups begin is the writer's matter: it has one.
            corpus.put(name, replace(source, frame_bytes=0) if name.endswith(".parquet") else source)
        write_vocabulary(folder / "tiny.tiktoken", "plain")
        config = configuration(changed(first_settings("one"), wanted), folder, folder / "tiny.tiktoken")
        (folder / "root").mkdir()
        result = built(folder / "root", config)
        if result.error in REFUSED:
            return False
        oracle = expected(config, corpus.files, corpus.folder)
        if oracle is None:
            assert result.error == "SourceError"  # no document of the dataset has any text
            return False
        assert not result.error
        assert not result.findings
        actual = read_back(result.files)
        assert sorted(actual) == sorted(oracle)
        assert [name for name in actual if actual[name] != oracle[name]] == []
        assert misstated(result.files) == []
        return True
    finally:
        shutil.rmtree(folder)


whole_builds = settings(
    database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink]
)


late = st.sampled_from([steps for steps in STEPS if steps[-1]["before"] == "writeback"]).map(
    lambda steps: [("steps", steps)]
)
several = st.lists(documents, min_size=3, max_size=12).map(tuple)


def compare_most(
    examples: int, files: st.SearchStrategy[Any], steps: st.SearchStrategy[Any], number: int | None = None
) -> None:
    """Compare builds of random configurations; most of them must deliver something."""
    delivered = []

    @settings(whole_builds, max_examples=examples)
    @given(files, printed, steps)
    def compare(files: dict[str, Source], wanted: list[Change], steps: list[Change]) -> None:
        kept = [item for item in wanted if not steps or item != ("dedup.mode", "annotate")]
        delivered.append(equals_oracle(files, [*kept, *steps]))

    (compare if number is None else seed(number)(compare))()
    assert sum(delivered) > len(delivered) / 2


def test_build_of_a_random_configuration_is_the_oracles() -> None:
    compare_most(8, files, st.just([]), 5)


@pytest.mark.slow
def test_build_of_many_random_configurations_is_the_oracles() -> None:
    compare_most(60, files, st.just([]))


@pytest.mark.slow
def test_build_with_steps_on_deduplicated_text_is_the_oracles() -> None:
    compare_most(8, st.dictionaries(names, st.builds(Source, several), min_size=1, max_size=3), late, 6)


PAGE = ('{"id": 1, "text": "%s"}' % ("the water and the stone " * 3),)


@pytest.mark.parametrize("method", ["anchors", "suffix_array"])
@pytest.mark.parametrize("order", ["random", "source"])
@pytest.mark.parametrize("copies", [1, 9])
def test_build_of_equal_documents_and_of_one_document_is_the_oracles(method: str, order: str, copies: int) -> None:
    wanted = [("index.method", method), ("shuffle.order", order)]
    assert equals_oracle({"a.jsonl": Source(PAGE * copies), "z.jsonl.gz": Source(PAGE * (copies - 1))}, wanted)
