"""A run whose work folder is in a bucket: what tasks hand on are addresses, and the pages read the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.storage.mirrored import path_of
from tests.dags.conftest import Ask
from tests.dags.seeded import seed_run, set_handed_on
from tests.engine.work_folder.machines import machine
from tests.report.page import Page
from tests.system.corpus import configuration, write_corpus


@pytest.mark.slow
def test_run_of_a_dataset_in_a_bucket_delivers_and_its_report_is_read_elsewhere(
    airflow_database: None, tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill_airflow.pages.finished import report_page, shard_table

    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    folder = tmp_path / "datasets"
    folder.mkdir()
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(folder))
    write_corpus(tmp_path / "corpus", documents=20)
    values = configuration(tmp_path, exports={"nanoset": {}}, work_folder="s3://corpus/mill")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values))
    with machine(tmp_path, "worker"):
        run = run_of_tiny()
        assert run.state == "success"
        handed = {
            instance.task_id: instance.xcom_pull(task_ids=instance.task_id) for instance in run.get_task_instances()
        }
    assert {part["plan_receipt"].partition("/plan/")[0] for part in handed["plan"]} == {"s3://corpus/mill/tiny"}
    assert list((tmp_path / "outputs" / "tiny" / "latest" / "nanoset").iterdir())
    with machine(tmp_path, "api-server"):
        report = path_of(handed["report"])
        page, table = report_page(report), shard_table(report)
    assert page is not None
    assert "tiny" in page
    assert table is not None


def run_of_tiny() -> Any:
    from airflow.dag_processing.dagbag import BundleDagBag

    root = Path(__file__).resolve().parents[2] / "dags"
    bag = BundleDagBag(str(root / "build_dataset.py"), bundle_path=root)
    dag = bag.dags["dataset__tiny"]
    for task in dag.tasks:
        task.retries = 0
    return dag.test(run_conf={})


@pytest.mark.slow
def test_pages_of_a_bucket_that_cannot_be_read_say_why_and_show_the_rest(
    ask: Ask, tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    write_corpus(tmp_path / "corpus", documents=20)
    config = check_config(configuration(tmp_path, exports={"nanoset": {}}), where="test")
    work = "s3://no-such-bucket/mill/secluded"
    handed_on = {stage: f"{work}/{stage}/secluded-0123456789abcdef/{RECEIPT_NAME}" for stage in ("plan", "report")}
    run = seed_run(build_dataset(config, workers=1), "unreadable")
    set_handed_on(run, handed_on)
    for page, rest in (("datasets", "secluded"), (f"build_dataset/{run}", "tokenize")):
        answer = ask(page)
        assert answer.status_code == 200
        text = Page(answer.text).text
        assert "The work folder cannot be read" in text
        assert "no-such-bucket" in answer.text
        assert rest in text
