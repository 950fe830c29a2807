"""Workers that fit together, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import PermanentError, StorageFullError, TransientError
from pipeline.stages import worker_check


def found(folder: Path, probes: int) -> list[dict]:
    return [worker_check.probe(folder) for _ in worker_check.begin(folder, probes)]


def test_workers_j25_probes_are_counted_per_host_and_leave_nothing(tmp_path) -> None:
    two_hosts = found(tmp_path / "work", 6)
    two_hosts[4]["host"] = two_hosts[5]["host"] = "second"
    said = worker_check.conclude(tmp_path / "work", two_hosts)
    assert "second  2 probes" in said
    assert "6 probes on 2 hosts" in said
    assert list((tmp_path / "work").iterdir()) == []


def test_workers_j25_host_with_another_folder_other_versions_or_no_room_is_named(tmp_path) -> None:
    elsewhere = worker_check.probe(tmp_path / "elsewhere")
    assert elsewhere["sees_the_folder"] is False
    changes: list[tuple[dict, type[Exception], str]] = [
        (elsewhere | {"host": "lost"}, PermanentError, "lost"),
        ({"host": "old", "versions": "numpy 1.0"}, PermanentError, "numpy 1.0"),
        ({"host": "full", "free_bytes": 5}, StorageFullError, "full"),
    ]
    for change, kind, said in changes:
        probes = found(tmp_path / "work", 4)
        probes[2] |= change
        with pytest.raises(kind) as caught:
            worker_check.conclude(tmp_path / "work", probes)
        assert said in str(caught.value)
    with pytest.raises(TransientError, match="no probe"):
        worker_check.conclude(tmp_path / "work", [])
