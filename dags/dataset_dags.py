"""The DAGs of the configurations in datasets/ (an Airflow DAG file)."""

from pathlib import Path

from corpusmill_airflow.factory import make_dags

globals().update(make_dags(Path(__file__).parent / "datasets"))
