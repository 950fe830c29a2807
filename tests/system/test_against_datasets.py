"""What `dedup.against` names as a finished dataset: of another minimum length, another version, on a hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.engine.preview import preview
from tests.hub import COMMIT, Hub
from tests.hub_writing import WritableHub
from tests.system.corpus import reused
from tests.system.test_against import build, documents, settings, small, write


def delivered(root: Path, name: str) -> Path:
    return (root / "outputs" / name / "latest").resolve()


def same_as_source(root: Path, dataset: str, source: Path) -> None:
    """A dataset against `dataset`, and against the documents that it delivers as a source, delivers the same."""
    write(root / "tiny", "b1", "b2")
    against = build(settings(root, dataset))
    assert against.total("union", "reference_bytes") > 0
    against_dataset = documents(root)
    build(settings(root, str(source)))
    assert documents(root) == against_dataset


@pytest.mark.parametrize(
    "other",
    [
        {"dedup": {"minimum_bytes": 700}},
        {"dedup": {"mode": "annotate", "minimum_bytes": 200}},
    ],
    ids=["longer", "annotated"],
)
def test_reference_dataset_of_other_settings_counts_by_its_text_alone(other: Any, tmp_path: Path) -> None:
    write(tmp_path / "earlier", "a1", "a2")
    build(settings(tmp_path, name="earlier", **other))
    folder = delivered(tmp_path, "earlier")
    same_as_source(tmp_path, str(folder.parent), folder / "documents")


def test_reference_dataset_of_another_version_is_what_it_was_then(tmp_path: Path) -> None:
    write(tmp_path / "tiny", "b1", "b2")
    write(tmp_path / "earlier", "a1")
    build(settings(tmp_path, name="earlier"))
    old = delivered(tmp_path, "earlier")
    of_old = build(settings(tmp_path, str(old)))
    before = documents(tmp_path)
    write(tmp_path / "earlier", "a2")
    build(settings(tmp_path, name="earlier"))
    new = delivered(tmp_path, "earlier")
    assert new != old
    again = build(settings(tmp_path, str(old)))
    assert documents(tmp_path) == before
    assert reused(again, "reference", again.units("reference")[0])
    of_latest = build(settings(tmp_path, str(old.parent / "latest")))
    assert documents(tmp_path) != before
    versions = [item.plan.references[0].version for item in (of_old, of_latest) if item.plan.references]
    assert versions == [old.name, new.name]


def test_reference_dataset_on_a_hub_is_found_by_name_and_by_version(tmp_path: Path, writable_hub: WritableHub) -> None:
    write(tmp_path / "earlier", "a1", "a2")
    there, folder = "hf://datasets/owner/name", tmp_path / "outputs"
    build(settings(tmp_path, name="earlier", destinations=[{"path": str(folder)}, {"path": there}]))
    here = delivered(tmp_path, "earlier")
    assert writable_hub.tree(here.name)
    same_as_source(tmp_path, there, here / "documents")
    for named in (there, f"{there}@{here.name}"):
        planned = open_build(plan_dataset(settings(tmp_path, named))).plan.references
        assert planned
        assert [item.version for item in planned] == [here.name]


def test_reference_on_a_hub_that_gets_another_commit_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "tiny", "b1", "b2")
    rows = {name: (write(tmp_path / "old", name) / f"{name}.jsonl").read_bytes() for name in ("a1", "a2")}
    with Hub({"a.jsonl": rows["a1"]}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        config = settings(tmp_path, "hf://datasets/owner/name@main/*.jsonl")
        planned = build(config).plan.references
        assert planned
        assert all(file.location.startswith(f"hf://datasets/owner/name@{COMMIT}/") for file in planned[0].files())
        hub.files["a.jsonl"] = rows["a2"]
        fates = {item.fate for item in preview(open_build(plan_dataset(config))) if item.stage == "reference"}
        assert fates == {"run"}
        build(config)
    changed = documents(tmp_path)
    build(settings(tmp_path, small(tmp_path / "old" / "a2.jsonl")))
    assert documents(tmp_path) == changed
    assert json.loads(rows["a1"].splitlines()[0])["id"] == "a1-0"
