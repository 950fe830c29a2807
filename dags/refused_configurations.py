"""Import errors for the invalid configurations in datasets/ (an Airflow DAG file)."""

from pathlib import Path

from corpusmill_airflow.factory import refused_configurations

globals().update(refused_configurations(Path(__file__).parent / "datasets"))
