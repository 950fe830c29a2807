"""Random edits of a long-lived work folder built by the datasets' own DAGs, beside builds from scratch.

Three steps, half a minute or more each. DAG_EDIT_SEEDS=13 in the environment makes it a hundred, eight to a seed;
pytest's `-k "[7]"` runs one seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from corpusmill.config import DatasetConfig
from tests.dags.conftest import dags_below
from tests.search.edits import LongLivedFolder
from tests.search.folders import Result, built, delivered
from tests.search.run import search

SEEDS = int(os.environ.get("DAG_EDIT_SEEDS", "0"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(SEEDS or 1))
def test_dag_after_random_edits_delivers_what_a_build_from_scratch_does(
    airflow_database: None, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def through_the_dag(root: Path, config: DatasetConfig) -> Result:
        values = config.model_dump(mode="json", exclude_none=True)
        (tmp_path / f"{config.name}.yaml").write_text(yaml.safe_dump(values))
        with monkeypatch.context() as patched:
            patched.setenv("CORPUSMILL_DATASETS", str(tmp_path))
            run = dags_below(root, patched)(f"dataset__{config.name}")
        if run.state == "success":
            return delivered(root, config.name)
        command = built(root, config)  # says which error it was
        return command if command.error else Result(error="the run failed, and the command does not")

    class ThroughTheDag(LongLivedFolder):
        build = staticmethod(through_the_dag)

    assert search(ThroughTheDag, number, folders=1, steps=9 if SEEDS else 4, shrink=False)["steps"]
