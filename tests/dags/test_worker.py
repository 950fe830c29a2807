"""Work in an environment of its own (CORPUSMILL_PYTHON): the same answers, and one error if it cannot be done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corpusmill.builds import local
from corpusmill.builds.chain import APPROVALS
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.parts import WHOLE, Part
from corpusmill.errors import TransientError
from corpusmill.version import __version__
from corpusmill_airflow import worker
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path: Path) -> DatasetConfig:
    write_corpus(tmp_path / "corpus", documents=30)
    return check_config(configuration(tmp_path), where="a test")


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUSMILL_PYTHON", sys.executable)


def test_program_gives_the_answers_of_this_process(config: DatasetConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    built = str(build_dataset(config, workers=1))
    request = {"config": config.model_dump_json(exclude_none=True), "to_build": True, "most_tasks": 2}
    asked: list[tuple[str, dict[str, object]]] = [
        *(("plan", {**request, "may_be_unchanged": allowed}) for allowed in (False, True)),
        *(("approval", {"plan_receipt": built, "stage": stage}) for stage in APPROVALS.values()),
        ("report", {"plan_receipt": built}),
    ]
    here = [worker.ask(question, **values) for question, values in asked]
    assert here[0] == {"plan_receipt": built, "parts": 1, "report": None}
    assert here[1] == {**here[0], "report": here[-1]["receipt"]}
    monkeypatch.setenv("CORPUSMILL_PYTHON", sys.executable)
    assert [worker.ask(question, **values) for question, values in asked] == here


@pytest.mark.parametrize("part", [WHOLE, Part(2, 2)], ids=str)
def test_part_of_a_task_in_a_program_is_that_of_this_process(
    config: DatasetConfig, apart: None, capsys: pytest.CaptureFixture[str], part: Part
) -> None:
    plan = plan_dataset(config)
    receipts = run_part(str(plan), part)
    assert receipts == [str(receipt) for receipt in local.run_part(plan, "download", part)]
    assert receipts
    assert receipts[0] in capsys.readouterr().out


def run_part(plan_receipt: str, part: Part = WHOLE) -> list[str]:
    return worker.run_part(plan_receipt, "download", part, processes=1, failures=0, again=False)


def test_refusal_of_a_program_is_that_of_its_own_process(config: DatasetConfig, apart: None) -> None:
    gone = config.model_copy(update={"source": config.source.model_copy(update={"paths": ["/nowhere/at/all"]})})
    with raises("source.missing") as caught:
        worker.ask(
            "plan",
            config=gone.model_dump_json(exclude_none=True),
            to_build=True,
            most_tasks=2,
            may_be_unchanged=False,
        )
    with raises("source.missing") as here:
        plan_dataset(gone, to_build=True)
    assert str(caught.value) == str(here.value)


def test_fault_that_nobody_foresaw_is_tried_again_and_its_traceback_is_logged(
    apart: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(TransientError):
        worker.ask("finish_reprocessing", plan_receipt=str(tmp_path / "no" / "receipt.json"))
    assert "FileNotFoundError" in capsys.readouterr().out
    with pytest.raises(TransientError):
        worker.ask("purge", plan_receipt=3)


def interpreter(folder: Path, *, version: str) -> Path:
    """A Python of its own, with a package of that version (none if it is empty)."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    if version:
        (packages / "corpusmill").mkdir()
        (packages / "corpusmill" / "__init__.py").touch()
        for name in ("errors.py", "installed.py"):
            (packages / "corpusmill" / name).write_text((ROOT / "pipeline" / "corpusmill" / name).read_text())
        (packages / "corpusmill" / "version.py").write_text(f"__version__ = {version!r}\n")
        described = packages / f"corpusmill-{version}.dist-info"
        described.mkdir()
        requirements = "Requires-Dist: pydantic>=2\nRequires-Dist: numpy>=2\n"
        (described / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: corpusmill\nVersion: {version}\n{requirements}"
        )
    return folder / "bin" / "python"


@pytest.mark.parametrize(
    ("version", "got"), [("", "no Corpusmill"), ("99.0", "version 99.0"), (__version__, "without pydantic, numpy")]
)
def test_environment_that_cannot_run_steps_is_one_error_with_the_command_that_mends_it(
    version: str, got: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter(tmp_path / "other", version=version)
    monkeypatch.setenv("CORPUSMILL_PYTHON", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with raises("airflow.environment_differs") as caught:
        worker.require_worker()
    text = str(caught.value)
    assert got in text
    assert f"CORPUSMILL_PYTHON={python}" in text
    assert f'{python} -m pip install "corpusmill=={__version__}"' in text
    with raises("airflow.environment_differs"):  # a worker elsewhere, after the plan was made here
        run_part("plan/receipt.json")


def test_interpreter_that_is_not_there_is_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUSMILL_PYTHON", str(tmp_path / "bin" / "python"))
    with raises("airflow.environment_differs", "No such file"):
        worker.require_worker()


def test_thin_airflow_without_another_interpreter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    described = tmp_path / f"corpusmill-{__version__}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        'Name: corpusmill\nRequires-Dist: no-such-package\nRequires-Dist: nor-this; extra == "openlineage"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("CORPUSMILL_PYTHON", raising=False)
    with raises("environment.packages_missing", "no-such-package", "CORPUSMILL_PYTHON"):
        worker.require_worker()
