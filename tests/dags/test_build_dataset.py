"""The DAG as it is declared: form, order, retries, mapping."""

from __future__ import annotations

import copy
import inspect
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill import errors
from corpusmill.builds.chain import STEPS, all_tasks, needed_tasks
from corpusmill.builds.graph import GRAPH
from corpusmill.builds.reprocess import FIRST_STAGES
from corpusmill.config import load_config
from corpusmill.config.form import FIELDS, config_from_form
from corpusmill.errors import CorpusmillError, PermanentError, TransientError
from corpusmill_airflow.needed import APPROVAL_TASKS
from tests.dags.conftest import refusal_of

if TYPE_CHECKING:
    from airflow.sdk import DAG

DAGS = Path(__file__).resolve().parents[2] / "dags"
DEMO = DAGS / "datasets" / "demo.yaml"
DECIDED_BY_THE_RUN = {"dry_run", "approve_removal", "move_latest", "verify"}
ABOUT_THE_RUN = {"configuration", *DECIDED_BY_THE_RUN}
ERRORS = [item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, CorpusmillError)]


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
        assert param.schema["description_md"], name
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
        ("settings", "source: {endpoint_url: 'http://me:secret@store'}"),
        ("name", "Upper Case"),
    ],
)
def test_form_refuses_a_bad_value_before_a_run_starts(dag: DAG, name: str, value: Any) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        copy.deepcopy(dag.params).__setitem__(name, value)


def test_tasks_of_build_dataset_are_those_of_the_chain_and_of_the_run(dag: DAG) -> None:
    of_the_run = {"plan", "close", *APPROVAL_TASKS}
    assert set(dag.task_ids) == {*(item.name for item in all_tasks()), *of_the_run}
    assert set(GRAPH.names) == {stage for item in all_tasks() for stage in item.round.stages}


def test_tasks_follow_the_steps_in_the_order_of_the_dag_file(dag: DAG) -> None:
    listed = re.findall(r"^ +steps\.(\w+)\(\),", (DAGS / "build_dataset.py").read_text(), re.MULTILINE)
    assert [name for name in listed if name in STEPS] == list(STEPS)
    assert set(listed) == {"plan", *STEPS, *APPROVAL_TASKS}
    before: set[str] = set()
    for name in listed:
        tasks = {task_id for task_id in dag.task_ids if task_id.partition(".")[0] == name}
        assert tasks
        for task_id in tasks:
            assert before <= all_upstream(dag, task_id), task_id
        before |= tasks


@pytest.mark.parametrize("parts", [1, 2])
def test_stage_runs_no_earlier_than_the_stages_that_it_waits_for(dag: DAG, parts: int) -> None:
    """In the same task, or in one before it."""
    items = needed_tasks(load_config(DEMO), parts)
    at_work = {
        stage: [item for item in items if stage in item.stages(load_config(DEMO), parts)] for stage in GRAPH.names
    }
    for stage in GRAPH.names:
        for item in at_work[stage]:
            before = {item.name, *all_upstream(dag, item.name)}
            assert {other.name for earlier in GRAPH.before(stage) for other in at_work[earlier]} <= before, stage
    assert at_work["report"]


def test_rounds_of_a_step_follow_each_other_and_exports_run_side_by_side(dag: DAG) -> None:
    for step in STEPS.values():
        ids = [item.name for item in all_tasks() if item.step is step]
        for earlier, later in itertools.pairwise(ids):
            assert (earlier in all_upstream(dag, later)) is not step.beside, (earlier, later)


def test_steps_are_mapped_over_the_plan_and_show_what_they_ran(dag: DAG) -> None:
    mapped = {task.task_id: task for task in dag.tasks if task.is_mapped}
    assert set(mapped) == {item.name for item in all_tasks() if not item.round.alone}
    for task in mapped.values():
        assert "ran" in task.map_index_template
        assert "plan" in task.upstream_task_ids


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


@pytest.mark.parametrize(
    "error", [OSError("disk"), MemoryError(), TransientError("store.busy: busy"), RuntimeError("unknown")]
)
def test_retry_policy_retries_what_is_not_known_to_be_permanent(dag: DAG, error: BaseException) -> None:
    from airflow.sdk import RetryAction

    assert dag.get_task("tokenize").retry_policy.evaluate(error, 1, 3).action is RetryAction.RETRY


def test_dag_lets_the_queue_be_longer_than_the_workers(dag: DAG) -> None:
    assert dag.max_active_tasks >= 64
    assert dag.tags == {"corpusmill"}
    assert dag.schedule is None
    assert dag.doc_md


def test_form_of_reprocess_shard_offers_steps_and_then_the_stages_inside_of_them(dagbag: Any) -> None:
    offered = dagbag.dags["reprocess_shard"].params.get_param("stage").schema["enum"]
    steps = [name for name in offered if name in STEPS]
    assert steps == list(FIRST_STAGES)
    assert offered[: len(steps)] == steps
    assert set(offered) == {*steps, *GRAPH.per_shard}


@pytest.mark.parametrize("shard", [10**40, 1e40, -1, "1"])
def test_form_of_reprocess_shard_refuses_a_number_that_no_shard_has(dagbag: Any, shard: object) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        dagbag.dags["reprocess_shard"].params.get_param("shard").resolve(shard)


def test_reprocess_shard_refuses_a_field_that_its_form_does_not_have(
    dagbag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("form.unknown_field", "did you mean shard")
    refusal_of(dagbag.dags["reprocess_shard"], {"shards": 3}, monkeypatch, *words)


def test_form_that_names_a_place_beyond_the_data_folder_fails_the_plan_which_says_so(
    dagbag: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In every DAG with a form, and before anything of that place is read."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path / "data"))
    monkeypatch.delenv("CORPUSMILL_FORM_ROOTS", raising=False)
    for dag_id, task_id, form in (
        ("build_dataset", "plan", {"source_paths": [str(tmp_path / "auth")], "text_field": "admin"}),
        ("dataset__demo", "plan", {"settings": "tokenizer: {file: /proc/self/environ}"}),
        ("reprocess_shard", "plan", {"work_folder": str(tmp_path / "auth")}),
        ("check_workers", "begin", {"work_folder": str(tmp_path / "auth")}),
    ):
        refusal_of(dagbag.dags[dag_id], form, monkeypatch, "form.place_outside_roots", task=task_id)
    assert not (tmp_path / "auth").exists()


def test_form_without_the_demos_configuration_begins_with_another(
    airflow_database: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag

    dags = DEMO.parents[1]
    for name in ("web", "books", "No Dataset", "bad\udcff"):
        (tmp_path / f"{name}.yaml").touch()
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path))
    dag = BundleDagBag(str(dags / "build_dataset.py"), bundle_path=dags).dags["build_dataset"]
    assert dag.params["configuration"] == "books"
    assert dag.params.get_param("configuration").schema["enum"] == ["books", "web"]
    dag.params.validate()
