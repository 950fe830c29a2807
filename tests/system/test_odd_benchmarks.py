"""Benchmarks that are odd: of repeated items, the corpus itself, very many, or changed upstream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.summarize import summarize
from tests.system.test_decontamination import (
    HITS,
    OTHER,
    QUESTION,
    build,
    decontaminated,
    outputs,
    write_benchmark,
    write_sources,
)


def hits_of(root: Path) -> list[tuple[str, str, str]]:
    rows = [json.loads(line) for line in outputs(root)[HITS].splitlines()]
    return [(row["benchmark"], row["item"], row["id"]) for row in rows]


def test_repeated_empty_and_one_word_items_are_listed_by_name_and_removed_once(tmp_path: Path) -> None:
    write_sources(tmp_path)
    items = [QUESTION, "", "Paris", QUESTION, "?!", OTHER]
    of = build(decontaminated(tmp_path, write_benchmark(tmp_path, "odd", *items)))
    assert hits_of(tmp_path) == [
        *((("odd", f"odd/{number}", "0-3")) for number in (0, 3)),
        ("odd", "odd/5", "1-3"),
        *((("odd", f"odd/{number}", "2-3")) for number in (0, 3)),
    ]
    assert of.total("decontaminate", "documents_removed") == 3
    facts = summarize(of).contamination
    assert facts
    assert (facts.benchmarks[0].items, facts.benchmarks[0].undecidable) == (6, 3)
    assert not verify_build(of).findings


def test_benchmark_that_is_in_the_corpus_as_a_whole_leaves_all_of_it_out(tmp_path: Path) -> None:
    """The benchmark's own file lies among the sources, a row a document."""
    write_sources(tmp_path)
    questions = [
        f"How many {thing} did the {who} carry over the old bridge before the {day} market closed at dusk?"
        for thing in ("lanterns", "barrels", "ledgers", "anvils")
        for who in ("miller", "cooper", "chandler")
        for day in ("Monday", "Thursday")
    ]
    rows = [{"id": f"leak-{number}", "text": question} for number, question in enumerate(questions)]
    (tmp_path / "corpus" / "leaked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    of = build(decontaminated(tmp_path, write_benchmark(tmp_path, "leak", *questions)))
    assert {identity for _, _, identity in hits_of(tmp_path)} == {row["id"] for row in rows}
    assert of.total("decontaminate", "documents_removed") == len(rows)
    assert outputs(tmp_path)["documents/leaked.jsonl"] == b""
    assert not verify_build(of).findings


@pytest.mark.slow
def test_more_benchmarks_than_files_may_be_open_are_searched_for_at_once(tmp_path: Path) -> None:
    write_sources(tmp_path)
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    names = [f"bench{number}" for number in range(1_500)]
    for name in names:
        (folder / f"{name}.jsonl").write_text(json.dumps({"id": "1", "question": f"{QUESTION} And {name}?"}) + "\n")
    of = build(decontaminated(tmp_path, *({"name": name, "path": str(folder / f"{name}.jsonl")} for name in names)))
    assert of.receipt("benchmarks", "index").counts["items"] == len(names)
    actual = summarize(of).contamination
    assert actual
    assert len(actual.benchmarks) == len(names)
    assert not verify_build(of).findings
