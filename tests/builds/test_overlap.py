"""A build never reads what it, or an earlier one of the same dataset, wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.overlap import require_no_overlap
from corpusmill.builds.plan import list_dataset
from corpusmill.config import DatasetConfig, check_config
from tests.raising import raises
from tests.system.corpus import configuration


@pytest.fixture
def root(tmp_path: Path, monkeypatch) -> Path:
    """src/web-1/a.jsonl, and a link `alias` to src."""
    (tmp_path / "src/web-1").mkdir(parents=True)
    (tmp_path / "src/web-1/a.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "alias").symlink_to("src")
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    return tmp_path


def config(root: Path, source: str, **changes: Any) -> DatasetConfig:
    return check_config(configuration(root, source={"paths": [source]}, **changes), where="test")


WITHIN = [
    ("src/web-*/**/*.jsonl", "src/web-out"),
    ("src/web-*/**/*.jsonl", "src/web-1/deep/out"),
    ("src/**/*.jsonl", "src/web-1"),
    ("src", "src/web-1/../out"),
    ("src", "other/../src/out"),
    ("src", "alias/out"),
    ("alias", "src/out"),
    ("src/web-1/../../src/*/*.jsonl", "alias"),
    ("src/*/*/*/*/*.jsonl", "src"),
    ("src/web-1/a.jsonl", "src/web-1/a.jsonl/out"),
]


@pytest.mark.parametrize(("source", "written"), WITHIN)
@pytest.mark.parametrize("key", ["destinations", "work_folder"])
def test_place_that_a_source_would_read_is_refused(root: Path, source: str, written: str, key: str) -> None:
    """The second build took the first one's output for text, exit 0."""
    changes = {key: written if key == "work_folder" else [{"path": written}]}
    with raises("source.contains_output", key, source):
        list_dataset(config(root, source, **changes))


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("src/web-1", "src/web-2"),
        ("src/*.jsonl", "src/out"),
        ("src/web-*/*.jsonl", "src/web-1/out/deep"),
        ("src/web-*/**/*.jsonl", "src/out"),
        ("src", "src2"),
        ("src/web-1/../web-1", "src/out"),
        ("src/web-1/a.jsonl", "src/web-1/out"),
    ],
)
def test_place_that_no_source_reads_is_accepted(root: Path, source: str, written: str) -> None:
    require_no_overlap([str(root / source)], [("destinations", str(root / written))])


@pytest.mark.parametrize("source", ["outputs/tiny", "outputs/tiny/latest", "outputs/tiny/x/*.jsonl", "work/tiny/a"])
def test_source_below_what_is_written_is_refused(root: Path, source: str) -> None:
    with raises("source.contains_output source.inside_output"):
        list_dataset(config(root, source))


def test_source_that_is_another_datasets_output_is_accepted(root: Path) -> None:
    (root / "outputs/other/latest/documents").mkdir(parents=True)
    (root / "outputs/other/latest/documents/a.jsonl").write_text('{"text": "a"}\n')
    assert len(list_dataset(config(root, "outputs/other/latest/documents")).files) == 1


@pytest.mark.parametrize(
    ("source", "written", "refused"),
    [
        ("s3://b/page*/**/*.jsonl", "s3://b/pages-out", True),
        ("s3://b/page*/*.jsonl", "s3://b/page-1/out", False),
        ("s3://b/pages/", "s3://b/pages/out/", True),
        ("s3://b/pages/x", "s3://b/pages", True),
        ("s3://b/pages", "s3://b/pages-out", False),
        ("s3://b/**/*.jsonl", "s3://c/out", False),
        ("s3://b/**/*.jsonl", "gs://b/out", False),
        ("s3://b", "s3://b/out", True),
    ],
)
def test_places_in_buckets_are_compared_part_by_part(source: str, written: str, refused: bool) -> None:
    if refused:
        with raises("source.contains_output source.inside_output"):
            require_no_overlap([source], [("destinations", written)])
    else:
        require_no_overlap([source], [("destinations", written)])


@pytest.mark.parametrize("source", ["src", "src/**/*.jsonl"])
@pytest.mark.parametrize("target", ["outputs", "outputs/tiny"])
def test_link_to_a_destination_is_refused_before_anything_is_written_there(
    root: Path, source: str, target: str
) -> None:
    """The first build passed, and the second was refused."""
    (root / target).mkdir(parents=True, exist_ok=True)
    (root / "src/link").symlink_to(root / target)
    with raises("source.links_to_output", "destinations"):
        list_dataset(config(root, source))


@pytest.mark.parametrize("source", ["src", "src/**/*.jsonl", "src/*/*/*/*/documents/*"])
def test_link_to_a_destination_in_a_linked_folder_is_refused_before_anything_is_written_there(
    root: Path, source: str
) -> None:
    """Also where links lead in circles, and not where no source can match below the destination."""
    (root / "outputs").mkdir()
    (root / "aside").mkdir()
    (root / "aside/back").symlink_to(root / "src")
    (root / "aside/self").symlink_to(root / "aside")
    (root / "src/first").symlink_to(root / "aside")
    require_no_overlap([str(root / source)], [("destinations", str(root / "outputs/tiny"))])
    (root / "aside/then").symlink_to(root / "outputs")
    with raises("source.links_to_output", "destinations", "src/first/then"):
        list_dataset(config(root, source))
    require_no_overlap([str(root / "src/*.jsonl")], [("destinations", str(root / "outputs/tiny"))])


def test_output_that_a_link_among_the_sources_leads_to_is_refused(root: Path) -> None:
    (root / "src/link").symlink_to(root / "outputs/tiny/v")
    (root / "outputs/tiny/v/documents").mkdir(parents=True)
    (root / "outputs/tiny/v/documents/b.jsonl").write_text('{"text": "b"}\n')
    for source in ("src", "src/**/*.jsonl"):
        with raises("source.file_in_output", os.fspath(root / "src/link/documents/b.jsonl")):
            list_dataset(config(root, source))
