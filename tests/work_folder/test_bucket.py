"""Work folders in a bucket: machines that share nothing else build what one machine builds in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.running import RunnableBuild
from corpusmill.stages.graph import GRAPH
from tests.system.corpus import configuration, write_corpus
from tests.work_folder.machines import build_apart

Machine = Callable[[str], None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moto: str) -> Machine:
    """Be the machine of a name: with a cache of its own, and nothing in common with others but the bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)

    def become(name: str) -> None:
        monkeypatch.setenv("CORPUSMILL_CACHE", str(tmp_path / name))

    become("first")
    return become


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "corpus", documents=40)
    return tmp_path


def config_in(root: Path, work_folder: str, **changes: Any) -> DatasetConfig:
    out = [{"path": str(root / f"out-{len(work_folder)}")}]
    values = {**configuration(root), "work_folder": work_folder, "destinations": out, **changes}
    return check_config(values, where="test")


def in_bucket(root: Path, **changes: Any) -> DatasetConfig:
    return config_in(root, "s3://corpus/work", **changes)


def delivered(config: DatasetConfig) -> dict[str, bytes]:
    folder = Path(config.destinations[0].path, config.name, "latest")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture
def locally(corpus: Path) -> dict[str, bytes]:
    config = config_in(corpus, str(corpus / "work"))
    build_dataset(config, workers=1)
    return delivered(config)


def steps_of(build: RunnableBuild) -> list[tuple[str, str]]:
    return [(stage, unit) for stage in GRAPH.names for unit in build.units(stage)]


def test_build_with_each_step_on_a_machine_of_its_own_delivers_what_a_local_one_does(
    corpus: Path, machine: Machine, locally: dict[str, bytes]
) -> None:
    config = in_bucket(corpus)
    build_apart(config, corpus / "machines")
    assert delivered(config) == locally
