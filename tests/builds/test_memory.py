"""Memory that settings imply, beside the memory that there is: refused before anything is planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.builds.memory import require_memory, require_memory_for_suffix_arrays
from corpusmill.config import DatasetConfig, check_config
from corpusmill.errors import ConfigError, CorpusmillError
from tests.system.corpus import configuration, write_corpus


def config(root: Path, **changes: Any) -> DatasetConfig:
    return check_config(configuration(root, **changes), where="test")


def test_memory_beyond_the_pool_is_refused_before_planning_with_both_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "24")
    write_corpus(tmp_path / "corpus")
    large = config(tmp_path, dedup={"mode": "remove", "minimum_bytes": 100, "memory": "64GiB"})
    with pytest.raises(ConfigError) as caught:
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
    with pytest.raises(ConfigError, match="32 GiB a task of 4 processes") as caught:
        require_memory(eight, where="test", processes=4)
    assert "dag.task_processes" in str(caught.value)


def test_memory_of_no_pool_is_bounded_by_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORPUSMILL_MEMORY_GIB", raising=False)
    with pytest.raises(ConfigError, match="more memory than available") as caught:
        require_memory(config(tmp_path, shuffle={"seed": 1, "memory": "1PiB"}), where="test")
    assert "shuffle.memory" in str(caught.value)
    assert "the memory of this machine" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"source": {"paths": ["corpus"], "shard_bytes": "4GiB"}}, None),
        ({"source": {"paths": ["corpus"], "shard_bytes": "4GiB"}, "index": {"method": "suffix_array"}}, "shard_bytes"),
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
    with pytest.raises(ConfigError, match="more memory") as caught:
        require_memory(config(tmp_path, **changes), where="test")
    assert key in str(caught.value)


def test_memory_suffix_arrays_that_do_not_fit_are_refused_by_the_plan_with_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of holes: only its beginning is read."""
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "24")
    (tmp_path / "corpus").mkdir()
    with (tmp_path / "corpus" / "a.jsonl").open("wb") as file:
        file.truncate(6 << 30)
    sorting = config(
        tmp_path,
        dedup={"mode": "remove", "minimum_bytes": 100},
        index={"method": "suffix_array"},
        source={"paths": [str(tmp_path / "corpus")], "shard_bytes": "1GiB"},
    )
    with pytest.raises(CorpusmillError, match="do not fit in memory") as caught:
        build_dataset(sorting)
    assert "about 32 GiB" in str(caught.value)
    assert "at most 24 GiB" in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "method", "refused"),
    [("remove", "suffix_array", True), ("none", "suffix_array", False), ("remove", "anchors", False)],
)
def test_memory_for_suffix_arrays_counts_where_they_are_matched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, method: str, *, refused: bool
) -> None:
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "1")
    dedup = {"mode": mode} if mode == "none" else {"mode": mode, "minimum_bytes": 100}
    item = config(tmp_path, dedup=dedup, index={"method": method})
    require_memory_for_suffix_arrays(item, 190 << 20)
    if not refused:
        require_memory_for_suffix_arrays(item, 1 << 40)
        return
    with pytest.raises(ConfigError, match="do not fit in memory"):
        require_memory_for_suffix_arrays(item, 200 << 20)
