"""One claim on a dataset whose work folder is in a bucket: machines share no lock and no clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.engine import claim
from corpusmill.engine.claim import Holder, beating, claim_dataset, claimed, release_dataset
from corpusmill.engine.work_folder.small import refresh
from corpusmill.storage import retries
from corpusmill.storage.mirrored import mirror_of
from tests.engine.work_folder.machines import WORK_FOLDER, machine, work_folder
from tests.faults.proxy import Answer, FaultyProxy
from tests.raising import raises
from tests.servers import Server

ONE, OTHER = Holder("here", "dataset__tiny", "one"), Holder("elsewhere", "dataset__tiny", "two")


def never(_: Holder) -> bool:
    return False


def work() -> Path:
    return mirror_of(f"{work_folder()}/tiny")


def test_dataset_of_one_machine_is_refused_to_another_until_it_ends(bucket: str, tmp_path: Path) -> None:
    with claimed(work()), machine(tmp_path, "second"), raises("run.under_way"), claimed(work()):
        pass
    with machine(tmp_path, "second"), claimed(work()):
        pass


def test_dataset_of_a_machine_that_was_not_heard_of_is_given_to_another(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_dataset(work(), ONE, never, "plan-1")
    with machine(tmp_path, "second"):
        with raises("run.under_way"):
            claim_dataset(work(), OTHER, never)
        monkeypatch.setattr(claim, "EXPIRES_SECONDS", -1.0)
        claim_dataset(work(), OTHER, never)
        monkeypatch.undo()


def test_holder_whose_claim_was_taken_over_may_not_renew_it(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_dataset(work(), ONE, never)
    assert claim._touch(work(), ONE)
    with machine(tmp_path, "second"), monkeypatch.context() as expired:
        expired.setattr(claim, "EXPIRES_SECONDS", -1.0)
        claim_dataset(work(), OTHER, never)
    assert not claim._touch(work(), ONE)
    release_dataset(work(), ONE)  # is no longer its own
    with machine(tmp_path, "third"), raises("run.under_way"):
        claim_dataset(work(), ONE, never)


def test_tasks_of_one_run_on_many_machines_keep_its_claim_together(bucket: str, tmp_path: Path) -> None:
    claim_dataset(work(), ONE, never)
    with beating(work(), ONE, every_seconds=0.01), machine(tmp_path, "second"):
        for _ in range(20):
            assert claim._touch(work(), ONE)
    release_dataset(work(), ONE)
    with machine(tmp_path, "third"):
        claim_dataset(work(), OTHER, never)


@pytest.mark.usefixtures("hasty")
def test_claim_is_renewed_once_a_store_that_was_away_is_back(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, renewed, is_away = [0], [0], [True]

    def harm(method: str, _path: str, answer: Answer) -> Answer:
        asked[0] += 1
        if is_away[0]:
            return Answer(503, [], b"")
        renewed[0] += method != "GET" and answer.status == 200
        return answer

    claim_dataset(work(), ONE, never)
    with FaultyProxy(os.environ[bucket], harm=harm) as proxy:
        monkeypatch.setenv(bucket, proxy.endpoint)
        with beating(work(), ONE, every_seconds=0.01):
            wait_until(lambda: asked[0] > 2 * retries.POLICY.attempts)  # two beats were given up
            is_away[0] = False
            wait_until(lambda: renewed[0])


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_process_that_was_killed_gives_its_dataset_to_the_next_of_its_machine(bucket: str, tmp_path: Path) -> None:
    gone = Holder(claim.this_process(_made(work())).instance, "", "process 1 on here")
    claim._write(work(), gone)
    with machine(tmp_path, "second"), raises("run.under_way"), claimed(work()):
        pass
    with claimed(work()):
        assert refresh(work() / claim.CLAIM, again=True)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_store_that_ignores_conditions_is_refused(
    tmp_path: Path, rclone: Server, monkeypatch: pytest.MonkeyPatch, rclone_client: Any
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", rclone.endpoint)
    monkeypatch.setenv(WORK_FOLDER, "s3://corpus/mill")
    with machine(tmp_path, "first"), raises("work_folder.conditions_ignored"), claimed(work()):
        pass
