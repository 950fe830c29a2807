"""The report tab: who may see it, and which file it shows."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipeline.ledger import OutputFile, Receipt

PLUGIN = Path(__file__).resolve().parents[2] / "plugins" / "dataset_report.py"


@pytest.fixture(scope="module")
def plugin() -> ModuleType:
    """The plugin's module, loaded from its file as Airflow does."""
    spec = importlib.util.spec_from_file_location("dataset_report", PLUGIN)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def client(airflow_database: None) -> Any:
    """Airflow's API server in this process, with the plugin in it."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    with TestClient(create_app(apps="core"), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
def token(client: Any) -> str:
    """A logged-in user's token."""
    answer = client.post("/auth/token", json={"username": "admin", "password": "admin"})
    return str(answer.json()["access_token"])


def write_step(folder: Path, *, stage: str = "report", page: str = "report.html") -> Path:
    """A finished step with one output; returns its receipt's path."""
    folder.mkdir(parents=True)
    (folder / page).write_text("<h1>what happened</h1>")
    receipt = Receipt(
        stage=stage,
        stage_version=1,
        unit="report",
        fingerprint="0" * 64,
        settings={},
        inputs=(),
        counts={},
        details={},
        outputs=(OutputFile(name=page, size_bytes=22, digest="sha256:" + "0" * 64),),
        versions={},
        seconds=0.0,
        peak_rss_bytes=0,
    )
    path = folder / "receipt.json"
    path.write_text(json.dumps(receipt.model_dump(mode="json")))
    return path


def test_report_beside_its_receipt_is_shown(plugin: ModuleType, tmp_path: Path) -> None:
    receipt = write_step(tmp_path / "report" / "report-0011223344556677")
    assert plugin.report_beside(receipt) == "<h1>what happened</h1>"


@pytest.mark.parametrize(
    ("folder", "facts"),
    [
        ("elsewhere/report-0011223344556677", {}),
        ("report/report-0011223344556677", {"stage": "index"}),
        ("report/report-0011223344556677", {"page": "other.html"}),
    ],
)
def test_page_that_no_report_step_wrote_is_not_shown(
    plugin: ModuleType, tmp_path: Path, folder: str, facts: dict[str, str]
) -> None:
    receipt = write_step(tmp_path / folder, **facts)
    (receipt.parent / "report.html").write_text("a secret")
    assert plugin.report_beside(receipt) is None


def test_file_that_is_not_a_receipt_is_not_followed(plugin: ModuleType, tmp_path: Path) -> None:
    folder = write_step(tmp_path / "report" / "report-0011223344556677").parent
    assert plugin.report_beside(folder / "report.html") is None
    (folder / "receipt.json").write_text("{}")
    assert plugin.report_beside(folder / "receipt.json") is None


def test_report_that_was_removed_is_said_to_be_gone(plugin: ModuleType, tmp_path: Path) -> None:
    receipt = write_step(tmp_path / "report" / "report-0011223344556677")
    (receipt.parent / "report.html").unlink()
    assert plugin.report_beside(receipt) is None


def test_request_without_a_login_is_refused(client: Any) -> None:
    assert client.get("/dataset-report/build_dataset/some_run").status_code == 401


@pytest.mark.parametrize("path", ["", "docs", "openapi.json", "redoc"])
def test_no_page_of_the_app_is_open_to_everybody(client: Any, path: str) -> None:
    assert client.get(f"/dataset-report/{path}").status_code in {401, 404}


def test_run_without_a_report_gets_a_friendly_page(client: Any, token: str) -> None:
    answer = client.get("/dataset-report/build_dataset/some_run", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    assert "when the build has finished" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_run_id_that_looks_like_a_path_finds_nothing(client: Any, token: str) -> None:
    for run_id in ("..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "../../etc/passwd"):
        answer = client.get(f"/dataset-report/build_dataset/{run_id}", headers={"Authorization": f"Bearer {token}"})
        assert "root:" not in answer.text


def test_loading_the_plugin_imports_no_web_framework() -> None:
    # Every task process loads plugins: FastAPI and Airflow's API would cost each of them a second.
    code = (
        "import sys, airflow.sdk, airflow.plugins_manager; assert 'fastapi' not in sys.modules\n"
        f"import runpy; runpy.run_path({str(PLUGIN)!r})\n"
        "print([name for name in ('fastapi', 'airflow.api_fastapi') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip().splitlines()[-1] == "[]"
