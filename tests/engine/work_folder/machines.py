"""Machines that share nothing but a bucket: each has a mirror of its own. The bucket is s3://corpus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig
from corpusmill.engine.runs import begin_run
from corpusmill.engine.work_folder.objects import Objects, objects_of
from corpusmill.storage.mirrored import CACHE, address_of, place_of

WORK_FOLDER = "WORK_FOLDER_OF_TESTS"  # processes of a test inherit it


def work_folder() -> str:
    """The address of the work folder of a test."""
    return os.environ[WORK_FOLDER]


def objects() -> Objects:
    """Its bucket."""
    return objects_of(place_of(work_folder())[0])


def keys(prefix: str = "") -> list[str]:
    """The keys of all objects below a prefix of its bucket."""
    return [stored.key for stored in objects().list(prefix)]


@contextmanager
def machine(folder: Path, name: str) -> Iterator[Path]:
    """Be the machine of a name, whose mirror lies below `folder`; the mirror."""
    before = os.environ.get(CACHE)
    os.environ[CACHE] = str(folder / name)
    try:
        yield folder / name
    finally:
        if before is None:
            del os.environ[CACHE]
        else:
            os.environ[CACHE] = before


def build_apart(config: DatasetConfig, folder: Path, *, until: str = "") -> str:
    """Build with each step, and each list of units, on a machine of its own; the address of the plan's receipt."""
    with machine(folder, "plan"):
        plan = address_of(begin_run(plan_dataset(config, to_build=True)))
    for stage in (stage for wave in GRAPH.waves(until) for stage in wave):
        with machine(folder, f"list {stage}"):
            units = open_build(plan).units(stage)
        for unit in units:
            with machine(folder, f"{stage} {unit}"):
                open_build(plan).run(stage, unit)
    return plan
