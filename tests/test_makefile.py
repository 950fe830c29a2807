"""What `make clean` removes and keeps."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OF_THE_DEMO = (
    "sample/a.jsonl",
    "work/demo/plan",
    "outputs/demo/latest",
    ".cache/numba/x",
    "pipeline/corpusmill/__pycache__/x.pyc",
)
OF_OTHERS = (
    ".airflow/airflow.db",
    ".airflow/logs/x.log",
    ".airflow/passwords.json",
    ".corpusmill/running/web.yaml",
    "work/web/plan",
    "outputs/web/latest",
    "dags/datasets/web.yaml",
)


def test_make_clean_removes_the_demos_things_only(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in OF_THE_DEMO + OF_OTHERS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert [name for name in OF_THE_DEMO if (tmp_path / name).exists()] == []
    assert [name for name in OF_OTHERS if not (tmp_path / name).exists()] == []
