"""Pods of steps: what a configuration says, in the pod that Airflow's Kubernetes executor would start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpusmill.config import check_config
from corpusmill_airflow.dataset_dag import placement
from tests.dags.live import tiny
from tests.raising import raises

DAGS = Path(__file__).resolve().parents[2] / "dags"
LARGE = {
    "metadata": {"labels": {"team": "data"}},
    "spec": {
        "nodeSelector": {"class": "memory"},
        "tolerations": [{"key": "memory", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "base", "resources": {"requests": {"memory": "8Gi", "cpu": 2}}}],
    },
}


@pytest.fixture
def in_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Airflow whose tasks may run in pods."""
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor,KubernetesExecutor")


@pytest.fixture
def parse(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that makes the DAG of the dataset `small`, whose section `dag` it is given."""
    from airflow.dag_processing.dagbag import BundleDagBag

    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))

    def made(**section: Any) -> Any:
        (tmp_path / "small.yaml").write_text(yaml.safe_dump(tiny("small", dag=section)))
        bag = BundleDagBag(str(DAGS / "build_dataset.py"), bundle_path=DAGS)
        assert bag.import_errors == {}
        return bag.dags["dataset__small"]

    return made


def test_pod_of_a_step_is_laid_over_that_of_the_workers_also_once_the_dag_was_stored(
    parse: Callable[..., Any], in_pods: None
) -> None:
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
    from airflow.serialization.serialized_objects import DagSerialization

    worker = {
        "metadata": {"labels": {"component": "worker"}},
        "spec": {
            "containers": [
                {"name": "base", "image": "mill:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
            ]
        },
    }
    dag = DagSerialization.from_dict(DagSerialization.to_dict(parse(pods={"find_ranges": LARGE})))
    of_step = [task for task in dag.tasks if task.task_id.partition(".")[0] == "find_ranges"]
    assert of_step
    for task in of_step:
        assert task.executor == "KubernetesExecutor"
        pod = PodGenerator.reconcile_pods(
            PodGenerator.deserialize_model_dict(worker), task.executor_config["pod_override"]
        )
        words = PodGenerator.serialize_pod(pod)
        assert words["metadata"]["labels"] == {"component": "worker", "team": "data"}
        assert words["spec"]["nodeSelector"] == {"class": "memory"}
        (container,) = words["spec"]["containers"]
        assert (container["image"], container["resources"]) == (
            "mill:1",
            {"requests": {"memory": "8Gi", "cpu": "2"}},
        )
        assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    others = [task for task in dag.tasks if task not in of_step]
    assert {task.executor for task in others} == {None}
    assert not any(task.executor_config for task in others)


def test_pods_say_nothing_to_an_airflow_without_pods(parse: Callable[..., Any]) -> None:
    dag = parse(pods={"find_ranges": LARGE})
    assert {task.executor for task in dag.tasks} == {None}


EITHER = "airflow.not_a_pod airflow.no_such_pod_key"


@pytest.mark.parametrize(
    ("step", "pod", "code", "shown"),
    [
        ("tokenise", {}, "airflow.no_such_step", "dag.pods"),
        (
            "tokenize",
            {"spec": {"nodeSelektor": {"a": "b"}, "containers": []}},
            EITHER,
            "dag.pods.tokenize.spec.nodeSelektor",
        ),
        ("tokenize", {"resources": {"requests": {"cpu": 1}}}, EITHER, "dag.pods.tokenize.resources"),
        (
            "tokenize",
            {"spec": {"containers": [{"name": "base", "resource": 1}]}},
            EITHER,
            "spec.containers[0].resource",
        ),
        ("tokenize", {"spec": {"containers": [{"resources": {"limits": {"cpu": 1}}}]}}, EITHER, "`name`"),
        ("tokenize", {"spec": {"containers": "base"}}, EITHER, "dag.pods.tokenize"),
        ("tokenize", {"spec": ["base"]}, EITHER, "dag.pods.tokenize"),
        ("tokenize", {"metadata": 7}, EITHER, "dag.pods.tokenize"),
        ("tokenize", {"spec": {"containers": [{"name": "other"}]}}, "airflow.no_base_container", "other"),
    ],
)
def test_pod_that_kubernetes_would_not_understand_is_refused_with_its_place(
    in_pods: None, step: str, pod: dict[str, Any], code: str, shown: str
) -> None:
    config = check_config(tiny("small", dag={"pods": {step: pod}}), where="a test")
    assert config.dag is not None
    with raises(code, shown):
        placement([config], config.dag)
