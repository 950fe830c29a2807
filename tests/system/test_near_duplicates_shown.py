"""What people see of near-duplicates: the report, locate, the card; for every action, and as the definition says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.estimate import estimate_dataset, render_estimate
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.lineage import locate, locate_id, render_located
from corpusmill.inspect.lineage.facts import Located, NearDuplicateLine
from corpusmill.inspect.verify import verify_build
from corpusmill.report.content import NearDuplicateSummary
from corpusmill.report.html import render_html
from corpusmill.upload.stages.summarize import summarize
from tests.near_duplicates.corpora import corpus
from tests.oracles.near_duplicates import Match, decide
from tests.report.page import Page
from tests.system.corpus import configuration

TEXTS = [*corpus(1, 150), *(text + " and some words more" for text in corpus(1, 150)[::3])]
FIRST = 90  # documents of the first source


def settings(root: Path, action: str, **changes: Any) -> DatasetConfig:
    paths = [root / "a.jsonl", root / "b.jsonl"]
    rows = [json.dumps({"id": f"doc-{number}", "text": text}) + "\n" for number, text in enumerate(TEXTS)]
    for path, own in zip(paths, (rows[:FIRST], rows[FIRST:]), strict=True):
        path.write_text("".join(own))
    values = {
        "source": {"paths": [*map(str, paths)], "shard_bytes": "2KiB"},
        "near_duplicates": {"action": action, "similarity": 0.5, "words": 2, "most_removed": 1.0},
        "exports": {"megatron": {}},
        "card": {},
        **changes,
    }
    return check_config(configuration(root, **values), where="test")


def built(root: Path, action: str, **changes: Any) -> Build:
    return open_build(build_dataset(settings(root, action, **changes), workers=1))


def shown(build: Build) -> NearDuplicateSummary:
    summary = summarize(build).near_duplicates
    assert summary is not None
    return summary


def pairs_of(root: Path) -> list[dict[str, Any]]:
    lines = (root / "outputs/tiny/latest/near_duplicates/pairs.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def as_matches(rows: list[dict[str, Any]]) -> dict[int, tuple[int, float]]:
    number = {f"doc-{number}": number for number in range(len(TEXTS))}
    return {number[row["id"]]: (number[row["kept_id"]], row["similarity"]) for row in rows}


@pytest.mark.parametrize("action", ["remove", "annotate", "report"])
def test_report_of_near_duplicates_says_what_the_definition_says_whatever_the_action(
    action: str, tmp_path: Path
) -> None:
    build = built(tmp_path, action)
    expected = {number: match for number, match in enumerate(decide(TEXTS, "0.5", 2)) if match}
    rows = pairs_of(tmp_path)
    assert as_matches(rows) == {number: (kept, float(share)) for number, (kept, share) in expected.items()}
    for row in rows:
        for prefix in ("", "kept_"):
            number = int(row[f"{prefix}id"].removeprefix("doc-"))
            place = ("a.jsonl", number + 1) if number < FIRST else ("b.jsonl", number + 1 - FIRST)
            assert (row[f"{prefix}file"], row[f"{prefix}line"]) == place
    facts = shown(build)
    assert (facts.documents, facts.left_out) == (len(TEXTS), len(expected))
    assert facts.text_bytes_left_out == sum(len(TEXTS[number].encode()) for number in expected)
    assert [source.left_out for source in facts.by_source] == [
        sum(number < FIRST for number in expected), sum(number >= FIRST for number in expected),
    ]  # fmt: skip
    sizes = group_sizes(expected)
    assert (facts.groups.count, facts.groups.total) == (len(sizes), sum(sizes))
    assert sum(facts.by_similarity.values()) == len(expected)
    assert facts.by_similarity[100] == sum(match.similarity == 1 for match in expected.values())
    assert len(facts.pairs) == 10
    shares = [pair.similarity for pair in facts.pairs]
    assert shares == sorted(shares)
    for pair in facts.pairs:
        number = int(pair.left_out.id.removeprefix("doc-"))
        assert (pair.kept.id, pair.similarity) == (f"doc-{expected[number].kept}", float(expected[number].similarity))
    text = Page(render_html(summarize(build))).text
    assert f"{len(expected)} of {len(TEXTS)} documents" in text
    assert not verify_build(build).findings


def group_sizes(expected: dict[int, Match]) -> list[int]:
    kept = [match.kept for match in expected.values()]
    return [kept.count(number) + 1 for number in set(kept)]


def test_locate_of_a_near_duplicate_names_the_kept_document_it_was_left_out_for(tmp_path: Path) -> None:
    build = built(tmp_path, "remove")
    row = pairs_of(tmp_path)[-1]
    found = locate(build, row["file"], row["line"])
    assert isinstance(found, NearDuplicateLine)
    assert found.kept == (row["kept_file"], row["kept_line"], row["kept_id"])
    assert locate_id(build, row["id"]) == (found,)
    assert f"kept        {row['kept_file']}, line {row['kept_line']}" in render_located(found)
    assert isinstance(locate(build, row["kept_file"], row["kept_line"]), Located)
    reported = built(tmp_path / "other", "report") if (tmp_path / "other").mkdir() is None else build
    assert isinstance(locate(reported, row["file"], row["line"]), Located)


def test_card_of_a_dataset_without_near_duplicates_says_how_many_there_were(tmp_path: Path) -> None:
    built(tmp_path, "remove")
    text = (tmp_path / "outputs/tiny/latest/README.md").read_text()
    left_out = len(pairs_of(tmp_path))
    assert f"Near-duplicates: {left_out} of {len(TEXTS)} documents share 50% or more of their runs of 2 words" in text


@pytest.mark.parametrize("within", ["dataset", "source"])
def test_estimate_of_everything_says_how_many_near_duplicates_would_go(within: str, tmp_path: Path) -> None:
    wanted = {"action": "report", "similarity": 0.5, "words": 2, "most_removed": 0.0, "within": within}
    config = settings(tmp_path, "report", near_duplicates=wanted)
    sources = [int(number >= FIRST) for number in range(len(TEXTS))] if within == "source" else None
    share = sum(match is not None for match in decide(TEXTS, "0.5", 2, sources)) / len(TEXTS)
    estimate = estimate_dataset(config)
    assert estimate.near_duplicate_share == share
    assert f"near-duplicates  {share:.1%} of the documents" in render_estimate(estimate)


def test_estimate_of_a_sample_does_not_stop_at_the_share_that_a_build_may_remove(tmp_path: Path) -> None:
    wanted = {"action": "remove", "similarity": 0.5, "words": 2, "most_removed": 0.0}
    config = settings(tmp_path, "remove", near_duplicates=wanted, estimate={"sample_bytes": "2KB"})
    assert "near-duplicates  at least" in render_estimate(estimate_dataset(config))


def test_report_after_documents_are_forgotten_shows_none_of_them(tmp_path: Path) -> None:
    pairs = shown(built(tmp_path, "remove")).pairs
    gone = {side.id for pair in pairs for side in (pair.left_out, pair.kept)}
    (tmp_path / "forget.jsonl").write_text("".join(json.dumps({"id": name}) + "\n" for name in sorted(gone)))
    forget = {"path": str(tmp_path / "forget.jsonl"), "key": "id", "copies": "keep"}
    again = built(tmp_path, "remove", forget=forget)
    left = [number for number in range(len(TEXTS)) if f"doc-{number}" not in gone]
    expected = decide([TEXTS[number] for number in left], "0.5", 2)
    assert as_matches(pairs_of(tmp_path)) == {
        left[number]: (left[match.kept], float(match.similarity)) for number, match in enumerate(expected) if match
    }
    assert not gone & {side.id for pair in shown(again).pairs for side in (pair.left_out, pair.kept)}
    report = render_html(summarize(again))
    assert not any(f"id {name}<" in report for name in gone)
