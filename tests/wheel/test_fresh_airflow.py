"""The wheel in an Airflow of each supported version, in environments without the repository."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from tests.dags.live import LONGEST_SECONDS, free_port, tiny
from tests.system.corpus import write_corpus
from tests.wheel.fresh import AIRFLOWS, ROOT, TRIED, Fresh, installed, make_environment

pytestmark = pytest.mark.slow

DAG = "dataset__tiny"
# With one Airflow to try, as in CI, what tests/ui and tests/dags do in the same version is left out.
EVERY_AIRFLOW = pytest.mark.skipif(len(TRIED) == 1, reason="for all versions: do not set CORPUSMILL_TEST_AIRFLOWS")
PARSED = """
import json, sys
import airflow, corpusmill, corpusmill_airflow
sys.path.append("dags")  # as Airflow does for a bundle
try:
    from airflow.dag_processing.dagbag import DagBag
    bag = DagBag("dags")
except ImportError:
    from airflow.models.dagbag import DagBag
    bag = DagBag("dags", include_examples=False)
heavy = sorted({"numpy", "numba", "pyarrow", "boto3"} & set(sys.modules))
print(json.dumps({
    "airflow": airflow.__version__, "places": [corpusmill.__file__, corpusmill_airflow.__file__], "heavy": heavy,
    "dags": sorted(bag.dags), "errors": [str(error) for error in bag.import_errors.values()],
}))
"""
# A user's own package with the name of a folder of this repository.
OWN = '''"""A DAG of the user's own."""
from importlib import import_module
from airflow.sdk import dag, task

own_package = import_module("pipeline")


@dag(schedule=None)
def own():
    @task
    def greet():
        import corpusmill.config
        assert own_package.greeting == "mine"

    greet()


own()
'''


@pytest.fixture(scope="module", params=TRIED)
def fresh(request: pytest.FixtureRequest, folder: Path, wheel: Path, program: Path) -> Iterator[Fresh]:
    """A running Airflow of one version with the thin install, which changes no package that is there."""
    version: str = request.param
    place = folder / version
    make_environment(place / "airflow-env", f"apache-airflow=={version}", newest=AIRFLOWS[version])
    before = installed(place / "airflow-env")
    make_environment(place / "airflow-env", "--no-deps", wheel, "msgspec", "xxhash")
    assert before.items() <= installed(place / "airflow-env").items()
    own = place / "dags" / "pipeline"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("greeting = 'mine'\n")
    (own.parent / "own.py").write_text(OWN)
    fresh = Fresh(place, free_port(), {"CORPUSMILL_PYTHON": str(program)})
    try:
        fresh.start()
        yield fresh
    finally:
        fresh.stop()


def test_wheel_holds_every_file_of_both_packages_but_decisions(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    for package in ("corpusmill", "corpusmill_airflow"):
        source = ROOT / "pipeline" / package
        files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
        kept = {f"{package}/{file}" for file in files if not {"__pycache__", "decisions"} & set(file.parts)}
        assert {name for name in packed if name.startswith(f"{package}/")} == kept


def test_dags_parse_with_nothing_of_the_repository_on_the_path(fresh: Fresh) -> None:
    parsed = json.loads(fresh.python(PARSED))
    assert parsed["airflow"] == fresh.folder.name
    assert all(place.startswith(str(fresh.folder / "airflow-env")) for place in parsed["places"])
    assert parsed["dags"] == [
        "build_dataset",
        "check_workers",
        "compare_versions",
        DAG,
        "forget_documents",
        "own",
        "reprocess_shard",
    ]
    assert parsed["heavy"] == []
    (error,) = parsed["errors"]
    assert "spoilt.yaml" in error
    assert "source" in error


def test_dataset_is_built_has_the_bytes_of_a_build_without_airflow_and_its_pages_answer(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.trigger(DAG, "first")
    assert fresh.finish(DAG, "first", seconds=3 * LONGEST_SECONDS) == "success", failures(fresh, DAG, "first")
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    write_corpus(tmp_path / "source")
    build_dataset(check_config(tiny("tiny"), where="a test"), workers=1)
    assert delivered(fresh.folder) == delivered(tmp_path) != {}

    page = fresh.client.get(f"/dataset-report/{DAG}/first", headers={"Accept": "text/html"})
    assert (page.status_code, "tiny" in page.text) == (200, True)
    report = fresh.client.get(f"/dataset-report/{DAG}/first/report")
    assert (report.status_code, "tokens" in report.text) == (200, True)
    for dag in (item["dag_id"] for item in fresh.call("GET", "/api/v2/dags")["dags"]):
        for address in (f"/ui/grid/structure/{dag}", f"/ui/structure/structure_data?dag_id={dag}"):
            shown = fresh.client.get(address)
            assert (shown.status_code, "id" in shown.text) == (200, True), f"{address}: {shown.text[:200]}"
    everything = fresh.client.get("/dataset-report/datasets")
    assert (everything.status_code, "tiny" in everything.text) == (200, True)
    plugins = fresh.call("GET", "/api/v2/plugins")["plugins"]
    assert [plugin["name"] for plugin in plugins if plugin["source"].startswith("corpusmill")] == ["dataset_report"]
    (view,) = [item for plugin in plugins for item in plugin["external_views"] if item["destination"] == "dag_run"]
    assert view["url_route"] == "dataset-report"
    nobody = type(fresh.client)(base_url=fresh.client.base_url, trust_env=False)
    assert nobody.get(f"/dataset-report/{DAG}/first").status_code == 401


@EVERY_AIRFLOW
def test_form_builds_another_dataset(fresh: Fresh) -> None:
    fresh.trigger("build_dataset", "form", configuration="tiny", name="formed", minimum_bytes=150)
    assert fresh.finish("build_dataset", "form") == "success", failures(fresh, "build_dataset", "form")
    (latest,) = (fresh.folder / "outputs" / "formed").glob("latest.json")
    assert json.loads(latest.read_text())


@EVERY_AIRFLOW
def test_shard_is_reprocessed_alone(fresh: Fresh) -> None:
    receipts = sorted((fresh.folder / "work" / "tiny" / "tokenize").glob("*/receipt.json"))
    written = [path.stat().st_mtime_ns for path in receipts]
    fresh.trigger("reprocess_shard", "again", dataset="tiny", work_folder="work", stage="tokenize", shard=0)
    assert fresh.finish("reprocess_shard", "again") == "success", failures(fresh, "reprocess_shard", "again")
    assert [path.stat().st_mtime_ns == at for path, at in zip(receipts, written, strict=True)].count(False) == 1


def test_refused_plan_is_not_tried_again_and_says_why(fresh: Fresh) -> None:
    fresh.trigger("build_dataset", "outside", configuration="tiny", name="outside", source_paths=["/etc"])
    assert fresh.finish("build_dataset", "outside") == "failed"
    task = fresh.tasks("build_dataset", "outside", "plan")["plan", -1]
    assert (task["state"], task["try_number"]) == ("failed", 1)
    page = fresh.client.get("/dataset-report/build_dataset/outside", headers={"Accept": "text/html"}).text
    assert "CORPUSMILL_FORM_ROOTS" in page


def test_users_own_package_called_pipeline_stays_theirs(fresh: Fresh) -> None:
    fresh.trigger("own", "own")
    assert fresh.finish("own", "own") == "success", failures(fresh, "own", "own")


def delivered(folder: Path) -> dict[str, bytes]:
    """{name: bytes} of what was delivered of the dataset `tiny`, but for the report, which tells times."""
    place = folder / "outputs" / "tiny"
    files = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if "report" not in name}


def failures(fresh: Fresh, dag: str, run: str) -> str:
    """The logs of the tasks that failed, for whoever reads the test's failure."""
    failed = [key for key, task in fresh.tasks(dag, run).items() if task["state"] == "failed"]
    return yaml.safe_dump({str(key): fresh.log(dag, run, key[0], map_index=key[1])[-3000:] for key in failed})
