"""The DAG forget_documents: it begins when somebody approves; then a build without the documents, and a purge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import ParamValidationError

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from tests.dags.conftest import DAGS
from tests.system.corpus import configuration
from tests.system.test_forget import rows_of, write_sources

ID = "forget_documents"
MINE = max(rows_of(2), key=lambda row: len(row["text"]))


@pytest.fixture
def dag(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The DAG over a folder with one configuration, its dataset built with an empty list."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path / "datasets"))
    (tmp_path / "datasets").mkdir()
    listed = {"path": str(tmp_path / "list.jsonl"), "copies": "also"}
    values = configuration(tmp_path, source={"paths": [str(tmp_path / "corpus")], "shard_bytes": 1}, forget=listed)
    (tmp_path / "datasets" / "tiny.yaml").write_text(yaml.safe_dump(values))
    (tmp_path / "list.jsonl").touch()
    return BundleDagBag(DAGS, bundle_path=Path(DAGS)).dags[ID]


def form(**changes: Any) -> dict[str, Any]:
    return {"configuration": "tiny", "ids": MINE["id"], "asked_by": "case 7", "purge": True, **changes}


def test_nothing_begins_before_somebody_approves(dag: Any) -> None:
    approve = dag.get_task("approve_forgetting")
    assert approve.upstream_task_ids == set()
    assert approve.downstream_task_ids == {"plan"}
    assert dag.get_task("plan").upstream_task_ids == {"approve_forgetting"}
    assert (approve.retries, approve.fail_on_reject) == (0, True)
    assert dag.get_task("purge").upstream_task_ids == {"report"}


@pytest.mark.parametrize(("name", "value"), [("configuration", "nothing"), ("ids", None), ("purge", "often")])
def test_form_refuses_what_it_cannot_use(dag: Any, name: str, value: object) -> None:
    field = dag.params.get_param(name)
    with pytest.raises(ParamValidationError):
        field.resolve(value)


def test_question_and_log_say_what_matches_as_the_command_does(
    dag: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, _context: asked.append(self.body))
    write_sources(tmp_path)
    build_dataset(load_config(tmp_path / "datasets" / "tiny.yaml"), workers=1)

    def ask(*ids: str) -> str:
        dag.get_task("approve_forgetting").execute({"params": form(ids="\n".join(ids))})
        (said,) = [line for line in capsys.readouterr().out.splitlines() if " match " in line]
        assert f"\n\n    {said}\n" in asked[-1]
        return said

    assert ask("*3*", MINE["id"]) == "2 ids: 1 of 2 match a document of the last build; not *3*"
    assert ask("3", "4") == "2 ids: 0 of 2 match a document of the last build; not 3, 4"
    assert (tmp_path / "list.jsonl").read_text() == ""


@pytest.mark.slow
def test_run_forgets_and_purges_with_the_connection_of_its_stores(
    dag: Any,
    tmp_path: Path,
    moto: str,
    moto_client: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The worker itself has no credentials."""
    write_sources(tmp_path)
    file = tmp_path / "datasets" / "tiny.yaml"
    values = yaml.safe_load(file.read_text())
    bucket = {"path": "s3://corpus/out", "endpoint_url": moto}
    values["destinations"] = [*values["destinations"], bucket]
    file.write_text(yaml.safe_dump({**values, "dag": {"connections": {"s3": "team"}}}))
    build_dataset(load_config(file), workers=1)
    middle = MINE["text"][len(MINE["text"]) // 2 :][:80]
    spelled = json.dumps(middle)[1:-1].encode()

    def holding() -> list[Path]:
        files = [path for folder in ("work", "outputs") for path in (tmp_path / folder).rglob("*") if path.is_file()]
        return [path for path in files if middle.encode() in (data := path.read_bytes()) or spelled in data]

    def versions() -> set[str]:
        listed = moto_client.list_objects_v2(Bucket="corpus", Prefix="out/tiny/")["Contents"]
        return {item["Key"].split("/")[2] for item in listed} - {"latest.json"}

    (before,) = versions()
    assert holding()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    identity = {"conn_type": "aws", "login": "testing", "password": "testing", "extra": {"region_name": "us-east-1"}}
    monkeypatch.setenv("AIRFLOW_CONN_TEAM", json.dumps(identity))
    run = dag.test(run_conf=form(), mark_success_pattern="approve_forgetting")
    assert run.state == "success"
    assert [json.loads(line)["asked_by"] for line in (tmp_path / "list.jsonl").read_text().splitlines()] == ["case 7"]
    assert holding() == []
    (after,) = versions()
    assert after != before
    assert "part2.jsonl (a source)" in capsys.readouterr().out
