"""Work in an environment of its own (CORPUSMILL_PYTHON): the same answers, and one error if it cannot be done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.errors import PermanentError, TransientError
from corpusmill.stages.graph import GRAPH, open_build
from corpusmill.version import __version__
from corpusmill_airflow import worker
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
    asked: list[tuple[str, dict[str, object]]] = [
        ("plan", {"config": config.model_dump_json(exclude_none=True), "to_build": True}),
        *(("units", {"plan_receipt": built, "stage": stage, "most_tasks": 2}) for stage in ("gather", "export")),
        ("approval", {"plan_receipt": built, "stage": "find_ranges" if "find_ranges" in GRAPH.names else "union"}),
        ("report", {"plan_receipt": built}),
    ]
    here = [worker.ask(question, **values) for question, values in asked]
    assert here[0] == built
    monkeypatch.setenv("CORPUSMILL_PYTHON", sys.executable)
    assert [worker.ask(question, **values) for question, values in asked] == here


def test_steps_of_a_program_are_those_of_this_process(
    config: DatasetConfig, apart: None, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_dataset(config)
    (unit, *_) = open_build(plan).tasks("download", 200)
    receipts = worker.run_steps(str(plan), "download", unit, processes=1, again=False)
    assert receipts == [str(receipt) for receipt in open_build(plan).run_task("download", unit)]
    assert receipts[0] in capsys.readouterr().out


def test_refusal_of_a_program_is_permanent_and_in_its_own_words(config: DatasetConfig, apart: None) -> None:
    gone = config.model_copy(update={"source": config.source.model_copy(update={"paths": ["/nowhere/at/all"]})})
    with pytest.raises(PermanentError) as caught:
        worker.ask("plan", config=gone.model_dump_json(exclude_none=True), to_build=True)
    with pytest.raises(PermanentError) as here:
        plan_dataset(gone, to_build=True)
    assert str(here.value) in str(caught.value).removeprefix(f"{type(here.value).__name__}: ")


def test_fault_that_nobody_foresaw_is_tried_again_and_its_traceback_is_logged(
    apart: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(TransientError):
        worker.ask("finish_reprocessing", plan_receipt=str(tmp_path / "no" / "receipt.json"))
    assert "FileNotFoundError" in capsys.readouterr().out
    with pytest.raises(TransientError):
        worker.run_steps(
            str(tmp_path / "work" / "plan" / "a" / "receipt.json"), "download", "0", processes=1, again=False
        )


def interpreter(folder: Path, *, version: str) -> Path:
    """A Python of its own, with a package of that version (none if it is empty)."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    if version:
        (packages / "corpusmill").mkdir()
        (packages / "corpusmill" / "__init__.py").touch()
        for name in ("errors.py", "installed.py"):
            (packages / "corpusmill" / name).write_text((ROOT / "pipeline" / name).read_text())
        (packages / "corpusmill" / "version.py").write_text(f"__version__ = {version!r}\n")
        described = packages / f"corpusmill-{version}.dist-info"
        described.mkdir()
        requirements = 'Requires-Dist: pydantic>=2\nRequires-Dist: numpy>=2; extra == "worker"\n'
        (described / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: corpusmill\nVersion: {version}\n{requirements}"
        )
    return folder / "bin" / "python"


@pytest.mark.parametrize(
    ("version", "got"), [("", "no Corpusmill"), ("99.0", "version 99.0"), (__version__, "without numpy")]
)
def test_environment_that_cannot_run_steps_is_one_error_with_the_command_that_mends_it(
    version: str, got: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter(tmp_path / "other", version=version)
    monkeypatch.setenv("CORPUSMILL_PYTHON", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(PermanentError) as caught:
        worker.require_worker()
    text = str(caught.value)
    assert got in text
    assert f"CORPUSMILL_PYTHON={python}" in text
    assert f'{python} -m pip install "corpusmill[worker]=={__version__}"' in text
    with pytest.raises(PermanentError, match="does not match"):  # a worker elsewhere, after the plan was made here
        worker.run_steps("plan/receipt.json", "download", "0", processes=1, again=False)


def test_interpreter_that_is_not_there_is_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUSMILL_PYTHON", str(tmp_path / "bin" / "python"))
    with pytest.raises(PermanentError, match="does not match") as caught:
        worker.require_worker()
    assert "No such file" in str(caught.value)


def test_airflow_without_the_extra_and_without_another_interpreter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill.installed import NotInstalledError

    described = tmp_path / f"corpusmill-{__version__}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text('Name: corpusmill\nRequires-Dist: no-such-package; extra == "worker"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("CORPUSMILL_PYTHON", raising=False)
    with pytest.raises(NotInstalledError) as caught:
        worker.require_worker()
    assert "no-such-package" in str(caught.value)
    assert "CORPUSMILL_PYTHON" in str(caught.value)
