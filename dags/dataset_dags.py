"""A DAG `dataset__<name>` for every configuration in datasets/*.yaml (an Airflow DAG file).

A file that cannot be used has no DAG; refused_configurations.py says so. It must not be said here: Airflow takes an
import error of a file for one of every DAG that the file ever had, and forgets them all.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context
from configurations import PREFIX, dataset_dags

# A task's process needs its own DAG only.
MADE, _ = dataset_dags((get_parsing_context().dag_id or "").removeprefix(PREFIX))
globals().update({dag.dag_id: dag for dag in MADE})
