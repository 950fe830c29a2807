"""A release by tag, and what a repository's host reads: workflows, forms, hooks."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from corpusmill.version import __version__

ROOT = Path(__file__).resolve().parents[2]
VERSION_FILE = '__version__ = "0.2.0"\n'
CHANGELOG = "# Changelog\n\n## 0.2.0, 2030-01-31\n\n**Added**\n\n* one\n\n## 0.1.0, 2029-01-01\n\n* two\n"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_notes", ROOT / "deploy" / "release_notes.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notes_of_a_tag_are_its_section_alone(release: ModuleType) -> None:
    assert release.notes("v0.2.0", VERSION_FILE, CHANGELOG) == "**Added**\n\n* one\n"


@pytest.mark.parametrize("tag", ["0.2.0", "v0.1.0", "v0.2", "v0.2.0-rc1"])
def test_tag_of_another_version_is_refused(release: ModuleType, tag: str) -> None:
    with pytest.raises(ValueError, match="version"):
        release.notes(tag, VERSION_FILE, CHANGELOG)


def test_version_without_a_date_is_not_released(release: ModuleType) -> None:
    with pytest.raises(ValueError, match="YYYY-MM-DD"):
        release.notes("v0.2.0", VERSION_FILE, CHANGELOG.replace(", 2030-01-31", ", not released yet"))


def test_version_without_a_kept_dataset_is_not_released(release: ModuleType, tmp_path) -> None:
    (tmp_path / "0.1.0.tar.xz").touch()
    release.require_kept("v0.1.0", tmp_path)
    with pytest.raises(ValueError, match=r"0\.2\.0\.tar\.xz"):
        release.require_kept("v0.2.0", tmp_path)


def test_version_of_the_program_is_read_from_its_file(release: ModuleType) -> None:
    stated = release.VERSION.search((ROOT / "pipeline" / "corpusmill" / "version.py").read_text())
    assert stated[1] == __version__


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_workflow_runs_what_every_submission_must_pass(name: str) -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())["jobs"]
    assert ".ci/run" in [step.get("run") for step in jobs["everything"]["steps"]]
    assert all(set(needs(job)) <= jobs.keys() for job in jobs.values())


def test_release_needs_every_test_before_it_publishes() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    for name in jobs.keys() - {"everything"}:
        waits = {name}
        while more := {other for job in waits for other in needs(jobs[job])} - waits:
            waits |= more
        assert "everything" in waits, name
    commands = [step.get("run") for step in jobs["everything"]["steps"]]
    assert commands[-2:] == [".ci/run", "make test-thorough"]  # between them every row of every table


def needs(job: dict[str, Any]) -> list[str]:
    """The jobs that a job waits for."""
    named = job.get("needs", [])
    return [named] if isinstance(named, str) else named


def test_index_is_trusted_by_the_workflow_and_no_token_is_stored() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["index"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text
    for name in ("packages", "image"):
        assert any("attest-build-provenance" in step.get("uses", "") for step in jobs[name]["steps"]), name


def test_workflows_name_no_host() -> None:
    texts = [path.read_text() for path in sorted((ROOT / ".github").rglob("*.yml"))]
    hosts = {host for text in texts for host in re.findall(r"\b(?:[a-z0-9-]+\.)+(?:com|io|net|org|dev|local)\b", text)}
    assert not hosts


def test_citation_names_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_page_of_the_large_build_shows_what_the_model_expects() -> None:
    from benchmarks.at_scale import table

    assert table() in (ROOT / "benchmarks" / "at_scale.md").read_text(), "python -m benchmarks.at_scale --expected"


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.stem
)
def test_issue_form_has_what_a_host_needs(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= form.keys()
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in fields}) == len(fields)
    assert all(part["attributes"]["label"] for part in fields)


def test_commit_hook_runs_make_check() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert (repository["repo"], [hook["entry"] for hook in repository["hooks"]]) == ("local", ["make check"])
