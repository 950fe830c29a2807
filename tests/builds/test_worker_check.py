"""Workers that fit together, and those that do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpusmill.builds import worker_check
from corpusmill.errors import PermanentError, StorageFullError
from tests.raising import raises


def probed(folder: Path, hosts: list[str]) -> list[Path]:
    names = worker_check.begin(folder, len(hosts))
    return [worker_check.probe(folder, name, host=host) for name, host in zip(names, hosts, strict=True)]


def test_workers_probes_are_counted_per_host_and_leave_nothing(tmp_path) -> None:
    printed = worker_check.conclude(tmp_path, probed(tmp_path, ["one"] * 4 + ["two"] * 2))
    assert "two  2 probes" in printed
    assert "6 probes on 2 hosts" in printed
    assert list(tmp_path.iterdir()) == []


def test_workers_host_without_the_others_folder_is_named(tmp_path) -> None:
    worker_check.begin(tmp_path / "work", 2)
    with raises("workers.work_folder_not_shared", "lost"):
        worker_check.probe(tmp_path / "elsewhere", "00001", host="lost")


@pytest.mark.parametrize(
    ("change", "kind"), [({"versions": "numpy 1.0"}, PermanentError), ({"free_bytes": 5}, StorageFullError)]
)
def test_workers_host_with_other_versions_or_no_room_is_named(tmp_path, change, kind) -> None:
    paths = probed(tmp_path, ["one", "odd", "one"])
    paths[1].write_text(json.dumps(json.loads(paths[1].read_text()) | change))
    with raises("workers.disk_too_small workers.versions_differ", "odd"):
        worker_check.conclude(tmp_path, paths)


def test_workers_no_probe_at_all_is_worth_another_try(tmp_path) -> None:
    worker_check.begin(tmp_path, 1)
    with raises("workers.no_probe"):
        worker_check.conclude(tmp_path, [])
