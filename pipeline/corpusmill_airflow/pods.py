"""`dag.pods`: what differs in the pod of a step's tasks from the pods of other workers, in Kubernetes' own words.

Read and written by the classes of Airflow's Kubernetes provider; imported only where tasks run in pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from kubernetes.client import V1Pod

from corpusmill.errors import ConfigError

TASKS_CONTAINER = "base"  # as the provider names it


def read_pod(step: str, words: Mapping[str, Any]) -> V1Pod:
    """The pod that is laid over the workers'; ConfigError for a key or a value that Kubernetes does not have there."""
    where = f"dag.pods.{step}"
    try:
        pod = PodGenerator.deserialize_model_dict(dict(words))
        understood = PodGenerator.serialize_pod(pod)
    except Exception as error:  # of many kinds: the classes are generated, and look at no types
        raise ConfigError(
            "airflow.not_a_pod: not a pod",
            where=where,
            expected="a Pod in Kubernetes' words, such as {spec: {containers: [{name: base, resources: ...}]}}",
            got=f"{type(error).__name__}: {error}",
        ) from error
    if lost := next(_lost(words, understood, where), None):
        raise ConfigError(
            "airflow.no_such_pod_key: Kubernetes has no such key in a pod",
            where=lost,
            next_step="fix its name or place: `kubectl explain pod.spec --recursive` lists them",
        )
    containers = pod.spec.containers if pod.spec else []
    if containers and containers[0].name != TASKS_CONTAINER:
        raise ConfigError(
            "airflow.no_base_container: the first container is not the task's",
            where=f"{where}.spec.containers[0].name",
            expected=TASKS_CONTAINER,
            got=containers[0].name,
        )
    return pod


def _lost(given: Any, understood: Any, place: str) -> Iterator[str]:
    """The places of what was given and is not there once it was read."""
    if isinstance(given, Mapping):
        inner = understood if isinstance(understood, Mapping) else {}
        for key, value in given.items():
            if value is None or value in ({}, []):
                continue
            if key not in inner:
                yield f"{place}.{key}"
            else:
                yield from _lost(value, inner[key], f"{place}.{key}")
    elif isinstance(given, list):
        inner = understood if isinstance(understood, list) else []
        for at, value in enumerate(given):
            yield from _lost(value, inner[at] if at < len(inner) else None, f"{place}[{at}]")
    elif isinstance(understood, (Mapping, list)):
        yield place
