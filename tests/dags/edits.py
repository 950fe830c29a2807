"""Random edits of a long-lived work folder that the datasets' own DAGs build, beside builds from scratch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from corpusmill.config import DatasetConfig
from tests.dags.conftest import dags_below
from tests.search.edits import LongLivedFolder
from tests.search.folders import Result, built, delivered
from tests.search.run import search


def search_through_dags(number: int, datasets: Path, *, folders: int, steps: int, shrink: bool = False) -> Counter[str]:
    """The folders of a seed; `datasets` receives the configurations. Needs Airflow's database."""

    def through_the_dag(root: Path, config: DatasetConfig) -> Result:
        values = config.model_dump(mode="json", exclude_none=True)
        (datasets / f"{config.name}.yaml").write_text(yaml.safe_dump(values))
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("CORPUSMILL_DATASETS", str(datasets))
            run = dags_below(root, patched)(f"dataset__{config.name}")
        if run.state == "success":
            return delivered(root, config.name)
        command = built(root, config)  # says which error it was
        return command if command.error else Result(error="the run failed, and the command does not")

    class ThroughTheDag(LongLivedFolder):
        build = staticmethod(through_the_dag)

    return search(ThroughTheDag, number, folders=folders, steps=steps, shrink=shrink)
