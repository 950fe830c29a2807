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


@pytest.mark.skipif(not CHART, reason="needs the chart, in CORPUSMILL_TEST_HELM_CHART")
def test_charts_own_schema_takes_the_values() -> None:
    """As `helm install` checks them: laid over the chart's defaults."""
    schema = json.loads((Path(CHART) / "values.schema.json").read_text())
    whole = laid_over(yaml.safe_load((Path(CHART) / "values.yaml").read_text()), VALUES)
    assert [f"{error.json_path}: {error.message}" for error in Draft7Validator(schema).iter_errors(whole)] == []
    misspelt = laid_over(whole, {"workers": {"extraVolume": []}})
    assert list(Draft7Validator(schema).iter_errors(misspelt)) != []


def laid_over(below: Any, above: Any) -> Any:
    """Values over a chart's defaults, mapping by mapping."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: laid_over(below.get(key), value) for key, value in above.items()}
