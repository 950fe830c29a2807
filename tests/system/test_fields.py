"""Builds whose steps, decisions and budget ask for fields of the documents, read with the texts, once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import check_dataset, plan_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.verify import verify_build
from tests.documents.every_kind import arrow_bytes, parquet_bytes
from tests.raising import raises
from tests.system.corpus import configuration, make_documents

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
