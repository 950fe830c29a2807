"""deploy/helm-values.yaml: values of Airflow's official chart, without a cluster."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

ROOT = Path(__file__).resolve().parents[2]
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "helm-values.yaml").read_text())
KEYS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("chart_schema.yaml").read_text())
CHART = os.environ.get("CORPUSMILL_TEST_HELM_CHART", "")  # the chart's folder, from `helm pull --untar`


def test_every_setting_is_one_of_airflows() -> None:
    from airflow.configuration import retrieve_configuration_description

    known = retrieve_configuration_description()
    for section, settings in VALUES["config"].items():
        assert set(settings) <= set(known[section]["options"]), section


def test_airflow_is_the_images() -> None:
    pinned = re.search(r"^apache-airflow==(.*)$", (ROOT / "requirements.in").read_text(), re.MULTILINE)
    assert pinned is not None
    assert VALUES["airflowVersion"] == pinned[1]


def test_whoever_runs_tasks_writes_to_data_and_others_read_it() -> None:
    for name, reads in {"workers": None, "scheduler": None, "apiServer": True, "dagProcessor": True}.items():
        (volume,), (mount,) = VALUES[name]["extraVolumes"], VALUES[name]["extraVolumeMounts"]
        assert (mount["name"], mount["mountPath"]) == (volume["name"], "/data")
        assert mount.get("readOnly") is reads, name
    root = {entry["name"]: entry["value"] for entry in VALUES["env"]}["CORPUSMILL_ROOT"]
    assert root == "/data"


WRONG = [
    {"workers": {"extraVolume": []}},
    {"apiServer": {"extraVolumeMounts": [{"name": "data", "mountPath": "/data", "readonly": True}]}},
    {"scheduler": {"extraVolumes": [{"name": "data", "persistentVolumeClaim": "corpusmill-data"}]}},
    {"env": [{"name": "CORPUSMILL_MEMORY_GIB", "value": 24}]},
    {"config": {"core": {"max_active_tasks_per_dag": ["64"]}}},
    {"airflowVersion": 3.3},
]


def test_keys_and_types_are_the_charts() -> None:
    assert refusals(KEYS, VALUES) == []


@pytest.mark.parametrize("wrong", [*WRONG, {"worker": {}}], ids=str)
def test_wrong_value_is_refused(wrong: dict[str, Any]) -> None:
    assert refusals(KEYS, laid_over(VALUES, wrong)) != []


@pytest.mark.skipif(not CHART, reason="needs the chart, in CORPUSMILL_TEST_HELM_CHART")
def test_charts_own_schema_takes_and_refuses_the_same() -> None:
    """As `helm install` checks them: laid over the chart's defaults."""
    schema = json.loads((Path(CHART) / "values.schema.json").read_text())
    whole = laid_over(yaml.safe_load((Path(CHART) / "values.yaml").read_text()), VALUES)
    assert refusals(schema, whole) == []
    for wrong in WRONG:
        assert refusals(schema, laid_over(whole, wrong)) != [], wrong


def refusals(schema: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """What a schema finds wrong."""
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(schema).iter_errors(values)]


def laid_over(below: Any, above: Any) -> Any:
    """Values over a chart's defaults, mapping by mapping."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: laid_over(below.get(key), value) for key, value in above.items()}
