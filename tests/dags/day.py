"""A day of an Airflow: random actions, what must hold after each, and a last build of every dataset."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from corpusmill.config import check_config
from corpusmill.inspect.verify import verify_version
from tests.dags.day_actions import OTHER_DAGS, Actions
from tests.dags.day_datasets import NAMES
from tests.search.folders import built_from_scratch, delivered, rooted

MOST_UNFINISHED = 7  # runs; more would only wait in the queue
LONGEST_REST_SECONDS = 20.0
PAUSES_SECONDS = (0.0, 0.5, 1.0, 3.0, 5.0)  # between two actions


@dataclass
class Day(Actions):
    """Actions with checks; `checked` counts them."""

    checked: Counter[str] = field(default_factory=Counter)
    verified: set[tuple[str, str]] = field(default_factory=set)  # (dataset, version)

    def begin(self) -> None:
        """Airflow knows all DAGs, none is paused, and every dataset is being built."""
        for dag in (*(f"dataset__{name}" for name in NAMES), *OTHER_DAGS):
            self.live.wait_until_parsed(dag)
        for name in NAMES:
            self.live.trigger(f"dataset__{name}", "first")

    def rest(self) -> None:
        """Wait a moment, or for the runs under way."""
        time.sleep(self.random.choice(PAUSES_SECONDS))
        most = 0 if self.random.random() < 0.05 else MOST_UNFINISHED
        with suppress(AssertionError):
            self.live.wait_for(
                "fewer runs",
                lambda: len([run for run in self.unfinished() if self.can_go_on(run)]) <= most,
                LONGEST_REST_SECONDS,
                every_seconds=1,
            )

    def can_go_on(self, run: dict[str, Any]) -> bool:
        name = run["dag_id"].removeprefix("dataset__")
        return name in OTHER_DAGS or (name not in self.paused and self.datasets.file(name).exists())

    def check(self) -> None:
        """What each `latest` points to is whole at any moment; of a dataset at rest `verify` finds nothing, either."""
        busy = {run["dag_id"].removeprefix("dataset__") for run in self.unfinished()}
        for name in NAMES:
            now = delivered(self.live.folder, name)
            if now.error:
                continue
            self.checked["latest whole"] += 1
            self.findings += [f"{name} {now.version}: {file} is wrong" for file in now.missing_or_wrong()]
            if busy.isdisjoint({name, *OTHER_DAGS}) and (name, now.version) not in self.verified:
                self.verified.add((name, now.version))
                self.checked["latest verified"] += 1
                with rooted(self.live.folder):
                    config = check_config(self.datasets.configurations[name], where=name)
                    verification = verify_version(config, now.version)
                self.findings += [f"{name} {now.version}: {finding}" for finding in verification.findings]

    def end(self, seconds: float) -> None:
        """All comes back and ends within `seconds`; a last build of each dataset is what a build from scratch gives."""
        for name in NAMES:
            self.live.configure(self.datasets.configurations[name])
        for name in NAMES:
            self.live.wait_for(f"{name} as its file says", lambda name=name: self.is_parsed(name))
        for dag in (*(f"dataset__{name}" for name in NAMES), *OTHER_DAGS):
            self.live.wait_until_parsed(dag)
        self.paused.clear()
        with suppress(AssertionError):
            self.live.wait_for("the end of all runs", lambda: not self.unfinished(), seconds, every_seconds=2)
        for run in self.unfinished():
            self.findings.append(f"{run['dag_id']} {run['dag_run_id']}: {run['state']} for ever")
        self.check()
        for name in NAMES:
            self.live.trigger(f"dataset__{name}", "last")
        for name in NAMES:
            if (state := self.live.finish(f"dataset__{name}", "last", every_seconds=2)) != "success":
                self.findings.append(f"{name}: the last build ended as {state}")
        for name in NAMES:
            config = check_config(self.datasets.configurations[name], where=name)
            anew = built_from_scratch(self.live.folder / "anew", config)
            now = delivered(self.live.folder, name)
            self.findings += [f"{name}: {difference}" for difference in anew.differences(now)]
            self.checked["files compared with a build from scratch"] += len(anew.files)
            self.say(f"    {name}: {now.version}, {len(anew.files)} files compared with a build from scratch")

    def is_parsed(self, name: str) -> bool:
        answer = self.live.client.get(f"/api/v2/dags/dataset__{name}/details")
        return answer.is_success and self.datasets.file(name).read_text() in (answer.json()["doc_md"] or "")

    def states(self) -> dict[str, int]:
        """{state: how many runs ended so}."""
        return dict(sorted(Counter(str(run["state"]) for run in self.runs()).items()))
