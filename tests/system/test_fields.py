"""Builds whose steps, decisions and budget ask for fields of the documents, read with the texts, once."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import check_dataset, plan_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.lineage.verify import verify_records
from corpusmill.inspect.verify import verify_build
from corpusmill.shuffle.budget import draw_documents
from corpusmill.tokens.token_shard import open_token_shard
from corpusmill.upload.stages.summarize import summarize
from tests.documents.every_kind import arrow_bytes, parquet_bytes
from tests.oracles.budget import Drawn, times_shown
from tests.raising import raises
from tests.system.corpus import configuration, make_documents
from tests.system.test_budget import whole_documents

LANGUAGES = ("de", "en", "fr", None)

STEPS = """
from corpusmill.steps import Drop


def german(document):
    return document.fields["meta.lang"] == "de"


class NotFrom:
    def __init__(self, hosts):
        self.hosts = hosts

    def batch(self, batch):
        return [Drop("host") if url and any(host in url for host in self.hosts) else None for url in batch.field("url")]


def labelled(document):
    return f"{document.fields['url']} {document.text}"
"""


def rows_of(seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {
            "id": f"{seed}-{number}",
            "text": text,
            "url": f"https://{draw.choice('abc')}.example/{number}",
            "meta": {"lang": draw.choice(LANGUAGES), "score": draw.random()},
        }
        for number, text in enumerate(make_documents(24, seed=seed))
    ]


def write_sources(root: Path) -> list[dict[str, Any]]:
    """A file of each kind; returns all documents."""
    folder = root / "corpus"
    folder.mkdir()
    tables = [pa.Table.from_pylist(rows_of(seed)) for seed in (1, 2)]
    (folder / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_of(0)))
    (folder / "1.parquet").write_bytes(parquet_bytes(random.Random(0), tables[0]))
    (folder / "2.arrow").write_bytes(arrow_bytes(random.Random(0), tables[1]))
    return [row for seed in range(3) for row in rows_of(seed)]


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    (tmp_path / "my_fields.py").write_text(STEPS)
    return write_sources(tmp_path)


def settings(root: Path, **changes: Any) -> DatasetConfig:
    source = {"paths": [str(root / "corpus")], "shard_bytes": 1}
    changes = {"dedup": {"mode": "none"}, **changes}
    return check_config(configuration(root, **{"source": source, **changes}), where="test")


def built(config: DatasetConfig) -> Build:
    build = open_build(build_dataset(config))
    assert verify_build(build).findings == ()
    return build


def delivered(root: Path) -> Iterator[dict[str, Any]]:
    """The rows of `steps/dropped.jsonl`."""
    with (root / "outputs" / "tiny" / "latest" / "steps" / "dropped.jsonl").open() as rows:
        yield from map(json.loads, rows)


def test_steps_of_both_places_decide_by_fields_of_every_kind_of_file(
    tmp_path: Path, documents: list[dict[str, Any]]
) -> None:
    steps = [
        {"use": "my_fields:german", "fields": ["meta.lang"]},
        {
            "use": "my_fields:NotFrom",
            "name": "hosts",
            "with": {"hosts": ["a.example"]},
            "fields": ["url"],
            "before": "writeback",
        },
    ]
    built(settings(tmp_path, steps=steps))
    expected = {}
    for row in documents:
        if row["meta"]["lang"] != "de":
            expected[row["id"]] = "german"
        elif "a.example" in row["url"]:
            expected[row["id"]] = "hosts: host"
    assert {row["id"]: row["reason"] for row in delivered(tmp_path)} == expected
    assert {"german", "hosts: host"} == {*expected.values()}


def test_fields_of_a_step_are_asked_for_alone_and_no_others_change_the_index(
    tmp_path: Path, documents: list[dict[str, Any]]
) -> None:
    plain = built(settings(tmp_path, steps=[{"use": "my_fields:labelled", "fields": ["url"]}]))
    assert len(documents) == plain.total("index", "documents_out")
    none = open_build(plan_dataset(settings(tmp_path)))
    assert none.plan.fields is None
    assert plain.plan.fields == ["url"]
    with plain.opened("index", "00000") as folder:
        first = json.loads(
            (folder / "fields").read_bytes()[: int.from_bytes((folder / "fields_ends").read_bytes()[:8], "little")]
        )
    assert first == {"url": documents[0]["url"]}


def test_field_that_no_line_has_is_an_error_of_check_and_plan(tmp_path: Path, documents: list[dict[str, Any]]) -> None:
    config = settings(tmp_path, steps=[{"use": "my_fields:german", "fields": ["meta.lang", "meta.language"]}])
    assert documents
    with raises("survey.no_field", "meta.language"):
        plan_dataset(config, to_build=True)
    with raises("survey.no_field", "meta.language"):
        check_dataset(config)


def test_decisions_by_fields_drop_what_the_condition_is_false_for(
    tmp_path: Path, documents: list[dict[str, Any]]
) -> None:
    write = tmp_path / "scores.jsonl"
    write.write_text("".join(json.dumps({"id": row["id"], "good": row["id"][-1] != "3"}) + "\n" for row in documents))
    decisions = [
        {"name": "language", "keep": "meta.lang in ('de', 'fr')", "undecided": "drop"},
        {"name": "host", "keep": "domain(url) != 'a.example' or meta.score > 0.5"},
        {"name": "quality", "path": str(write), "keep": "good"},
    ]
    build = built(settings(tmp_path, decisions=decisions))
    expected = {}
    for row in documents:
        meta = row["meta"]
        if row["id"][-1] == "3":
            expected[row["id"]] = "quality"
        elif meta["lang"] is None:
            expected[row["id"]] = "language: undecided"
        elif meta["lang"] == "en":
            expected[row["id"]] = "language"
        elif "a.example" in row["url"] and meta["score"] <= 0.5:
            expected[row["id"]] = "host"
    assert {row["id"]: row["reason"] for row in delivered(tmp_path)} == expected
    assert len({*expected.values()}) == 4
    assert build.plan.fields == ["meta.lang", "meta.score", "url"]
    assert build.units("decisions") == ["quality"]


def test_decisions_by_fields_alone_read_no_list(tmp_path: Path, documents: list[dict[str, Any]]) -> None:
    build = built(settings(tmp_path, decisions=[{"name": "german", "keep": "meta.lang = 'de'"}]))
    assert {row["id"] for row in delivered(tmp_path)} == {
        row["id"] for row in documents if row["meta"]["lang"] not in ("de", None)
    }
    assert build.units("decisions") == []


@pytest.mark.parametrize("changes", [{"key": "url"}, {"max_unmatched_share": 0.5}, {"anonymous": True}])
def test_what_only_lists_have_is_refused_of_decisions_by_fields(changes: dict[str, Any], tmp_path: Path) -> None:
    with raises("config.decisions_without_path", *changes):
        settings(tmp_path, decisions=[{"name": "german", "keep": "lang = 'de'", **changes}])


def test_estimate_asks_steps_and_decisions_about_the_fields_of_its_sample(
    tmp_path: Path, documents: list[dict[str, Any]]
) -> None:
    steps = [{"use": "my_fields:NotFrom", "name": "hosts", "with": {"hosts": ["a.example"]}, "fields": ["url"]}]
    config = settings(tmp_path, steps=steps, decisions=[{"name": "german", "keep": "meta.lang = 'de'"}])
    kept = sum(row["meta"]["lang"] in ("de", None) and "a.example" not in row["url"] for row in documents)
    estimate = estimate_dataset(config)
    build = built(config)
    assert estimate.scale == 1
    assert estimate.tokens == build.total("tokenize", "tokens")
    assert 0 < build.total("tokenize", "documents_out") == kept < len(documents)


def test_budget_shows_the_documents_of_each_condition_as_often_as_it_says(
    tmp_path: Path, documents: list[dict[str, Any]]
) -> None:
    budget = {
        "where meta.lang = 'de'": "2.5 epochs",
        "where (domain(url) = 'a.example') and not coalesce(meta.lang = 'de', false)": "300 tokens",
        str(tmp_path / "corpus"): "0.5 epochs",
        "where meta.score > 2": "3 epochs",
    }
    build = built(settings(tmp_path, budget=budget, exports={"megatron": {}}))
    rows = iter(documents)
    groups: dict[str, list[Drawn]] = defaultdict(list)
    for number, shard in enumerate(build.units("tokenize")):
        tokens = open_token_shard(build.folder("tokenize", shard))
        for ordinal, draw in enumerate(draw_documents(7, number, tokens.documents).tolist()):
            row, document = next(rows), tuple(tokens.document(ordinal).tolist())
            wheres = [row["meta"]["lang"] == "de", "a.example" in row["url"]]
            group = next((key for key, holds in zip(budget, wheres, strict=False) if holds), str(tmp_path / "corpus"))
            groups[group].append(Drawn(draw, len(document), (number, ordinal, document)))
    expected: Counter[Any] = Counter()
    for group, drawn in groups.items():
        for (_, _, document), times in times_shown(drawn, budget[group]).items():
            expected[document] += times
    assert len(groups) == 3
    assert Counter(whole_documents(tmp_path, "megatron")) == +Counter({key: n for key, n in expected.items() if key})
    summary = summarize(build)
    assert all(check.ok for check in summary.checks)
    assert summary.budget is not None
    shown = {source.path: source for source in summary.budget.sources}
    assert shown["where meta.lang = 'de'"].whole == 2
    assert shown["where meta.score > 2"].documents == 0
    verify_records(build, 10**9, seed=1)


def test_budget_of_a_condition_that_cannot_be_read_or_of_no_tokens_is_refused(
    tmp_path: Path, documents: list[dict[str, Any]]
) -> None:
    assert documents
    with raises("condition.not_parsed", "budget: where meta.lang"):
        plan_dataset(settings(tmp_path, budget={"where meta.lang ~ 3": "2 epochs"}))
    with raises("config.budget_of_unknown_source", "lang = 'de'"):
        settings(tmp_path, budget={"lang = 'de'": "2 epochs"})
    overlapping = {"where meta.lang = 'de'": "2 epochs", "where domain(url) = 'a.example'": "1 epoch"}
    with raises("budget.conditions_overlap", ", line 1", "coalesce(domain(url) = 'a.example', false)"):
        build_dataset(settings(tmp_path, budget=overlapping))
    with raises("budget.source_without_tokens", "where meta.lang = 'it'"):
        build_dataset(settings(tmp_path, budget={"where meta.lang = 'it'": "20B tokens"}))
