"""A real Airflow: clearing, backfills, approvals, deleted files, logs; killed schedulers and tasks, a full disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import zstandard

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from deploy.sample_corpus import write_sample_corpus
from tests.dags.live import LONGEST_SECONDS, Live, free_port, tiny, wait_for_question
from tests.disks import enlarge, small_disk
from tests.system.corpus import lines_of, make_documents

pytestmark = pytest.mark.slow

# Two notifiers: the triggerer awaits one, and calls the other in a thread.
TELLING = """
from airflow.sdk import BaseNotifier

class Tell(BaseNotifier):
    template_fields = ("text",)
    def __init__(self, path, text, **more):
        super().__init__(**more)
        self.path, self.text = path, text
    def notify(self, context):
        with open(self.path, "a") as file:
            file.write(self.text + "\\n")

class TellAsync(Tell):
    async def async_notify(self, context):
        self.notify(context)
"""
PORT = free_port()
SCHEDULE = {"schedule": "@daily", "start": "2026-01-01"}
TINY = "dataset__tiny"


def told(live: Live) -> dict[str, Any]:
    """Notifiers of a section `dag` that write into the file `told`."""

    def tell(what: str, kind: str = "Tell") -> dict[str, Any]:
        text = f"{{{{ dag_run.dag_id }}}} {{{{ dag_run.run_id }}}} {what}"
        return {"use": f"telling:{kind}", "with": {"path": str(live.folder / "told"), "text": text}}

    late = [{"use": "telling:Tell", "with": {"path": "/nowhere/at/all", "text": ""}}, tell("late")]
    return {"on_failure": [tell("failed")], "on_success": [tell("done")], "on_late": [*late, tell("late", "TellAsync")]}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Airflow with some dataset configurations, one of them spoilt."""
    live = Live(tmp_path_factory.mktemp("live"), PORT)
    live.configure(tiny("tiny", dag=SCHEDULE))
    (live.folder / "plugins" / "telling.py").write_text(TELLING)
    live.configure(tiny("late", dag={"deadline": "1m", "approve_removal": True} | told(live)))
    live.configure(tiny("queued", dag={"deadline": "1m"} | told(live)))
    live.configure(tiny("taken", forget={"path": "taken.jsonl", "copies": "also"}))
    (live.folder / "taken.jsonl").touch()
    (live.folder / "dags" / "datasets" / "spoilt.yaml").write_text("name: spoilt\n")
    live.configure(tiny("untold", dag={"on_failure": [{"use": "not.installed:Notifier"}]}))
    live.configure(tiny("unknown", dag={"connections": {"s3": "nowhere"}}))
    live.said = live.server("up")  # type: ignore[attr-defined]
    live.login()
    live.trigger("dataset__late", "asking")  # waits for approval: a minute is over long before the last test
    live.trigger("dataset__queued", "waiting", paused=True)
    yield live
    live.server("down")


@pytest.fixture(scope="module")
def built(live: Live) -> str:
    """The first run of the dataset: the one that its schedule makes as soon as it may."""
    live.wait_until_parsed(TINY)

    def scheduled() -> Any:
        return live.call("GET", f"/api/v2/dags/{TINY}/dagRuns?limit=1")["dag_runs"]

    (first,) = live.wait_for("the scheduled run", scheduled)
    assert first["run_type"] == "scheduled"
    run = str(first["dag_run_id"])
    assert live.finish(TINY, run) == "success"
    return run


def receipts(live: Live, stage: str) -> dict[str, int]:
    """{unit: when its receipt was written} of every step of a stage."""
    actual = (live.folder / "work" / "tiny" / stage).glob("*/receipt.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in actual}


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def outputs(live: Live) -> dict[str, bytes]:
    return files_below((live.folder / "outputs" / "tiny" / "latest").resolve())


def rows_of_datasets(live: Live) -> dict[str, str]:
    """{dataset: its row on the page of all datasets}."""
    page = live.client.get("/dataset-report/datasets").text
    return dict(re.findall(r'<tr data-name="(\w+)">(.*?)</tr>', page, re.DOTALL))


def test_spoilt_file_is_shown_as_an_import_error_and_its_neighbour_builds(live: Live, built: str) -> None:
    (error,) = live.call("GET", "/api/v2/importErrors")["import_errors"]
    assert "spoilt.yaml" in error["stack_trace"]
    assert "required, and has no default" in error["stack_trace"]
    assert "untold.yaml" in error["stack_trace"]
    assert "a notifier cannot be imported" in error["stack_trace"]
    assert rows_of_datasets(live)["untold"].count("configuration has an error") == 1
    assert "has an error" not in rows_of_datasets(live)["tiny"]
    assert "no connection `nowhere`" in live.call("GET", "/api/v2/dags/dataset__unknown/details")["doc_md"]


def test_finished_build_is_an_asset_event_with_digests_and_counts(live: Live, built: str) -> None:
    (event,) = live.call("GET", "/api/v2/assets/events?order_by=-timestamp&limit=1")["asset_events"]
    assert event["uri"] == "corpusmill://datasets/tiny"
    assert event["extra"]["tokens"] > 0
    assert set(event["extra"]["digests"]) >= {"nanoset"}


def test_cleared_part_is_done_again_with_what_follows_and_nothing_before(live: Live, built: str) -> None:
    before = {stage: receipts(live, stage) for stage in ("index", "tokenize", "scatter")}
    made = outputs(live)
    body = {
        "dry_run": False,
        "dag_run_id": built,
        "task_ids": [["tokenize", 0]],
        "include_downstream": True,
        "only_failed": False,
    }
    live.call("POST", f"/api/v2/dags/{TINY}/clearTaskInstances", body)
    assert live.finish(TINY, built) == "success"
    tries = {place: task["try_number"] for place, task in live.tasks(TINY, built).items()}
    assert (tries["tokenize", 0], tries["index.read", 0], tries["report", -1]) == (2, 1, 2)
    after = {stage: receipts(live, stage) for stage in before}
    assert after["index"] == before["index"]
    assert len(before["tokenize"]) > 1
    for stage in ("tokenize", "scatter"):
        assert all(after[stage][name] != at for name, at in before[stage].items()), stage
    assert outputs(live) == made


def test_run_in_which_nothing_has_changed_ends_with_its_plan_and_sends_no_event(live: Live, built: str) -> None:
    events, made = events_of(live), receipts(live, "report")
    live.trigger(TINY, "unchanged")
    assert live.finish(TINY, "unchanged") == "success"
    instances = live.tasks(TINY, "unchanged")
    assert {task for (task, _), item in instances.items() if item["state"] == "success"} == {"plan", "close"}
    assert {item["state"] for item in instances.values()} == {"success", "skipped"}
    place = f"/api/v2/dags/{TINY}/dagRuns/unchanged/taskInstances/plan/xcomEntries/unchanged"
    assert Path(live.call("GET", place)["value"]).parent.name in made
    assert (events_of(live), receipts(live, "report")) == (events, made)


@pytest.mark.thorough
def test_backfill_over_dates_builds_each_and_new_files_only(live: Live, built: str) -> None:
    before = receipts(live, "tokenize")
    extra = live.folder / "source" / "z-new.jsonl"
    extra.write_text("".join(json.dumps({"text": f"a new document {number} " * 40}) + "\n" for number in range(60)))
    dates = ["--from-date", "2026-03-01", "--to-date", "2026-03-02"]
    live.command("backfill", "create", "--dag-id", TINY, *dates, "--max-active-runs", "1")
    actual = live.call("GET", f"/api/v2/dags/{TINY}/dagRuns?run_type=backfill&order_by=logical_date")["dag_runs"]
    assert [item["logical_date"][:10] for item in actual] == ["2026-03-01", "2026-03-02"]
    first, second = (str(item["dag_run_id"]) for item in actual)
    assert live.finish(TINY, first) == "success"
    after = receipts(live, "tokenize")
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
    assert live.finish(TINY, second) == "success"
    assert receipts(live, "tokenize") == after  # it found everything done


def test_scheduler_that_is_killed_comes_back_for_the_runs_of_the_tests_below(live: Live, built: str) -> None:
    (scheduler,) = live.processes("scheduler", "--skip-serve-logs")
    scheduler.kill()
    killed = datetime.now(UTC)

    def heartbeat() -> str:
        return str(live.call("GET", "/api/v2/monitor/health")["scheduler"]["latest_scheduler_heartbeat"])

    live.wait_for("a heartbeat of another scheduler", lambda: datetime.fromisoformat(heartbeat()) > killed)


def test_forgetting_begins_when_it_is_approved_and_not_before(live: Live) -> None:
    listed = live.folder / "taken.jsonl"
    form = {"configuration": "taken", "ids": "doc-3", "asked_by": "case 7", "purge": False}
    live.trigger("forget_documents", "taking", **form)
    place = wait_for_question(live, "forget_documents", "taking", "approve_forgetting")
    assert listed.read_text() == ""
    assert not (live.folder / "work" / "taken").exists()
    live.call("PATCH", place, {"chosen_options": ["Approve"], "params_input": {}})
    assert live.finish("forget_documents", "taking") == "success"
    assert [json.loads(line)["id"] for line in listed.read_text().splitlines()] == ["doc-3"]
    (gone,) = map(json.loads, (live.folder / "work" / "taken" / "forgotten.jsonl").read_text().splitlines())
    latest = (live.folder / "outputs" / "taken" / "latest").resolve().name
    assert (gone["id"], gone["asked_by"], gone["version"]) == ("doc-3", "case 7", latest)


def test_approval_shows_what_would_go_and_a_refusal_stops_the_run(live: Live, built: str) -> None:
    dag = "build_dataset"  # which has the task, whatever the configuration says
    live.trigger(dag, "asking", configuration="tiny", approve_removal=True, minimum_bytes=90)
    place = wait_for_question(live, dag, "asking", "approve_removal")
    assert "bytes of text" in live.call("GET", place)["body"]
    live.call("PATCH", place, {"chosen_options": ["Reject"], "params_input": {}})
    assert live.finish(dag, "asking") == "failed"
    states = {place: task["state"] for place, task in live.tasks(dag, "asking").items()}
    assert states["approve_removal", -1] == "failed"
    assert states["upload", -1] == "upstream_failed"


def latest_of(live: Live) -> str:
    return (live.folder / "outputs" / "tiny" / "latest").resolve().name


def versions_of(live: Live) -> set[str]:
    folder = live.folder / "outputs" / "tiny"
    return {path.parent.name for path in folder.glob("*/dataset.json") if not path.parent.is_symlink()}


def events_of(live: Live) -> int:
    return int(live.call("GET", "/api/v2/assets/events?limit=1")["total_entries"])


def clear(live: Live, run: str, *tasks: Any, downstream: bool = False) -> None:
    body = {"dry_run": False, "dag_run_id": run, "task_ids": list(tasks), "only_failed": False}
    live.call("POST", f"/api/v2/dags/{TINY}/clearTaskInstances", body | {"include_downstream": downstream})


def test_run_with_other_settings_than_the_file_leaves_latest_and_starts_nobody(live: Live, built: str) -> None:
    latest, events, versions = latest_of(live), events_of(live), versions_of(live)
    live.trigger(TINY, "tried", seed="8")
    assert live.finish(TINY, "tried") == "success"
    assert (latest_of(live), events_of(live)) == (latest, events)
    assert len(versions_of(live) - versions) == 1  # delivered all the same
    assert "shuffle.seed" in live.log(TINY, "tried", "report")
    assert "latest does not move" in live.log(TINY, "tried", "upload")


def test_missing_pool_is_said_on_the_pages_and_the_run_goes_on_once_it_is_there(live: Live, built: str) -> None:
    pool = live.call("GET", "/api/v2/pools/ram_gib")
    live.call("DELETE", "/api/v2/pools/ram_gib")
    live.trigger(TINY, "poolless", seed="9")
    words = "Airflow has no pool ram_gib"
    live.wait_for(
        "a task of the pool",
        lambda: (
            "scheduled"
            in {task["state"] for task in live.tasks(TINY, "poolless").values() if task["pool"] == "ram_gib"}
        ),
    )
    for page in (f"{TINY}/poolless", "datasets"):
        assert words in live.client.get(f"/dataset-report/{page}").text, page
    live.call("POST", "/api/v2/pools", {key: pool[key] for key in ("name", "slots", "include_deferred")})
    assert live.finish(TINY, "poolless") == "success"
    assert words not in live.client.get("/dataset-report/datasets").text


def test_plan_cleared_alone_fails_the_next_task_with_words_and_with_downstream_all_is_well(
    live: Live, built: str
) -> None:
    latest = latest_of(live)
    (live.folder / "source" / "zz-newer.jsonl").write_text(json.dumps({"text": "one more document " * 40}) + "\n")
    clear(live, "tried", "plan")
    assert live.finish(TINY, "tried") == "success"
    clear(live, "tried", ["tokenize", 0], downstream=True)
    assert live.finish(TINY, "tried") == "failed"
    # It is given the new plan, of which nothing has run.
    printed = live.log(TINY, "tried", "tokenize", map_index=0, try_number=2)
    assert "has not finished, but a later step needs it" in printed
    assert "clear this run from its first task on" in printed
    clear(live, "tried", "plan", downstream=True)
    assert live.finish(TINY, "tried") == "success"
    assert latest_of(live) == latest


def test_runs_of_different_datasets_do_not_wait_for_each_other(live: Live, built: str) -> None:
    names = ("side", "by")
    for name in names:
        live.trigger("build_dataset", name, configuration="tiny", name=name)
    assert [live.finish("build_dataset", name) for name in names] == ["success", "success"]
    runs = [live.call("GET", f"/api/v2/dags/build_dataset/dagRuns/{name}") for name in names]
    assert max(run["start_date"] for run in runs) < min(run["end_date"] for run in runs)
    for name in names:
        folder = live.folder / "outputs" / name / "latest"
        assert {path.name for path in (folder / "nanoset").iterdir()}


def test_late_run_and_its_failure_are_told_and_a_run_in_the_queue_is_not_late(live: Live) -> None:
    lines = live.folder / "told"
    late, run = "dataset__late asking late", "/api/v2/dags/dataset__{}/dagRuns/{}"

    def said() -> list[str]:
        return lines.read_text().splitlines() if lines.exists() else []

    live.wait_for("the alerts", lambda: said().count(late) == 2)
    printed = "the dataset late is late: asking has not ended within 0:01:00 (dag.deadline)"
    logs = live.folder / ".airflow"
    live.wait_for("the log", lambda: any(printed in path.read_text(errors="replace") for path in logs.rglob("*.log")))
    # Airflow's own list counts from when a run was queued.
    deadlines = run.replace("/api/v2", "/ui").format("queued", "waiting") + "/deadlines"
    live.wait_for("Airflow's list", lambda: live.call("GET", deadlines)["deadlines"][0]["missed"])
    assert said() == [late, late]
    place = wait_for_question(live, "dataset__late", "asking", "approve_removal")
    live.call("PATCH", place, {"chosen_options": ["Reject"], "params_input": {}})
    live.wait_for("the failure", lambda: "dataset__late asking failed" in said())
    live.call("PATCH", "/api/v2/dags/dataset__queued?update_mask=is_paused", {"is_paused": False})
    assert live.finish("dataset__queued", "waiting") == "success"
    live.wait_for("the success", lambda: "dataset__queued waiting done" in said())
    assert len(said()) == 4


def test_forty_triggers_from_eight_clients_during_a_run_all_succeed(live: Live, built: str) -> None:
    """SQLite has one writer."""
    live.wait_until_parsed("dataset__taken", paused=True)
    live.trigger(TINY, "beside", seed="8")

    def trigger(number: int) -> int:
        body = {"dag_run_id": f"trigger-{number}", "logical_date": None, "conf": {}}
        return live.client.post("/api/v2/dags/dataset__taken/dagRuns", json=body).status_code

    with ThreadPoolExecutor(8) as clients:
        assert Counter(clients.map(trigger, range(40))) == {200: 40}
    assert live.finish(TINY, "beside") == "success"
    for number in range(40):
        live.call("DELETE", f"/api/v2/dags/dataset__taken/dagRuns/trigger-{number}")


def test_form_with_a_bad_value_is_refused_in_words_and_no_run_begins(live: Live) -> None:
    live.wait_until_parsed("build_dataset")
    body = {"dag_run_id": "bad", "logical_date": None, "conf": {"minimum_bytes": 3}}
    answer = live.client.post("/api/v2/dags/build_dataset/dagRuns", json=body)
    assert answer.status_code == 400
    assert "3 is less than the minimum of 7" in answer.text


def test_deleted_file_with_a_run_under_way_lets_the_run_finish(live: Live, built: str) -> None:
    path = live.configure(tiny("brief"))
    live.trigger("dataset__brief", "last")
    live.wait_for("the plan", lambda: live.tasks("dataset__brief", "last", "plan")["plan", -1]["state"] == "success")
    path.unlink()
    assert live.finish("dataset__brief", "last") == "success"


def test_password_is_printed_once_and_is_in_no_log_and_its_file_is_private(live: Live, built: str) -> None:
    path = live.folder / ".airflow" / "passwords.json"
    secret = json.loads(path.read_text())["admin"]
    assert secret in live.said  # type: ignore[attr-defined]
    assert secret not in live.server("up")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = [path for folder in (".airflow", "work", "outputs") for path in (live.folder / folder).rglob("*")]
    holding = [str(item) for item in kept if item.is_file() and item != path and secret.encode() in item.read_bytes()]
    assert holding == []


def test_airflow_listens_on_loopback_only_and_tells_nothing_without_a_login(live: Live) -> None:
    hexadecimal = f"{PORT:04X}"
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    listening = [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[1].endswith(f":{hexadecimal}")]
    assert listening == ["0100007F"]
    with httpx.Client(base_url=live.client.base_url, trust_env=False) as nobody:
        assert nobody.get(f"/api/v2/dags/{TINY}").status_code == 401
        assert nobody.get("/auth/token").status_code in {401, 403}


def settings(name: str, source: Path, root: Path, work: Path | None = None) -> dict[str, Any]:
    """One shard, and the engine that takes longest for it."""
    return {
        "name": name,
        "source": {"paths": [str(source)]},
        "dedup": {"mode": "none"},
        "tokenizer": {"name": "cl100k_base", "engine": "tiktoken"},
        "shuffle": {"seed": 3},
        "exports": {"nanoset": {}},
        "destinations": [{"path": str(root / "out")}],
        "work_folder": str(work or root / "work"),
    }


def built_alone(name: str, source: Path, root: Path) -> dict[str, bytes]:
    """What a build without Airflow, that nothing disturbs, makes of the same source."""
    build_dataset(check_config(settings(name, source, root), where="a test"), workers=1)
    return files_below(root / "out")


def test_killed_task_begins_its_shard_anew_and_the_run_delivers_the_same_bytes(live: Live, tmp_path: Path) -> None:
    source, dag = tmp_path / "corpus", "dataset__killed"
    write_sample_corpus(source, target_bytes=10_000_000, files=1)
    shutil.copy(source / "sample_000.jsonl.zst", source / "the_same_again.jsonl.zst")  # 20 MB: some seconds
    live.configure(settings("killed", source, tmp_path))
    live.trigger(dag, "once")

    def begun() -> list[Path]:
        """The tokens of a shard, some of which are written."""
        files = (tmp_path / "work" / "killed" / "tokenize").glob("*/tokens")
        return [path for path in files if path.stat().st_size]

    (tokens,) = live.wait_for("tokens", begun, every_seconds=0.2)
    running = live.tasks(dag, "once", "tokenize")["tokenize", 0]
    assert (running["state"], running["try_number"]) == ("running", 1)
    with tokens.open("rb") as left:  # so that no other file gets its inode
        os.kill(running["pid"], signal.SIGKILL)
        assert live.finish(dag, "once", seconds=2 * LONGEST_SECONDS) == "success"
        assert not os.path.samestat(os.fstat(left.fileno()), tokens.stat())
    assert live.tasks(dag, "once", "tokenize")["tokenize", 0]["try_number"] == 2
    assert files_below(tmp_path / "out") == built_alone("killed", source, tmp_path / "alone")


@pytest.mark.thorough
def test_killed_program_of_a_task_with_several_units_is_started_again_with_fewer_at_a_time(
    live: Live, tmp_path: Path
) -> None:
    source, dag = tmp_path / "corpus", "dataset__program"
    write_sample_corpus(source, target_bytes=20_000_000, files=4)
    plain = settings("program", source, tmp_path) | {"source": {"paths": [str(source)], "shard_bytes": "2MB"}}
    live.configure(plain | {"dag": {"task_processes": 2}})
    live.trigger(dag, "once")

    def at_work() -> list[psutil.Process]:
        return live.processes("run-task", "tokenize", "--workers", "2")

    program = live.wait_for("a program", at_work, every_seconds=0.2)[0]
    program.kill()
    assert live.finish(dag, "once", seconds=2 * LONGEST_SECONDS) == "success"
    assert [task["try_number"] for task in live.tasks(dag, "once", "tokenize").values()] == [2]
    assert "SIGKILL" in live.log(dag, "once", "tokenize", map_index=0)
    assert not live.processes("run-task")
    alone = settings("program", source, tmp_path / "alone") | {"source": plain["source"]}
    build_dataset(check_config(alone, where="a test"), workers=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "alone" / "out")


def test_full_disk_is_said_in_the_log_and_with_room_the_task_ends_with_the_right_bytes(
    live: Live, tmp_path: Path
) -> None:
    source, dag = tmp_path / "corpus", "dataset__full"
    source.mkdir()
    (source / "a.jsonl.zst").write_bytes(zstandard.compress(lines_of(make_documents(60) * 20)))
    with small_disk(tmp_path / "disk", mebibytes=64) as disk:
        live.configure(settings("full", source, tmp_path, work=disk / "work"))
        live.trigger(dag, "once")
        live.wait_for(
            "a plan, which finds room",
            lambda: any(task["state"] == "success" for task in live.tasks(dag, "once", "plan").values()),
            every_seconds=0.1,
        )
        status = os.statvfs(disk)
        (disk / "ballast").write_bytes(bytes(status.f_bavail * status.f_frsize - 200_000))  # somebody else's file

        def waiting() -> list[dict[str, Any]]:
            return [task for task in live.tasks(dag, "once").values() if task["state"] in {"up_for_retry", "failed"}]

        (stopped,) = live.wait_for("a task without room", waiting)
        assert stopped["state"] == "up_for_retry"  # in five minutes, by itself
        task, place = stopped["task_id"], stopped["map_index"]
        printed = live.log(dag, "once", task, map_index=place)
        for words in ("error[step.disk_full]", str(disk), "bytes free", "free space or move"):
            assert words in printed
        assert "finished steps are reused" in printed

        (disk / "ballast").unlink()
        enlarge(disk, mebibytes=200)
        body = {"dry_run": False, "dag_run_id": "once", "task_ids": [[task, place]], "only_failed": False}
        live.call("POST", f"/api/v2/dags/{dag}/clearTaskInstances", body)
        assert live.finish(dag, "once") == "success"
        assert live.tasks(dag, "once", task)[task, place]["try_number"] == 2
    assert files_below(tmp_path / "out") == built_alone("full", source, tmp_path / "alone")
