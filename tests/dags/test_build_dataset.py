"""The DAG as it is declared: form, order, retries, mapping."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill import errors
from corpusmill.config import load_config
from corpusmill.engine.graph import PLAN
from corpusmill.errors import ConfigError, CorpusmillError, PermanentError, TransientError
from corpusmill.form import FIELDS, config_from_form
from corpusmill.stages.graph import GRAPH

if TYPE_CHECKING:
    from airflow.sdk import DAG

DEMO = Path(__file__).resolve().parents[2] / "dags" / "datasets" / "demo.yaml"
TASK_OF_STAGE = {
    "anchor": "find_ranges.anchor",
    "suffix_array": "find_ranges.suffix_array",
    "shared": "find_ranges.shared",
    "context": "find_ranges.context",
    "reference_index": "find_ranges.reference_index",
    "reference_context": "find_ranges.reference_context",
    "settle": "find_ranges.settle",
    "reference_border": "find_ranges.reference_border",
    "border": "find_ranges.border",
    "match": "find_ranges.match",
    "union": "find_ranges.union",
    "scatter": "shuffle.scatter",
    "gather": "shuffle.gather",
    "export": "exports.export",
    "manifest": "exports.manifest",
}
DECIDED_BY_THE_RUN = {"dry_run", "approve_removal", "move_latest", "verify"}
ABOUT_THE_RUN = {"configuration", *DECIDED_BY_THE_RUN}
ERRORS = [item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, CorpusmillError)]


def task_of(stage: str) -> str:
    return TASK_OF_STAGE.get(stage, stage)


def all_upstream(dag: DAG, task_id: str) -> set[str]:
    return dag.get_task(task_id).get_flat_relative_ids(upstream=True)


def form_of(dag: DAG) -> dict[str, Any]:
    return {name: value for name, value in dag.params.dump().items() if name not in ABOUT_THE_RUN}


def test_form_left_empty_is_the_chosen_configuration(dag: DAG) -> None:
    assert dag.params["configuration"] == "demo"
    assert "demo" in dag.params.get_param("configuration").schema["enum"]
    assert config_from_form(form_of(dag), load_config(DEMO)) == load_config(DEMO)


def test_form_of_a_dataset_shows_its_configuration_and_keeps_its_name(dagbag: Any) -> None:
    form = dagbag.dags["dataset__demo"]
    assert config_from_form(form_of(form)) == load_config(DEMO)
    assert form.params.get_param("name").schema["const"] == "demo"


def test_form_shows_every_field_with_title_help_and_section(dag: DAG) -> None:
    assert set(dag.params) == {*(item.name for item in FIELDS), *ABOUT_THE_RUN}
    for name in dag.params:
        param = dag.params.get_param(name)
        assert param.schema["title"], name
        assert param.description, name
        assert name in DECIDED_BY_THE_RUN or param.schema["section"], name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("minimum_bytes", 6),
        ("minimum_bytes", "many"),
        ("dedup_mode", "delete"),
        ("shard_bytes", "8 apples"),
        ("source_paths", "data/web"),
        ("export_numpy", "yes"),
        ("configuration", "../../etc/passwd"),
        ("max_rejected_share", 2),
        ("tokenizer_sha256", "abc"),
        ("name", "Upper Case"),
    ],
)
def test_form_refuses_a_bad_value_before_a_run_starts(dag: DAG, name: str, value: Any) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        copy.deepcopy(dag.params).__setitem__(name, value)


def test_every_stage_has_its_task(dag: DAG) -> None:
    assert {task_of(stage) for stage in (PLAN, *GRAPH.names)} <= set(dag.task_ids)


def test_stages_run_in_the_order_of_the_waves(dag: DAG) -> None:
    before: set[str] = set()
    for wave in GRAPH.waves():
        for stage in wave:
            assert set(GRAPH.before(stage)) <= before, stage
            assert {"plan", *map(task_of, GRAPH.before(stage))} <= all_upstream(dag, task_of(stage)), stage
        before |= set(wave)


def test_stages_of_one_wave_run_side_by_side(dag: DAG) -> None:
    assert "tokenize" not in all_upstream(dag, "writeback")
    assert "writeback" not in all_upstream(dag, "tokenize")


def test_every_stage_but_the_ends_is_mapped_and_shows_its_unit(dag: DAG) -> None:
    mapped = {task.task_id: task for task in dag.tasks if task.is_mapped}
    assert set(mapped) == {task_of(stage) for stage in GRAPH.names if stage != "report"}
    assert {task.map_index_template for task in mapped.values()} == {"{{ task.op_kwargs['unit'] }}"}


def test_tasks_retry_three_times_with_growing_delay(dag: DAG) -> None:
    for task in dag.tasks:
        assert task.retries == (0 if task.task_id.startswith("approve_") else 3), task.task_id
        assert task.retry_exponential_backoff == 2.0, task.task_id
        assert task.is_teardown or task.trigger_rule.value == "none_failed", task.task_id


@pytest.mark.parametrize("error", ERRORS)
def test_retry_policy_follows_the_error_family(dag: DAG, error: type[CorpusmillError]) -> None:
    from airflow.sdk import RetryAction

    wanted = RetryAction.FAIL if issubclass(error, PermanentError) else RetryAction.RETRY
    for task in dag.tasks:
        assert task.retry_policy.evaluate(error("said"), 1, 3).action is wanted, task.task_id


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError(), TransientError("busy"), RuntimeError("unknown")])
def test_retry_policy_retries_what_is_not_known_to_be_permanent(dag: DAG, error: BaseException) -> None:
    from airflow.sdk import RetryAction

    assert dag.get_task("tokenize").retry_policy.evaluate(error, 1, 3).action is RetryAction.RETRY


def test_dag_lets_the_queue_be_longer_than_the_workers(dag: DAG) -> None:
    assert dag.max_active_tasks >= 64
    assert dag.tags == {"corpusmill"}
    assert dag.schedule is None
    assert dag.doc_md


@pytest.mark.parametrize("shard", [10**40, 1e40, -1, "1"])
def test_form_of_reprocess_shard_refuses_a_number_that_no_shard_has(dagbag: Any, shard: object) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        dagbag.dags["reprocess_shard"].params.get_param("shard").resolve(shard)


def test_reprocess_shard_refuses_a_field_that_its_form_does_not_have(
    dagbag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = dagbag.dags["reprocess_shard"]
    plan = dag.get_task("plan").python_callable
    handed_on: dict[str, str] = {}
    instance = SimpleNamespace(xcom_push=handed_on.__setitem__)
    monkeypatch.setitem(plan.__globals__, "get_current_context", lambda: {"ti": instance})
    with pytest.raises(ConfigError, match="no field shards; did you mean shard"):
        plan(params=dag.params.dump() | {"shards": 3})
    assert "did you mean shard" in handed_on["why"]


def test_form_that_names_a_place_beyond_the_data_folder_fails_the_plan_which_says_so(
    dagbag: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In every DAG with a form, and before anything of that place is read."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path / "data"))
    monkeypatch.delenv("CORPUSMILL_FORM_ROOTS", raising=False)
    for dag_id, task_id, form in (
        ("build_dataset", "plan", {"source_paths": [str(tmp_path / "auth")], "text_field": "admin"}),
        ("dataset__demo", "plan", {"tokenizer_file": "/proc/self/environ"}),
        ("reprocess_shard", "plan", {"work_folder": str(tmp_path / "auth")}),
        ("check_workers", "begin", {"work_folder": str(tmp_path / "auth")}),
    ):
        dag = dagbag.dags[dag_id]
        task = dag.get_task(task_id).python_callable
        handed_on: dict[str, str] = {}
        context = {"ti": SimpleNamespace(xcom_push=handed_on.__setitem__), "params": {}}
        if "get_current_context" in task.__globals__:
            monkeypatch.setitem(task.__globals__, "get_current_context", lambda context=context: context)
        with pytest.raises(ConfigError, match="outside the configured roots") as caught:
            task(params=dag.params.dump() | form)
        assert handed_on.get("why", str(caught.value)) == str(caught.value)
    assert not (tmp_path / "auth").exists()


def test_form_without_the_demos_configuration_begins_with_another(
    airflow_database: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag

    dags = DEMO.parents[1]
    for name in ("web", "books", "No Dataset", "bad\udcff"):
        (tmp_path / f"{name}.yaml").touch()
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path))
    dag = BundleDagBag(str(dags / "dataset_dags.py"), bundle_path=dags).dags["build_dataset"]
    assert dag.params["configuration"] == "books"
    assert dag.params.get_param("configuration").schema["enum"] == ["books", "web"]
    dag.params.validate()
