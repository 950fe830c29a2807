"""Import errors for the configurations in datasets/ that cannot be used (an Airflow DAG file)."""

from pathlib import Path

from corpusmill_airflow.factory import refused_configurations

globals().update(refused_configurations(Path(__file__).parent / "datasets"))
