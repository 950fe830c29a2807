"""Whole builds of random configurations against the plain-Python oracle of the chain (tests/oracles/chain.py)."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.oracles.chain import RefusedError
from tests.search.beside import BY_ID, write
from tests.search.compared import MEMORY
from tests.search.folders import built, small_limits
from tests.search.plain import expected, misstated, read_back
from tests.search.run import load_modules
from tests.search.settings import STEPS, Change, changed, changes, configuration, first_settings
from tests.search.sources import NAMES, Corpus, Source, documents, sources
from tests.search.vocabularies import write_vocabulary

# What the oracle does not say: patterns of paths, tokshuf's ids; and settings by which nothing is delivered.
UNSAID = {"source.paths", "tokenizer.special_ids", "audit.share", "audit.minimum_documents"}
REFUSED = {"TokenizerError", "RejectedDocumentsError"}

NO_LIST: st.SearchStrategy[list[str] | None] = st.none()
names = st.sampled_from([name for name in NAMES if ".part0" not in name])
files = st.dictionaries(names, sources, min_size=1, max_size=4)
printed = st.lists(changes.filter(lambda change: change[0] not in UNSAID), max_size=14)


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with small_limits():
        yield


def equals_oracle(
    files: dict[str, Source], wanted: list[Change], listed: list[str] | None = None, seen: Counter[str] | None = None
) -> bool:
    """Build once, and compare every delivered file; whether there are any. `seen` counts what happened.

    `listed`: the ids of the list to forget.
    """
    seen = Counter() if seen is None else seen
    folder = Path(tempfile.mkdtemp(prefix="oracle-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        corpus = Corpus(folder / "corpus")
        for name, source in files.items():
            # Where a parquet file's row groups begin is the writer's matter: it has one.
            corpus.put(name, replace(source, frame_bytes=0) if name.endswith(".parquet") else source)
        write_vocabulary(folder / "tiny.tiktoken", "plain")
        write(folder, (BY_ID, "".join(json.dumps({"id": identity}) + "\n" for identity in listed or ())))
        config = configuration(changed(first_settings("one"), wanted), folder, folder / "tiny.tiktoken")
        (folder / "root").mkdir()
        result = built(folder / "root", config)
        seen[result.error or "delivered"] += 1
        if result.error in REFUSED:
            return False
        oracle, refusal = None, ""
        try:
            oracle = expected(config, corpus.files, corpus.folder, listed or [], seen)
        except RefusedError as refused:
            refusal = str(refused)
        if refusal:
            assert result.error in {refusal, "PermanentError"}  # one error with this reason and the tokenizer's
            return False
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
several_files = st.dictionaries(names, st.builds(Source, several), min_size=1, max_size=3)


def compare_most(
    examples: int,
    files: st.SearchStrategy[Any],
    more: st.SearchStrategy[list[Change]],
    number: int | None = None,
    *,
    listed: st.SearchStrategy[list[str] | None] = NO_LIST,
) -> Counter[str]:
    """Compare builds of random configurations, with more changes; how often each thing happened."""
    seen: Counter[str] = Counter()

    @settings(whole_builds, max_examples=examples)
    @given(files, printed, more, listed)
    def compare(files: dict[str, Source], wanted: list[Change], more: list[Change], listed: list[str] | None) -> None:
        of_more = {key for key, _ in more}
        kept = [item for item in wanted if not (item == ("dedup.mode", "annotate") and "steps" in of_more)]
        kept = [item for item in kept if not (item[0] == "steps" and of_more)]  # these say themselves what is dropped
        seen["compared"] += equals_oracle(files, [*kept, *more], listed, seen)

    load_modules()
    (compare if number is None else seed(number)(compare))()
    return seen


def require_most(seen: Counter[str], examples: int) -> None:
    """Most builds delivered something, and it was compared."""
    assert seen["compared"] > examples / 2, seen


def test_build_of_a_random_configuration_is_the_oracles() -> None:
    require_most(compare_most(8, files, st.just([]), 5), 8)


@pytest.mark.slow
def test_build_of_many_random_configurations_is_the_oracles() -> None:
    seen = compare_most(60, files, st.just([]))
    require_most(seen, 60)
    assert seen["emptied"]


@pytest.mark.slow
def test_build_with_steps_on_deduplicated_text_is_the_oracles() -> None:
    require_most(compare_most(8, several_files, late, 6), 8)


nobody = st.lists(st.sampled_from(["nobody", "none"]), unique=True, min_size=1)
some = st.lists(st.sampled_from(["doc", "7", "\u00fc", "true", "7.0", "nobody"]), unique=True, max_size=4)
lists = st.one_of(nobody, some, some)
forgetting = st.builds(
    lambda copies, share: [("forget", {"path": BY_ID, "copies": copies, "max_unmatched_share": share})],
    st.sampled_from(["keep", "also"]),
    st.sampled_from([None, 1]),
)
annotating = st.builds(
    lambda key, replaces: [
        ("dedup.drop_empty", False),
        ("dedup.mode", "annotate"),
        ("dedup.writeback", True),
        ("dedup.annotate_key", key),
        ("dedup.replace_existing", replaces),
    ],
    st.sampled_from(["meta.ranges", "meta.ranges", "meta", "meta.a"]),
    st.booleans(),
)
emptying = st.just([("dedup.mode", "remove"), ("dedup.writeback", True), ("dedup.drop_empty", True)])
DRAWN = {
    "forgetting": (forgetting, lists, {"compared", "forgotten", "UnmatchedDecisionsError"}),
    "annotating": (
        annotating,
        NO_LIST,
        {"compared", "ConfigError", "annotated null", "annotated within an object", "replaced"},
    ),
    "emptying": (emptying, NO_LIST, {"compared", "emptied"}),
}


@pytest.mark.parametrize(("more", "listed", "expected"), DRAWN.values(), ids=DRAWN)
@pytest.mark.parametrize(("number", "examples"), [(3, 16), pytest.param(None, 100, marks=pytest.mark.slow)])
def test_build_that_forgets_annotates_or_empties_documents_is_the_oracles(
    more: Any, listed: Any, expected: set[str], number: int | None, examples: int
) -> None:
    """Lists of which no row matches, annotations without a place and documents that become empty are all drawn."""
    seen = compare_most(examples, several_files, more, number, listed=listed)
    assert {name for name in expected if not seen[name]} == set(), seen


PAGE = ('{"id": 1, "text": "%s"}' % ("the water and the stone " * 3),)


@pytest.mark.parametrize("order", ["random", "source"])
@pytest.mark.parametrize("copies", [1, 9])
def test_build_of_equal_documents_and_of_one_document_is_the_oracles(order: str, copies: int) -> None:
    wanted = [("shuffle.order", order)]
    assert equals_oracle({"a.jsonl": Source(PAGE * copies), "z.jsonl.gz": Source(PAGE * (copies - 1))}, wanted)
