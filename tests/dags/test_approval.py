"""Whether a run asks before it removes: as its form says, or else as the configuration of the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from corpusmill.config.schedule import ScheduleConfig
from corpusmill_airflow.connections import keep_section, section_of
from corpusmill_airflow.folder import section_of_dataset
from tests.dags.conftest import dags_below
from tests.dags.live import tiny
from tests.system.corpus import write_corpus


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The approvals that were requested; each is granted at once."""
    from airflow.providers.standard.operators.hitl import ApprovalOperator

    asked: list[str] = []
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, _context: asked.append(self.task_id))
    return asked


@pytest.mark.parametrize(
    ("in_form", "in_file", "asks"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"approve_removal": None}, True, True),
        ({"approve_removal": None}, False, False),
        ({"approve_removal": True}, False, True),
        ({"approve_removal": False}, True, False),
    ],
)
def test_approval_of_a_run_asks_as_its_form_or_else_the_file_says(
    asked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_form: dict[str, Any],
    in_file: bool,
    asks: bool,
) -> None:
    from corpusmill_airflow import steps, worker

    monkeypatch.setattr(worker, "ask", lambda question, **_: f"{question}: 3 documents")
    keep_section(tmp_path / "receipt.json", ScheduleConfig(approve_removal=in_file))
    approve = steps.Approve(task_id="approve_removal", plan_receipt=str(tmp_path / "receipt.json"))
    approve.execute({"params": in_form})
    assert asked == ["approve_removal"] * asks


def test_section_of_a_plan_of_the_command_line_is_the_default(tmp_path: Path) -> None:
    assert section_of(tmp_path / "receipt.json") == ScheduleConfig()


def test_section_of_a_dataset_is_that_of_its_file_or_else_of_its_last_plan(tmp_path: Path) -> None:
    kept, own = ScheduleConfig(connections={"s3": "kept"}), {"connections": {"s3": "own"}}
    receipt = tmp_path / "receipt.json"
    keep_section(receipt, kept)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(tiny("x", dag=own)))
    (tmp_path / "broken.yaml").write_text("name: [")
    (tmp_path / "misnamed.yaml").write_text(yaml.safe_dump(tiny("x", dag=own)))
    assert section_of_dataset(tmp_path, "x", receipt) == ScheduleConfig(**own)
    for name in ("broken", "misnamed", "unknown"):
        assert section_of_dataset(tmp_path, name, receipt) == kept


def test_form_of_build_dataset_leaves_the_approval_to_the_file(dagbag: Any) -> None:
    assert dagbag.dags["build_dataset"].params["approve_removal"] is None
    assert dagbag.dags["dataset__demo"].params["approve_removal"] is False


@pytest.mark.slow
def test_approval_is_asked_for_by_every_dag_if_the_file_says_so(
    airflow_database: None, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run of build_dataset keeps for its approval is in test_running.py."""
    folder = tmp_path / "datasets"
    folder.mkdir()
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(folder))
    write_corpus(tmp_path / "source", documents=40)
    listed = {"path": "takedowns.jsonl", "copies": "also"}
    (tmp_path / "takedowns.jsonl").touch()
    (folder / "x.yaml").write_text(yaml.safe_dump(tiny("x", forget=listed, dag={"approve_removal": True})))
    build_dataset(load_config(folder / "x.yaml"), workers=1)
    run_dag = dags_below(tmp_path, monkeypatch)
    for dag_id, form, approvals in (
        ("reprocess_shard", {"dataset": "x"}, ["approve_removal"]),
        ("forget_documents", {"configuration": "x", "ids": "doc-0"}, ["approve_forgetting", "approve_removal"]),
    ):
        asked.clear()
        assert run_dag(dag_id, **form).state == "success"
        assert asked == approvals, dag_id
