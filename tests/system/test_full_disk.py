"""A disk that fills in the middle of any stage: the step is named, and with room the build ends with the same bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.runs import begin_run
from corpusmill.errors import StorageFullError
from tests.disks import small_disk
from tests.system.corpus import configuration, lines_of, make_documents

SWITCHED_OFF = ("refine", "lost", "quarantine")  # which write as filter, index and writeback do
QUESTION = "How many stones did the miller carry over the old bridge before the water rose above the mill wheel?"


def planned(sources: Path, disk: Path, destination: Path) -> RunnableBuild:
    """As many stages as go together, with a work folder on one disk and a destination on another."""
    values = configuration(
        disk,
        source={"paths": [str(sources / "corpus")], "shard_bytes": 1},
        dedup={
            "mode": "remove",
            "minimum_bytes": 100,
            "against": [{"path": str(sources / "old"), "shard_bytes": 1}],
        },
        decontamination={
            "benchmarks": [{"name": "bridges", "path": str(sources / "benchmark.jsonl")}],
            "action": "remove",
        },
        forget={"path": str(sources / "forget.jsonl"), "key": "id", "copies": "also"},
        near_duplicates={"action": "remove", "most_removed": 1},
        budget={str(sources / "corpus"): "2 epochs"},
        destinations=[{"path": str(destination / "outputs")}],
    )
    return open_build(begin_run(plan_dataset(check_config(values, where="test"))))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for number, name in enumerate(("corpus/0", "corpus/1", "old/0")):
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(lines_of(make_documents(40, seed=number % 2), 40 * number))
    (tmp_path / "benchmark.jsonl").write_bytes(lines_of([QUESTION]).replace(b'"text"', b'"question"'))
    (tmp_path / "forget.jsonl").write_text('{"id": "doc-3"}\n')
    return tmp_path


def outputs(destination: Path) -> dict[str, bytes]:
    folder = (destination / "outputs" / "tiny" / "latest").resolve()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def free_bytes(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


@contextmanager
def filled(disk: Path, *, left_bytes: int) -> Iterator[None]:
    """The disk with so much room."""
    with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while (too_much := free_bytes(disk) - left_bytes) > 0:
            ballast.write(bytes(min(too_much, 1 << 20)))
    try:
        yield
    finally:
        (disk / "ballast").unlink()


@contextmanager
def two_disks(root: Path) -> Iterator[tuple[Path, Path]]:
    with small_disk(root / "disk", mebibytes=64) as disk, small_disk(root / "destination", mebibytes=64) as destination:
        yield disk, destination


@pytest.mark.slow
def test_disk_that_fills_in_the_middle_of_any_stage_costs_a_try_of_the_step(sources: Path, tmp_path: Path) -> None:
    taken: dict[tuple[str, str], int] = {}
    with two_disks(tmp_path) as (disk, destination):
        build = planned(sources, disk, destination)
        for stage in GRAPH.names:
            where = destination if stage == "upload" else disk
            for unit in build.units(stage):
                before = free_bytes(where)
                build.run(stage, unit)
                taken[stage, unit] = before - free_bytes(where)
        undisturbed = outputs(destination)
        assert {stage for stage in GRAPH.names if not build.units(stage)} == set(SWITCHED_OFF)
    (tmp_path / "disk").rmdir()
    (tmp_path / "destination").rmdir()
    with two_disks(tmp_path) as (disk, destination):
        build = planned(sources, disk, destination)
        for stage in GRAPH.names:
            where = destination if stage == "upload" else disk
            unit = max(build.units(stage), key=lambda unit: taken[stage, unit], default="")
            for left_bytes in (taken[stage, unit] // 2, 0) if unit else ():
                with filled(where, left_bytes=left_bytes), pytest.raises(StorageFullError) as caught:
                    build.run(stage, unit)
                print(stage, unit, taken[stage, unit], left_bytes, str(caught.value)[:150].replace("\n", " | "))
                assert f"{stage} {unit}" in str(caught.value)
            for unit in build.units(stage):
                build.run(stage, unit)
        assert outputs(destination) == undisturbed
