"""Dataset configurations as DAGs: schedule, owner, words, limits; bad files; files that are deleted."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpusmill.builds.chain import needed_tasks
from corpusmill.builds.graph import open_build
from corpusmill.config import check_config
from corpusmill_airflow.folder import named_folder
from tests.dags.conftest import refusal_of
from tests.dags.live import tiny
from tests.dags.seeded import build_shards
from tests.system.corpus import write_corpus

DAGS = Path(__file__).resolve().parents[2] / "dags"
DEMO = (DAGS / "datasets" / "demo.yaml").read_text()
OWN_STEPS = Path(__file__).resolve().parents[1] / "search" / "own" / "own_steps.py"
SCHEDULED = """
dag:
  schedule: "30 2 * * 1"
  start: 2026-01-05
  catchup: true
  owner: data-team
  tags: [web, monthly]
  doc: All the web there is.
  deadline: 12h
  task_timeout: 3h
  approve_removal: true
  queues: {tokenize: fast_disks}
"""


class Parsed:
    """Both DAG files parsed. The one with the DAGs must never have an import error: Airflow would forget its DAGs."""

    def __init__(self, made: Any, refused: Any) -> None:
        assert made.import_errors == {}
        assert refused.dags == {}
        self.dags = {name: dag for name, dag in made.dags.items() if name.startswith("dataset__")}
        self.import_errors = refused.import_errors


@pytest.fixture
def parse(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that writes configurations (a name, a text) into a folder and parses the DAG file over it."""
    from airflow.dag_processing.dagbag import BundleDagBag

    folder = tmp_path / "datasets"
    folder.mkdir()
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(folder))
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))

    def bag(**texts: str) -> Any:
        for name, text in texts.items():
            (folder / f"{name}.yaml").write_text(text)
        return Parsed(
            BundleDagBag(str(DAGS / "build_dataset.py"), bundle_path=DAGS),
            BundleDagBag(str(DAGS / "refused_configurations.py"), bundle_path=DAGS),
        )

    return bag


def named(name: str, more: str = "") -> str:
    return DEMO.replace("name: demo", f"name: {name}") + more


SMTP = "airflow.providers.smtp.notifications.smtp:SmtpNotifier"


def notified(use: str, key: str = "on_failure", **arguments: Any) -> str:
    return f"\ndag:\n  {key}: [{{use: '{use}', with: {arguments}}}]\n"


def error_of(bag: Any) -> str:
    (printed,) = bag.import_errors.values()
    return str(printed)


def test_dag_section_becomes_schedule_owner_tags_and_words(parse: Callable[..., Any]) -> None:
    from airflow.sdk import CronTriggerTimetable

    bag = parse(oscar=named("oscar", SCHEDULED))
    assert bag.import_errors == {}
    dag = bag.dags["dataset__oscar"]
    assert isinstance(dag.timetable, CronTriggerTimetable)
    assert dag.timetable.expression == "30 2 * * 1"
    assert str(dag.start_date.date()) == "2026-01-05"
    assert dag.catchup
    assert dag.tags == {"corpusmill", "web", "monthly"}
    assert dag.doc_md.startswith("All the web there is.")
    assert "minimum_bytes: 200" in dag.doc_md
    assert dag.max_active_runs == 1
    tokenize = dag.get_task("tokenize")
    assert tokenize.owner == "data-team"
    assert tokenize.queue == "fast_disks"
    assert tokenize.execution_timeout == timedelta(hours=3)
    assert dag.params["approve_removal"] is True
    assert [alert.interval for alert in dag.deadline] == [timedelta(hours=12)]
    assert [alias.name for alias in dag.get_task("report").outlets] == ["corpusmill datasets"]


def test_dag_is_parsed_without_a_look_at_its_datasets_shards(parse: Callable[..., Any], tmp_path: Path) -> None:
    """So it takes as long for a thousand as for one."""
    build_shards(tmp_path, 3)
    seen: list[str] = []
    listening = True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event in {"open", "os.listdir", "os.scandir"}:
            seen.append(str(arguments[0]))

    sys.addaudithook(note)
    config = named("pages").replace("paths: [sample]", "paths: [corpus]")
    assert "dataset__pages" in parse(pages=config).dags
    listening = False
    inside = {Path(path).relative_to(tmp_path).parts[0] for path in seen if Path(path).is_relative_to(tmp_path)}
    assert inside == {"datasets"}


def test_words_name_the_folder_that_is_in_use(
    parse: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = tmp_path / ".corpusmill" / "running"
    copies.mkdir(parents=True)
    (copies / "gone.yaml").write_text(named("gone"))
    folder = tmp_path / "datasets"
    dags = parse(web=named("web")).dags
    assert f"({folder}/web.yaml)" in dags["dataset__web"].description
    assert f"`{folder}/gone.yaml`" in dags["dataset__gone"].doc_md
    monkeypatch.delenv("CORPUSMILL_DATASETS")
    assert named_folder(folder) == "datasets"  # below the root folder
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path / "elsewhere"))
    assert named_folder(tmp_path / "0123abcd" / "datasets") == "datasets"  # no checkout of a DAG bundle
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    assert named_folder(tmp_path / "dags" / "datasets") == "dags/datasets"


def test_dataset_after_others_is_scheduled_by_their_assets(parse: Callable[..., Any]) -> None:
    bag = parse(first=named("first"), second=named("second", "\ndag: {after: [first]}\n"))
    assert bag.import_errors == {}
    condition = bag.dags["dataset__second"].timetable.asset_condition
    assert [asset.uri for asset in condition.objects] == ["corpusmill://datasets/first"]
    assert bag.dags["dataset__first"].schedule is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEMO.replace("minimum_bytes: 200", "minimum_bites: 200"), ["minimum_bites", "did you mean minimum_bytes"]),
        (DEMO, ["airflow.file_name", "name: bad"]),
        (named("bad", "\ndag: {schedule: sometimes}\n"), ["dag.schedule", "five cron fields"]),
        (named("bad", "\ndag: {catchup: true}\n"), ["needs schedule and start"]),
        (named("bad", "\ndag: {queues: {tokenise: big}}\n"), ["there is no such step", "tokenize"]),
        (named("bad", "\ndag: {schedule: '0 0 30 2 *'}\n"), ["Airflow refuses the section dag", "BadDate"]),
        (named("bad", "\ndag: {after: [bad]}\n"), ["dag.after contains the dataset itself"]),
        (named("bad", "\ndag: {deadline: 99999999999d}\n"), ["dag.deadline"]),
        (named("bad", notified("nowhere.to:Be")), ["dag.on_failure[0].use: nowhere.to:Be", "No module named"]),
        (named("bad", notified("airflow.sdk:NoNotifier")), ["cannot be imported", "NoNotifier"]),
        (named("bad", notified("json:dumps")), ["not a notifier", "json:dumps"]),
        (named("bad", notified("airflow.sdk:BaseNotifier")), ["not a notifier"]),  # it says nothing itself
        (named("bad", notified(SMTP, to="a@b.c", colour="red")), ["does not take its arguments", "colour"]),
        (named("bad", notified(SMTP, "on_late", to=["a"], note="red") + "  deadline: 1h\n"), ["dag.on_late[0].with"]),
        ("name: [", ["not valid YAML"]),
        ("!!python/object/apply:os.system ['true']", ["not valid YAML"]),
    ],
)
def test_bad_file_is_an_import_error_with_file_key_and_fix_and_its_neighbour_stays(
    parse: Callable[..., Any], text: str, message: list[str]
) -> None:
    bag = parse(bad=text, good=named("good"))
    error = error_of(bag)
    assert "bad.yaml" in error
    for words in message:
        assert words in error
    assert "Traceback" not in error
    assert set(bag.dags) == {"dataset__good"}


def test_two_bad_files_are_both_named(parse: Callable[..., Any]) -> None:
    error = error_of(parse(one="name: one", two="name: two", good=named("good")))
    assert "one.yaml" in error
    assert "two.yaml" in error


def test_deleted_file_with_a_run_under_way_keeps_its_dag_until_the_run_has_ended(
    parse: Callable[..., Any], tmp_path: Path
) -> None:
    text = named("oscar", SCHEDULED)
    parse()
    from corpusmill_airflow import running

    running.keep_copy("oscar", text)
    dag = parse().dags["dataset__oscar"]
    assert "deleted or broken during a run" in dag.doc_md
    assert dag.schedule is None
    (tmp_path / ".corpusmill/running/oscar.yaml").unlink()
    assert parse().dags == {}


def test_spoilt_file_with_a_run_under_way_is_an_error_and_keeps_its_dag(parse: Callable[..., Any]) -> None:
    parse()
    from corpusmill_airflow import running

    running.keep_copy("oscar", named("oscar"))
    bag = parse(oscar="name: oscar")
    assert "oscar.yaml" in error_of(bag)
    assert set(bag.dags) == {"dataset__oscar"}


def test_unreadable_copy_of_a_run_under_way_is_listed_and_the_others_stand(parse: Callable[..., Any]) -> None:
    parse()
    from corpusmill_airflow import running

    running.keep_copy("oscar", "")
    bag = parse(oscar="name: [", good=named("good"))
    assert set(bag.dags) == {"dataset__good"}
    assert str(running.copies() / "oscar.yaml") in error_of(bag)
    assert "datasets/oscar.yaml" in error_of(bag)


def test_fault_in_making_one_dag_leaves_the_others(parse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever kind: MemoryError stands for what nobody thought of."""
    from corpusmill_airflow import folder_dags

    usual = folder_dags.schedule_arguments

    def faulty(config: Any, *arguments: Any, **named_arguments: Any) -> Any:
        if config.name == "bad":
            raise MemoryError
        return usual(config, *arguments, **named_arguments)

    monkeypatch.setattr(folder_dags, "schedule_arguments", faulty)
    bag = parse(bad=named("bad"), good=named("good"))
    assert set(bag.dags) == {"dataset__good"}
    assert "bad.yaml" in error_of(bag)


def test_tasks_of_a_dataset_are_made_once_though_two_files_look_at_its_configuration(
    parse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill_airflow import dataset_dag

    made, usual = [], dataset_dag.chain_steps
    monkeypatch.setattr(dataset_dag, "chain_steps", lambda *arguments: made.append(1) or usual(*arguments))
    bag = parse(one=named("one"), two=named("two"), bad="name: bad")
    assert set(bag.dags) == {"dataset__one", "dataset__two"}
    assert "bad.yaml" in error_of(bag)
    assert len(made) == 2 + len({"build_dataset", "forget_documents", "reprocess_shard"})


def test_datasets_that_wait_for_each_other_are_an_error_and_keep_their_dags(parse: Callable[..., Any]) -> None:
    bag = parse(
        one=named("one", "\ndag: {after: [two, other]}\n"),
        two=named("two", "\ndag: {after: [one], schedule: '@daily'}\n"),
        other=named("other"),
        last=named("last", "\ndag: {after: [one]}\n"),
    )
    error = error_of(bag)
    assert "wait for each other in a cycle" in error
    assert "one -> two -> one" in error or "two -> one -> two" in error
    assert "last.yaml" not in error
    assert bag.dags["dataset__one"].schedule is None
    assert bag.dags["dataset__two"].timetable.expression == "0 0 * * *"
    assert "wait for each other" in bag.dags["dataset__two"].doc_md
    assert bag.dags["dataset__last"].schedule is not None


def test_dataset_that_waits_for_an_unknown_one_says_so(parse: Callable[..., Any]) -> None:
    bag = parse(one=named("one", "\ndag: {after: [typo, two]}\n"), two=named("two"))
    assert bag.import_errors == {}
    assert "waits for `typo`, which has no configuration" in bag.dags["dataset__one"].doc_md
    assert "waits for" not in bag.dags["dataset__two"].doc_md


def test_notifiers_are_airflows_callbacks_and_a_late_run_is_the_triggerers(parse: Callable[..., Any]) -> None:
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    section = {
        "deadline": "2h",
        "on_failure": [{"use": SMTP, "with": {"to": "team@example.org", "subject": "{{ dag_run.run_id }} failed"}}],
        "on_late": [{"use": SMTP, "with": {"to": "late@example.org"}}],
    }
    bag = parse(web=named("web", "\n" + yaml.safe_dump({"dag": section})), other=named("other"))
    assert bag.import_errors == {}
    dag = bag.dags["dataset__web"]
    (notifier,) = dag.on_failure_callback
    assert isinstance(notifier, SmtpNotifier)
    assert (notifier.to, notifier.subject) == ("team@example.org", "{{ dag_run.run_id }} failed")
    assert dag.on_success_callback is None
    (alert,) = dag.deadline
    assert alert.callback.kwargs["seconds"] == 7200
    assert alert.callback.kwargs["notifiers"] == section["on_late"]
    assert bag.dags["dataset__other"].on_failure_callback is None


def test_notifier_whose_module_is_a_script_that_ends_the_process_is_refused_and_its_neighbour_stays(
    parse: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_script.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    bag = parse(bad=named("bad", notified("a_script:Tell")), good=named("good"))
    assert set(bag.dags) == {"dataset__good"}
    assert "SystemExit" in error_of(bag)


def test_connections_that_airflow_lacks_are_named_in_the_words_of_their_dags_alone(
    parse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill_airflow import notifiers

    notifiers._is_known.cache_clear()
    monkeypatch.setenv("AIRFLOW_CONN_MAIL", "smtp://mail.example.org")
    known = notified(SMTP, to="a@b.c", smtp_conn_id="mail") + "  connections: {s3: nobodys}\n"
    unknown = notified(SMTP, "on_success", to="a@b.c", smtp_conn_id="post")
    template = notified(SMTP, to="a@b.c", smtp_conn_id="{{ dag.dag_id }}")
    bag = parse(one=named("one", known), two=named("two", unknown), three=named("three", template))
    assert bag.import_errors == {}
    words = {name: dag.doc_md.partition("```yaml")[0] for name, dag in bag.dags.items()}
    assert "no connection `nobodys`" in words["dataset__one"]
    assert "no connection `post`" in words["dataset__two"]
    assert "no connection" not in words["dataset__three"]


@pytest.mark.slow
def test_copy_of_a_run_that_built_nothing_goes_when_the_run_ends(parse: Callable[..., Any]) -> None:
    dag = parse(oscar=named("oscar").replace("paths: [sample]", "paths: [nowhere]")).dags["dataset__oscar"]
    from corpusmill_airflow import running

    for task in dag.tasks:
        task.retries = 0
    run = dag.test(run_conf={})
    assert run.state == "failed"
    assert run.get_task_instance("report").state != "success"
    assert run.get_task_instance("close").state == "success"
    assert not (running.copies() / "oscar.yaml").exists()


RESERVED = """
steps: [{use: "own_steps:replaced", with: {word: water, by: wine}, before: writeback}]
budget: {corpus: 2 epochs}
card: {}
forget: {path: takedowns.jsonl, copies: also}
keep_versions: 3
reclaim: eager
"""


@pytest.mark.parametrize(
    ("dag_id", "form"), [("dataset__oscar", {}), ("build_dataset", {"configuration": "oscar"})], ids=["own", "form"]
)
def test_run_builds_the_configuration_to_the_last_key(
    parse: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dag_id: str, form: dict[str, Any]
) -> None:
    """Also the keys that no form sets."""
    from corpusmill.config import load_config
    from tests.dags.conftest import dags_below

    write_corpus(tmp_path / "corpus", documents=20)
    (tmp_path / "takedowns.jsonl").write_text('{"id": "none of them"}\n')
    shutil.copy(OWN_STEPS, tmp_path)
    parse(oscar=named("oscar").replace("paths: [sample]", "paths: [corpus]") + RESERVED)
    run = dags_below(tmp_path, monkeypatch)(dag_id, **form | {"dry_run": True})
    assert run.state == "success"
    (receipt,) = (tmp_path / "work" / "oscar" / "plan").glob("*/receipt.json")
    planned = open_build(receipt).config
    file = load_config(tmp_path / "datasets" / "oscar.yaml")
    assert planned.model_copy(update={"lock": None}) == file.model_copy(update={"dag": None})


def test_plan_refuses_memory_that_the_pool_does_not_have_whatever_the_form_says(
    parse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks' slots are the configuration's: a form that asks for less cannot make them fit."""
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "24")
    dag = parse(oscar=named("oscar").replace("memory: 128MiB", "memory: 64GiB")).dags["dataset__oscar"]
    form = {"settings": "dedup: {memory: 1GiB}"}
    why = refusal_of(dag, form, monkeypatch, "run.too_little_memory")
    assert "dedup.memory" in why
    assert "at most 24 GiB" in why


DECONTAMINATED = {"settings": "decontamination: {benchmarks: [{name: b, path: corpus}], action: remove}"}


@pytest.mark.parametrize(
    ("dedup", "form", "task"),
    [
        ("none", {"approve_removal": True, **DECONTAMINATED}, "approve_decontamination"),
        ("remove", {"approve_removal": True}, "approve_removal"),
        ("none", {"dedup_mode": "remove", "minimum_bytes": 100}, "find_ranges.match"),
        ("none", {"export_megatron": "on"}, "export.megatron"),
    ],
)
def test_form_that_asks_for_what_the_dag_has_no_task_for_is_refused_by_plan_which_says_where_to_switch_it_on(
    parse: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dedup: str,
    form: dict[str, Any],
    task: str,
) -> None:
    write_corpus(tmp_path / "source", documents=2)
    values = tiny("small", dedup={"mode": dedup} | ({"minimum_bytes": 100} if dedup == "remove" else {}))
    dag = parse(small=yaml.safe_dump(values)).dags["dataset__small"]
    why = refusal_of(dag, form, monkeypatch, "airflow.task_missing")
    assert task in why
    assert "switch it on in small.yaml" in why
    assert "trigger build_dataset" in why
    assert not (tmp_path / "work").exists()


MINIMAL: dict[str, Any] = {"dedup": {"mode": "remove", "minimum_bytes": 100}, "exports": {"megatron": {}}}


def test_dag_of_a_minimal_dataset_has_at_most_twenty_tasks_seventeen_deep(parse: Callable[..., Any]) -> None:
    """Each is one task instance where the dataset is smaller than two parts."""
    dags = parse(demo=DEMO, small=yaml.safe_dump(tiny("small", **MINIMAL))).dags
    small = dags["dataset__small"]
    assert len(small.tasks) <= 20
    needed = needed_tasks(check_config(tiny("small", **MINIMAL), where="a test"))
    assert set(small.task_ids) <= {
        "plan",
        "close",
        *(item.name for item in needed),
        *(item.step.name for item in needed),
    }
    assert len(dags["dataset__demo"].tasks) <= 24
    depth: dict[str, int] = {}
    for task in small.topological_sort():
        depth[task.task_id] = 1 + max((depth[before] for before in task.upstream_task_ids), default=0)
    assert max(depth.values()) <= 17  # with `plan` and `close`


def test_datasets_do_not_wait_for_each_other_and_runs_of_one_do(parse: Callable[..., Any]) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag

    assert parse(good=named("good")).dags["dataset__good"].max_active_runs == 1
    dags = BundleDagBag(str(DAGS / "build_dataset.py"), bundle_path=DAGS).dags
    for dag_id in ("build_dataset", "reprocess_shard", "forget_documents"):
        assert dags[dag_id].max_active_runs > 1, dag_id


def test_task_process_parses_only_its_own_dataset(parse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "dataset__one")
    assert set(parse(one=named("one"), two=named("two"), bad="name: bad").dags) == {"dataset__one"}
