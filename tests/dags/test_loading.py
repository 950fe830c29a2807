"""What loading costs and refuses: dags/, first files, plugins, other Airflows, modules loaded before forks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from corpusmill.config import load_config
from corpusmill.version import __version__
from tests.raising import raises

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

ROOT = Path(__file__).resolve().parents[2]
LONGEST_PARSE_SECONDS = 1.0
HEAVY = ("numpy", "numba", "pyarrow", "boto3", "botocore", "google", "tiktoken", "gigatoken", "tokenizers", "pandas")

# Times the CPU, not the clock: the bound shall hold on a busy machine, too.
PARSE = """
import json, os, pathlib, sys, time
import airflow.sdk
from airflow.dag_processing.dagbag import BundleDagBag
started = time.process_time()
folder = os.environ["AIRFLOW__CORE__DAGS_FOLDER"]
bag = BundleDagBag(folder, bundle_path=pathlib.Path(folder))
seconds = time.process_time() - started
heavy = [name for name in HEAVY if name in sys.modules]
print(json.dumps({"seconds": seconds, "heavy": heavy, "dags": sorted(bag.dags), "errors": bag.import_errors}))
"""


@pytest.fixture(scope="module")
def parsed(airflow_database: None) -> list[dict[str, object]]:
    """What two fresh interpreters said after parsing; the first may have had to compile our modules."""
    code = f"HEAVY = {HEAVY!r}\n{PARSE}"
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ)
        for _ in range(2)
    ]
    return [json.loads(run.stdout.splitlines()[-1]) for run in runs]


def test_parsing_the_folder_no_import_errors(dagbag: DagBag) -> None:
    assert dagbag.import_errors == {}
    assert "build_dataset" in dagbag.dags


def test_parsing_imports_nothing_heavy(parsed: list[dict[str, object]]) -> None:
    assert [item["dags"] for item in parsed] == [
        [
            "build_dataset",
            "check_workers",
            "compare_versions",
            "dataset__demo",
            "dataset__oscar",
            "forget_documents",
            "reprocess_shard",
        ]
    ] * 2, parsed
    assert [item["heavy"] for item in parsed] == [[], []]


def test_parsing_takes_less_than_a_second_beyond_airflow(parsed: list[dict[str, object]]) -> None:
    assert min(float(str(item["seconds"])) for item in parsed) < LONGEST_PARSE_SECONDS


PLUGIN = ROOT / "pipeline" / "corpusmill_airflow" / "plugin.py"


def test_loading_the_plugin_imports_no_web_framework() -> None:
    # Every task process loads plugins: FastAPI and Airflow's API would cost each of them a second.
    code = (
        "import sys, airflow.sdk, airflow.plugins_manager; assert 'fastapi' not in sys.modules\n"
        f"import runpy; runpy.run_path({str(PLUGIN)!r})\n"
        "print([name for name in ('fastapi', 'airflow.api_fastapi') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip().splitlines()[-1] == "[]"


def test_airflow_loads_one_plugin_and_none_of_its_parts(airflow_database: None) -> None:
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    sources = [str(plugin.source) for plugin in plugins if plugin.name == "dataset_report"]
    assert [source.split(":")[0] for source in sources] == [f"corpusmill=={__version__}"]


@pytest.mark.parametrize("version", ["2.11.2", "3.0.6", "3.4.0", "3.4.0rc1", "4.0.0"])
def test_airflow_that_was_not_tested_is_refused_with_both_versions(version: str) -> None:
    from corpusmill_airflow import require_supported

    with raises("airflow.version_not_supported", f"Airflow {version}", "Airflow 3.1 to 3.3"):
        require_supported(version)


@pytest.mark.parametrize("version", ["3.1.0", "3.2.2", "3.3.0rc1", "3.3.2"])
def test_airflow_that_was_tested_is_taken(version: str) -> None:
    from corpusmill_airflow import require_supported

    require_supported(version)


@pytest.mark.parametrize("module", ["corpusmill_airflow.factory", "corpusmill_airflow.plugin"])
def test_import_in_an_old_airflow_is_one_error(module: str, airflow_database: None, tmp_path: Path) -> None:
    done = imported(f"import airflow; airflow.__version__ = '3.0.6'; import {module}", tmp_path)
    assert done.stderr.count("Error: ") == 1
    assert "does not support this Airflow" in done.stderr


def test_import_of_halves_of_two_installations_names_both(tmp_path: Path, airflow_database: None) -> None:
    shutil.copytree(ROOT / "pipeline" / "corpusmill_airflow", tmp_path / "corpusmill_airflow")
    done = imported("import corpusmill_airflow.plugin", tmp_path, PYTHONPATH=str(tmp_path))
    assert "two installations of Corpusmill are mixed" in done.stderr
    assert str(tmp_path / "corpusmill_airflow") in done.stderr
    assert str(ROOT / "pipeline" / "corpusmill") in done.stderr


def imported(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """How a fresh interpreter in `folder` failed."""
    command, environment = [sys.executable, "-c", code], os.environ | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done


FOR_DAG_FILES = ["airflow.sdk.definitions.retry_policy", "airflow.providers.standard.operators.hitl"]
FOR_STEPS = ["numba", "numpy.ma", "orjson"]
OURS = ["corpusmill.builds.graph", "corpusmill_airflow.steps"]


@pytest.mark.parametrize(
    ("component", "executor", "expected"),
    [
        ("scheduler", "LocalExecutor", FOR_DAG_FILES + FOR_STEPS + OURS),
        pytest.param("scheduler", "CeleryExecutor", [], marks=pytest.mark.slow),
        pytest.param("dag-processor", "LocalExecutor", FOR_DAG_FILES + OURS, marks=pytest.mark.slow),
    ],
)
def test_component_that_starts_preloads_what_its_forks_need(
    tmp_path: Path, component: str, executor: str, expected: list[str]
) -> None:
    code = (
        f"import sys\nsys.argv = ['airflow', {component!r}]\nfrom airflow.jobs.job import Job\nJob()\n"
        f"print(*(name for name in {FOR_DAG_FILES + FOR_STEPS + OURS} if name in sys.modules))"
    )
    settings = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__EXECUTOR": executor,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | settings,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1].split() == expected


# A DAG file in forks of a scheduler: as it was, after a variable changed, and after a file was edited or replaced.
RENEWED = """
import os, sys
from pathlib import Path
from corpusmill_airflow import preload
preload.load_for_tasks()
assert ("numba" in sys.modules) == ("CORPUSMILL_PYTHON" not in os.environ)
loaded = "corpusmill.builds.graph" in sys.modules
sys.modules["airflow.nothing"] = None  # Python allows that: it forbids an import

def in_a_fork(**variables):
    if (child := os.fork()) == 0:
        os.environ.update(variables)
        from corpusmill_airflow.factory import make_dags
        before = sys.modules.get("corpusmill.builds.graph")
        make_dags("none", lambda steps: [steps.plan(), steps.report()])
        graph = sys.modules["corpusmill.builds.graph"]
        from corpusmill.version import __version__
        same_airflow = sys.modules["corpusmill_airflow.folder_dags"].DAG is sys.modules["airflow.sdk"].DAG
        print(loaded, __version__, graph is before, same_airflow, "own" in graph.GRAPH, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

edited = Path(sys.argv[1])
in_a_fork()
in_a_fork(CORPUSMILL_STAGES="own_stage")
status = edited.stat()
edited.write_text(edited.read_text().replace("0", "9"))
os.utime(edited, ns=(status.st_atime_ns, status.st_mtime_ns))
in_a_fork()
edited.unlink()
(edited.parent / "version").mkdir()
(edited.parent / "version" / "__init__.py").write_text("__version__ = 'a folder'")
in_a_fork()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("elsewhere", "own"), [(False, False), (True, True)])
def test_edited_module_counts_in_the_next_fork_although_it_was_preloaded(
    tmp_path: Path, elsewhere: bool, own: bool
) -> None:
    for package in ("corpusmill", "corpusmill_airflow"):
        shutil.copytree(ROOT / "pipeline" / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "own_stage.py").write_text(
        "from corpusmill.engine.stage import Stage\n"
        "from corpusmill.engine.work import EveryTime\n"
        "STAGE = Stage('own', 1, after=(), work=EveryTime(lambda *_: [], lambda *_: {}, print))\n"
    )
    environment = os.environ | {
        "AIRFLOW_HOME": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",  # a compiled file is found by the time of writing, which the edit keeps
        **({"CORPUSMILL_STAGES": "own_stage"} if own else {}),
        **({"CORPUSMILL_PYTHON": sys.executable} if elsewhere else {}),
    }
    command = [sys.executable, "-c", RENEWED, str(tmp_path / "corpusmill" / "version.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    edited = __version__.replace("0", "9")
    assert done.stdout.splitlines() == [
        f"{not own} {__version__} {not own} True {own}",
        f"{not own} {__version__} False True True",
        f"{not own} {edited} False True {own}",
        f"{not own} a folder False True {own}",
    ]


def test_first_files_are_the_repositorys_own_and_a_configuration_that_can_be_used(
    airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag

    from corpusmill_airflow.__main__ import write_files

    assert [line.split()[-1] for line in write_files(tmp_path)] == ["written"] * 3
    monkeypatch.delenv("CORPUSMILL_DATASETS", raising=False)
    bag = BundleDagBag(str(tmp_path), bundle_path=tmp_path)
    assert bag.import_errors == {}
    assert set(bag.dags) == {
        "build_dataset",
        "check_workers",
        "compare_versions",
        "dataset__first",
        "forget_documents",
        "reprocess_shard",
    }
    assert load_config(tmp_path / "datasets" / "first.yaml").name == "first"
    for ours, written in (("build_dataset", "corpusmill_datasets"), ("refused_configurations", "corpusmill_refused")):
        assert (ROOT / "dags" / f"{ours}.py").read_text() == (tmp_path / f"{written}.py").read_text()


def test_files_that_are_there_are_kept(airflow_database: None, tmp_path: Path) -> None:
    from corpusmill_airflow.__main__ import write_files

    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "mine.yaml").write_text("name: mine\n")
    (tmp_path / "corpusmill_datasets.py").write_text("mine = True\n")
    lines = write_files(tmp_path)
    assert [line.endswith("written") for line in lines] == [False, True, False]
    assert (tmp_path / "corpusmill_datasets.py").read_text() == "mine = True\n"
    assert not (tmp_path / "datasets" / "first.yaml").exists()
