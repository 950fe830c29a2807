"""Some hundred of the answers that benchmarks/wrong_answers.py has thousands of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.proxy import LIES
from tests.faults.wrong_answers import read_through, small_sizes, store_of, stores
from tests.gcs_front import GcsFront
from tests.servers import Server


@pytest.mark.slow
def test_wrong_answers_of_stores_deliver_nothing_wrong(
    rclone: Server, gcs: GcsFront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "")  # as it was, afterwards; the servers' fixtures do so with theirs
    with stores(rclone.endpoint, gcs.target.geturl()) as (far, documents), small_sizes():
        rounds = [read_through(far[store_of(seed)], seed, documents, tmp_path / str(seed)) for seed in (1, 2, 6, 10)]
    assert [item.seed for item in rounds if item.end == "wrong"] == []
    harmed = {kind: sum(item.harmed[kind] for item in rounds) for kind in LIES}
    assert sum(harmed.values()) > 100
    assert min(harmed.values()) > 0
    assert {item.end for item in rounds} >= {"right"}
    assert max(item.without_checksum for item in rounds) > 0
