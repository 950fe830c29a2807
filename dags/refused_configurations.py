"""Import errors for the files in datasets/*.yaml that cannot be used (an Airflow DAG file without DAGs).

Each is named with its key and what to do. The usable ones have their DAGs in dataset_dags.py, whatever is said here.
"""

from __future__ import annotations

from airflow.sdk import DAG
from configurations import dataset_dags

from corpusmill.errors import ConfigError

_, REFUSED = dataset_dags(tasks=False)


class RefusedConfigurations(DAG):
    """Airflow refuses this DAG, and shows why without a traceback: that is what it is for."""

    def validate(self) -> None:
        """Raise what is wrong with every file."""
        raise ConfigError("\n\n".join(str(error) for error in REFUSED))


if REFUSED:
    refused_configurations = RefusedConfigurations(dag_id="refused_configurations", schedule=None, auto_register=False)
