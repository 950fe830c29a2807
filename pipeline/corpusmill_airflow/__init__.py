"""Corpusmill in an Airflow: DAGs from a folder of configurations, pages that show the datasets.

    __main__.py        writes the files of a first dataset into a DAGs folder
    factory.py         called by DAG files;  folder_dags.py: every DAG of a folder, and the errors of its configurations
    configurations.py  a configuration -> its DAG;  build_dataset.py, reprocess_shard.py, forget_documents.py and
                       check_workers.py: the others
    dataset_dag.py     common to DAGs that build: form, schedule, limits;  steps.py: their tasks, needed.py:
                       which of them a run needs
    running.py         a run's claim on its dataset;  worker.py: steps in the environment of CORPUSMILL_PYTHON
    versions.py        which Airflows are supported;  by_version.py: their differences
    plugin.py, pages/  the page of all datasets and the tab of a run;  deadline.py
    preload.py         what is loaded before tasks are forked, and loaded anew once somebody has edited it

This package depends on Airflow, `corpusmill` does not; decisions/0001 explains why they are two packages of one wheel.
Importing it fails under an unsupported Airflow, or with a second installation.
"""

import corpusmill_airflow.versions  # noqa: F401  (refuses what it cannot serve)
