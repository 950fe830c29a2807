"""An Airflow of their own for these tests: settings before the first import, a home that is removed afterwards."""

from __future__ import annotations

import atexit
import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.raising import raises

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG

ROOT = Path(__file__).resolve().parents[2]
DAGS = str(ROOT / "dags")
HOME = Path(tempfile.mkdtemp(prefix="corpusmill-airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

Ask = Callable[..., Any]
PASSWORDS = {"admin": "admin", "looker": "looker"}
(HOME / "passwords.json").write_text(json.dumps(PASSWORDS))
os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",  # what is parsed again is stored again
        "AIRFLOW__API_AUTH__JWT_SECRET": "for tests " * 8,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,looker:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(HOME / "passwords.json"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    }
)


def make_database() -> None:
    """A migrated database in this home."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture(scope="session")
def airflow_database() -> None:
    """That database."""
    make_database()


@pytest.fixture(scope="module", autouse=True)
def rows_of_this_file() -> Iterator[None]:
    """What a file's tests wrote into that database goes with them: which files share it, the test runner decides."""
    yield
    if (HOME / "airflow.db").exists():
        forget_dags()


def forget_dags() -> None:
    """Remove every DAG and run from that database."""
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        for model in (TaskInstance, DagRun, DagModel):
            session.execute(delete(model))


@pytest.fixture(scope="session")
def dagbag(airflow_database: None) -> DagBag:
    """Everything in dags/, parsed once."""
    from airflow.dag_processing.dagbag import BundleDagBag

    return BundleDagBag(DAGS, bundle_path=Path(DAGS))  # as Airflow does: DAG files may import their neighbours


@pytest.fixture(scope="session")
def dag(dagbag: DagBag) -> DAG:
    """The DAG build_dataset; tests only read it."""
    return dagbag.dags["build_dataset"]


@pytest.fixture
def run_dag(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that runs a DAG to its end in this process, retrying at once; it returns the dag run."""
    return dags_below(tmp_path, monkeypatch)


def dags_below(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """That function, for datasets below the folder `root`."""
    from airflow.dag_processing.dagbag import BundleDagBag

    monkeypatch.setenv("CORPUSMILL_ROOT", str(root))
    fresh = BundleDagBag(DAGS, bundle_path=Path(DAGS)).dags
    for task in (task for dag in fresh.values() for task in dag.tasks):
        task.retry_delay = timedelta(0)
        task.retry_exponential_backoff = 0

    def run(dag_id: str = "build_dataset", **form: Any) -> Any:
        dag = fresh[dag_id]
        of_form = [dag, *dag.tasks]  # Airflow writes a run's values into the params of all these
        params = [copy.deepcopy(holder.params) for holder in of_form]
        try:
            return dag.test(run_conf=form)
        finally:
            for holder, before in zip(of_form, params, strict=True):
                holder.params = before

    return run


def refusal_of(dag: DAG, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *words: str, task: str = "plan") -> str:
    """Call the body of a DAG's first task with a form that it refuses, in these words; what it says, and hands on for
    the page of the run.
    """
    body: Any = dag.get_task(task).python_callable  # type: ignore[union-attr]
    handed_on: dict[str, str] = {}
    params = dag.params.dump() | form
    context = {"ti": SimpleNamespace(xcom_push=handed_on.__setitem__), "params": params}
    monkeypatch.setitem(body.__globals__, "get_current_context", lambda: context)
    with raises(*words) as caught:
        body(params=params)
    assert handed_on == ({"why": str(caught.value)} if task == "plan" else {})
    return str(caught.value)


@pytest.fixture(scope="module")
def client(airflow_database: None) -> Any:
    """Airflow's API server in this process, with the plugin in it."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    from tests.dags.seeded import seed_dags

    seed_dags("build_dataset", "reprocess_shard")
    with TestClient(create_app(apps="core"), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
def ask(client: Any) -> Ask:
    """A function that gets a page as a user of Airflow (None: nobody), as a browser would."""
    tokens = {}
    for user, password in PASSWORDS.items():
        answer = client.post("/auth/token", json={"username": user, "password": password})
        tokens[user] = str(answer.json()["access_token"])

    def get(path: str, user: str | None = "admin", accept: str = "text/html") -> Any:
        headers = {"Accept": accept} | ({"Authorization": f"Bearer {tokens[user]}"} if user else {})
        return client.get(f"/dataset-report/{path}", headers=headers)

    return get
