"""Memory that settings imply, beside the memory that there is: refused before anything is planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.builds.room import require_memory
from corpusmill.config import DatasetConfig, check_config
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus


def config(root: Path, **changes: Any) -> DatasetConfig:
    return check_config(configuration(root, **changes), where="test")


def test_memory_beyond_the_pool_is_refused_before_planning_with_both_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "24")
    write_corpus(tmp_path / "corpus")
    large = config(tmp_path, dedup={"mode": "remove", "minimum_bytes": 100, "memory": "64GiB"})
    with raises("run.too_little_memory") as caught:
        build_dataset(large)
    printed = str(caught.value)
    assert "dedup.memory" in printed
    assert "64 GiB" in printed
    assert "at most 24 GiB: CORPUSMILL_MEMORY_GIB, the size of the memory pool" in printed
    assert not (tmp_path / "work" / large.name / "plan").exists()


def test_memory_of_a_task_is_that_of_all_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "24")
    eight = config(tmp_path, shuffle={"seed": 1, "memory": "8GiB"})
    require_memory(eight, where="test", processes=3)
    with raises("run.too_little_memory", "32 GiB a task of 4 processes", "dag.task_processes"):
        require_memory(eight, where="test", processes=4)


def test_memory_of_no_pool_is_bounded_by_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORPUSMILL_MEMORY_GIB", raising=False)
    with raises("run.too_little_memory", "shuffle.memory", "the memory of this machine"):
        require_memory(config(tmp_path, shuffle={"seed": 1, "memory": "1PiB"}), where="test")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"source": {"paths": ["corpus"], "shard_bytes": "4GiB"}}, None),
        ({"dedup": {"mode": "none", "memory": "64GiB"}}, None),
        ({"dedup": {"mode": "remove", "minimum_bytes": 100, "memory": "24GiB"}}, None),
        ({"shuffle": {"seed": 1, "memory": "25GiB"}}, "shuffle.memory"),
    ],
)
def test_memory_counts_for_stages_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], key: str | None
) -> None:
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "24")
    if key is None:
        require_memory(config(tmp_path, **changes), where="test")
        return
    with raises("run.too_little_memory", key):
        require_memory(config(tmp_path, **changes), where="test")
