"""The DAG `build_dataset`: a form over any configuration of the folder; raw text in, training-ready tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task

from corpusmill.lazy import lazily
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.dataset_dag import form_params, make_dag, run_params
from corpusmill_airflow.folder import configuration_names, named_folder
from corpusmill_airflow.steps import Chain

with lazily:
    from corpusmill.config import form, reading
    from corpusmill_airflow import running


if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig


def build_dataset(folder: Path, known: Sequence[DatasetConfig], listed: Chain) -> DAG:
    """The DAG, for the configurations of a folder; `known`: the valid ones."""
    names = configuration_names(folder) or ["demo"]
    run = run_params()
    chosen = Param(
        "demo" if "demo" in names else names[0],
        enum=names,
        title="Dataset configuration",
        description=f"A file in {named_folder(folder)}. Fields left empty below keep its values.",
        section="Dataset",
    )

    @task
    @retried_as_its_error_says
    def plan(params: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """Check the form, list the sources, group them into shards, write the plan; returns what parts are given."""
        values = {name: value for name, value in (params or {}).items() if name not in run}
        with running.refusal_shown(get_current_context()):
            base = reading.load_config(folder / f"{Path(values.pop('configuration')).name}.yaml")
            config = form.config_from_form(values, base)
            own = folder / f"{config.name}.yaml"
            return running.plan_run(
                config, get_current_context(), reading.load_config(own) if own.is_file() else None, base
            )

    return make_dag(
        "build_dataset",
        plan,
        listed,
        dag_display_name="Build a dataset",
        description="Raw text in, training-ready tokens out: deduplicated, tokenized, shuffled, exported, verified.",
        params={"configuration": chosen, **form_params(), **run},
        known=known,
        doc_md=Path(__file__).with_suffix(".md").read_text(encoding="utf-8"),
    )
