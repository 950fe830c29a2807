"""The main job: raw text in, training-ready tokens out, every stage mapped over its units (stage_tasks.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Param, get_current_context, task
from dataset_dag import configuration_names, datasets_folder, form_params, make_dag, run_params

RUN = run_params()
NAMES = configuration_names() or ["demo"]
PARAMS = {
    "configuration": Param(
        "demo" if "demo" in NAMES else NAMES[0],
        enum=NAMES,
        title="Dataset configuration",
        description="A file in dags/datasets. Whatever you leave empty below is as it says there.",
        section="Dataset",
    ),
    **form_params(),
    **RUN,
}


@task
def plan(params: dict[str, Any] | None = None) -> str:
    """Check the form, list the sources, group them into shards, write the plan; returns its receipt's path."""
    import running

    from corpusmill.config import load_config
    from corpusmill.form import config_from_form

    values = {name: value for name, value in (params or {}).items() if name not in RUN}
    with running.refusal_shown(get_current_context()):
        base = load_config(datasets_folder() / f"{Path(values.pop('configuration')).name}.yaml")
        config = config_from_form(values, base)
        own = datasets_folder() / f"{config.name}.yaml"
        return running.plan_run(config, get_current_context(), load_config(own) if own.is_file() else None, base)


build_dataset = make_dag(
    "build_dataset",
    plan,
    dag_display_name="Build a dataset",
    description="Raw text in, training-ready tokens out: deduplicated, tokenized, shuffled, exported, verified.",
    params=PARAMS,
    doc_md=Path(__file__).with_suffix(".md").read_text(encoding="utf-8"),
)
