"""Random actions of the users and the operators of an Airflow, on three small datasets.

The seed decides which action comes next and what it is done to. How far the runs have come by then depends on the
machine, so a day is repeated in kind, not to the letter.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.dags.day_datasets import NAMES, Datasets
from tests.dags.live import Live

OTHER_DAGS = ("build_dataset", "reprocess_shard")
STAGES = ("index", "tokenize", "writeback", "scatter")
WEIGHTS = {
    "trigger": 10,
    "trigger with other settings": 3,
    "trigger a dry run": 2,
    "trigger build_dataset": 2,
    "clear": 14,
    "mark a task": 7,
    "mark a run": 4,
    "pause": 5,
    "unpause": 5,
    "edit sources": 12,
    "edit a configuration": 8,
    "delete a configuration": 4,
    "restore a configuration": 4,
    "reprocess": 5,
    "kill a task": 9,
    "kill the scheduler": 2,
}


@dataclass
class Actions:
    """What happened to an Airflow that runs; `findings` is what should not have."""

    live: Live
    seed: int
    log: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.began = time.monotonic()
        self.paused: set[str] = set()
        self.datasets = Datasets(self.live, self.random)

    # ---- what can happen ----

    def act(self, number: int) -> None:
        """One random action; the answer of Airflow, a refusal too, goes into the log."""
        (kind,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        name = self.random.choice(NAMES)
        actions: dict[str, Callable[[str, str], str]] = {
            "trigger": lambda run, name: self.trigger(f"dataset__{name}", run),
            "trigger with other settings": lambda run, name: self.trigger(
                f"dataset__{name}", run, seed=str(self.random.randrange(90)), move_latest=self.random.random() < 0.5
            ),
            "trigger a dry run": lambda run, name: self.trigger(f"dataset__{name}", run, dry_run=True),
            "trigger build_dataset": lambda run, name: self.trigger("build_dataset", run, configuration=name),
            "clear": lambda *_: self.clear(),
            "mark a task": lambda *_: self.mark_task(),
            "mark a run": lambda *_: self.mark_run(),
            "pause": lambda _, name: self.pause(name, paused=True),
            "unpause": lambda _, name: self.pause(
                self.random.choice(sorted(self.paused)) if self.paused else name, paused=False
            ),
            "edit sources": lambda run, name: self.datasets.edit_sources(name, run),
            "edit a configuration": lambda _, name: self.datasets.edit_configuration(name),
            "delete a configuration": lambda _, name: self.datasets.delete(name),
            "restore a configuration": lambda _, name: self.datasets.restore(name),
            "reprocess": lambda run, name: self.trigger(
                "reprocess_shard", run, dataset=name, stage=self.random.choice(STAGES), shard=self.random.randrange(2)
            ),
            "kill a task": lambda *_: self.kill_task(),
            "kill the scheduler": lambda *_: self.kill_scheduler(),
        }
        what = actions[kind](f"day-{number}", name)
        self.kinds[kind] += 1
        self.say(f"{number:3} {kind}: {what}")

    def trigger(self, dag: str, run: str, **conf: Any) -> str:
        body = {"dag_run_id": run, "logical_date": None, "conf": conf}
        return f"{dag} {run} {json.dumps(conf)}: {self.ask('POST', f'/dags/{dag}/dagRuns', body)}"

    def clear(self) -> str:
        place, instance = self.some_task()
        if not instance:
            return "there is no run"
        downstream = self.random.random() < 0.5
        task = [instance["task_id"], instance["map_index"]] if instance["map_index"] >= 0 else instance["task_id"]
        body = {
            "dry_run": False,
            "dag_run_id": instance["dag_run_id"],
            "task_ids": [task],
            "only_failed": False,
            "include_downstream": downstream,
        }
        answer = self.ask("POST", f"/dags/{instance['dag_id']}/clearTaskInstances", body)
        return f"{place}{' and downstream' if downstream else ''}: {answer}"

    def mark_task(self) -> str:
        place, instance = self.some_task()
        if not instance:
            return "there is no run"
        state = self.random.choice(["success", "failed"])
        url = f"/dags/{instance['dag_id']}/dagRuns/{instance['dag_run_id']}/taskInstances/{instance['task_id']}"
        url += f"/{instance['map_index']}" if instance["map_index"] >= 0 else ""
        return f"{place} {state}: {self.ask('PATCH', f'{url}?update_mask=new_state', {'new_state': state})}"

    def mark_run(self) -> str:
        runs = self.runs()[:6]
        if not runs:
            return "there is no run"
        run, state = self.random.choice(runs), self.random.choice(["success", "failed"])
        url = f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}?update_mask=state"
        was = f"{run['dag_id']} {run['dag_run_id']} ({run['state']})"
        return f"{was} {state}: {self.ask('PATCH', url, {'state': state})}"

    def pause(self, name: str, *, paused: bool) -> str:
        (self.paused.add if paused else self.paused.discard)(name)
        return f"{name}: {self.ask('PATCH', f'/dags/dataset__{name}?update_mask=is_paused', {'is_paused': paused})}"

    def kill_task(self) -> str:
        """SIGKILL to the process of a task at work, if there is one."""
        with suppress(AssertionError):
            self.live.wait_for("a task at work", self.tasks_at_work, seconds=10, every_seconds=0.2)
        if not (instances := self.tasks_at_work()):
            return "there is no task at work"
        instance = self.random.choice(instances)
        session = json.loads((self.live.folder / ".airflow" / "server.json").read_text())["pid"]
        with suppress(ProcessLookupError):
            if os.getsid(instance["pid"]) == session:
                os.kill(instance["pid"], signal.SIGKILL)
                return _named(instance)
        return f"{_named(instance)} had ended"

    def kill_scheduler(self) -> str:
        schedulers = self.live.processes("scheduler", "--skip-serve-logs")
        for process in schedulers:
            with suppress(httpx.HTTPError, ProcessLookupError):
                process.kill()
        return f"{len(schedulers)} processes"

    # ---- what Airflow knows ----

    def ask(self, method: str, path: str, body: Any) -> int:
        """The status of Airflow's answer: a user may ask for what cannot be done. A crash is a finding."""
        answer = self.live.request(method, f"/api/v2{path}", body)
        self.answers[answer.status_code] += 1
        if answer.status_code >= 500:
            self.findings.append(f"{method} {path} {json.dumps(body)}: {answer.status_code} {answer.text[:300]}")
        return answer.status_code

    def runs(self, states: str = "") -> list[dict[str, Any]]:
        """All runs, the newest first."""
        actual: list[dict[str, Any]] = self.live.call(
            "GET", f"/api/v2/dags/~/dagRuns?limit=100&order_by=-run_after{states}"
        )["dag_runs"]
        return actual

    def unfinished(self) -> list[dict[str, Any]]:
        return self.runs("&state=queued&state=running")

    def some_task(self) -> tuple[str, dict[str, Any]]:
        """A task of one of the last six runs."""
        runs = self.runs()[:6]
        if not runs:
            return "", {}
        run = self.random.choice(runs)
        instances = list(self.live.tasks(run["dag_id"], run["dag_run_id"]).values())
        instance = self.random.choice(sorted(instances, key=_named)) if instances else {}
        return (f"{_named(instance)} ({instance['state']}, run {run['state']})" if instance else ""), instance

    def tasks_at_work(self) -> list[dict[str, Any]]:
        actual = self.live.call("GET", "/api/v2/dags/~/dagRuns/~/taskInstances?state=running&limit=100")
        return [instance for instance in actual["task_instances"] if instance["pid"]]

    def say(self, line: str) -> None:
        self.log.append(f"{time.monotonic() - self.began:6.0f} s {line}")
        print(self.log[-1], flush=True)


def _named(instance: dict[str, Any]) -> str:
    index = f" {instance['map_index']}" if instance["map_index"] >= 0 else ""
    return f"{instance['dag_id']} {instance['dag_run_id']} {instance['task_id']}{index}"
