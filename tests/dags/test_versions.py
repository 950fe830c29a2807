"""What is refused when the package is imported: Airflows that were not tested, halves of two installations."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.raising import raises

ROOT = Path(__file__).resolve().parents[2]


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
