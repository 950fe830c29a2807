"""One scheduled run of a dataset at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import DatasetConfig, load_config
from pipeline.ledger import RUN_LOCK, LockHeldError, held
from pipeline.stages.claim import CLAIM, RunUnderWayError, ScheduledRun, claim_dataset

DEMO = Path(__file__).resolve().parents[2] / "dags" / "datasets" / "demo.yaml"
ME, OTHER = ScheduledRun("dataset__demo", "one"), ScheduledRun("build_dataset", "two")


@pytest.fixture
def config(tmp_path: Path) -> DatasetConfig:
    return load_config(DEMO).model_copy(update={"work_folder": str(tmp_path)})


def test_claim_of_a_run_under_way_is_refused_with_its_name(config: DatasetConfig) -> None:
    claim_dataset(config, OTHER, lambda _: True)
    with pytest.raises(RunUnderWayError, match="run two of build_dataset"):
        claim_dataset(config, ME, lambda run: run == OTHER)


def test_claim_of_a_run_that_ended_is_void(config: DatasetConfig) -> None:
    claim_dataset(config, OTHER, lambda _: True)
    claim_dataset(config, ME, lambda _: False)
    with pytest.raises(RunUnderWayError):
        claim_dataset(config, OTHER, lambda run: run == ME)


def test_run_may_claim_what_it_has(config: DatasetConfig) -> None:
    for _ in range(2):
        claim_dataset(config, ME, lambda _: True)


def test_claim_that_a_power_cut_tore_holds_nobody_up(config: DatasetConfig, tmp_path: Path) -> None:
    claim_dataset(config, OTHER, lambda _: True)
    (tmp_path / "demo" / CLAIM).write_text('{"job": "buil')
    claim_dataset(config, ME, lambda _: True)


def test_dataset_that_a_process_builds_cannot_be_claimed(config: DatasetConfig, tmp_path: Path) -> None:
    claim_dataset(config, ME, lambda _: True)
    with held(tmp_path / "demo" / RUN_LOCK, wait=False), pytest.raises(LockHeldError):
        claim_dataset(config, ME, lambda _: True)
