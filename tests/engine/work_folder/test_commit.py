"""One request decides which attempt at a step counts: races, lost answers, damaged answers, kills."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.engine.ledger import DamagedStepError, Outcome, Step, blocks, read_receipt, run_once
from corpusmill.engine.ledger.blocks import BLOCK_BYTES, Blocks
from corpusmill.engine.ledger.finished import refresh_step, request_rerun, rerun_requested
from corpusmill.engine.ledger.once import NotDeterministicError
from corpusmill.errors import CorpusmillError
from corpusmill.storage.mirrored import mirror_of
from tests.engine.work_folder.machines import keys, machine, objects, work_folder
from tests.faults.proxy import FaultyProxy
from tests.quick import quick
from tests.raising import raises

STEP = Step("tokenize", 1, "00000", {"of": "test"}, ())
CONTENT = bytes(range(256)) * (BLOCK_BYTES // 256) + b"and a little of another block"
FAILURES = ("refused", "reset", "lost", "truncated", "delayed")
DAMAGES = ("corrupted", "edited", "cut", "repeated")


pytestmark = pytest.mark.usefixtures("hasty")


def write(content: bytes = CONTENT) -> Any:
    def body(folder: Path) -> Outcome:
        (folder / "tokens").write_bytes(content)
        (folder / "none").touch()
        return Outcome(counts={"bytes": len(content)})

    return body


def work() -> Path:
    return mirror_of(f"{work_folder()}/tiny")


def run(content: bytes = CONTENT) -> Path:
    return run_once(STEP, work(), write(content))


def read_anew() -> bytes:
    folder = STEP.folder(work())
    refresh_step(folder)
    Blocks(folder, read_receipt(folder / "receipt.json")).require()
    return (folder / "tokens").read_bytes()


def read_or_run_again() -> tuple[bytes, bool]:
    """What a reader gets who lets a damaged step run again, as a build does; whether one had to."""
    try:
        return read_anew(), False
    except DamagedStepError:
        request_rerun(STEP.folder(work()))
        run()
        return read_anew(), True


def test_step_whose_outputs_are_empty_is_read_by_another_machine(bucket: str, tmp_path: Path) -> None:
    run(b"")
    with machine(tmp_path, "second"):
        assert read_anew() == b""


def test_slice_of_an_output_brings_its_blocks_alone(bucket: str, tmp_path: Path) -> None:
    run()
    with machine(tmp_path, "second"):
        folder = STEP.folder(work())
        refresh_step(folder)
        outputs = Blocks(folder, read_receipt(folder / "receipt.json"))
        outputs.open("tokens", BLOCK_BYTES + 4, BLOCK_BYTES + 9).close()
        there = (folder / "tokens").read_bytes()
        assert there[BLOCK_BYTES:] == CONTENT[BLOCK_BYTES:]
        assert not any(there[:BLOCK_BYTES])


@given(wanted=st.sets(st.integers(0, 11), min_size=1), most=st.integers(1, 5))
def test_blocks_come_in_stretches_that_hold_each_once_and_none_too_long(wanted: set[int], most: int) -> None:
    stretches = list(blocks._stretches(sorted(wanted), most))
    assert [number for begin, end in stretches for number in range(begin, end)] == sorted(wanted)
    assert all(end - begin <= most for begin, end in stretches)


def race(folder: Path, name: str, content: bytes, start: Any, told: Any) -> None:
    with machine(folder, name):
        start.wait()
        try:
            told.put(read_receipt(run_once(STEP, work(), write(content))).attempt)
        except NotDeterministicError as error:
            told.put(type(error).__name__)


def raced(folder: Path, contents: list[bytes]) -> list[str]:
    """What machines that run the step at the same moment hold for its attempt, or their error."""
    context = multiprocessing.get_context("spawn")
    start, told = context.Event(), context.Queue()
    racers = [
        context.Process(target=race, args=(folder, f"racer {number}", content, start, told))
        for number, content in enumerate(contents)
    ]
    for racer in racers:
        racer.start()
    start.set()
    outcomes = [told.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join()
    return outcomes


@pytest.mark.slow
def test_machines_that_race_agree_on_one_attempt_and_leave_no_other(bucket: str, tmp_path: Path) -> None:
    outcomes = raced(tmp_path, [CONTENT] * 8)
    assert len(set(outcomes)) == 1
    assert {key.split("/")[4] for key in keys() if "/outputs/" in key} == set(outcomes)


@pytest.mark.slow
def test_machines_that_write_different_bytes_are_told_so(bucket: str, tmp_path: Path) -> None:
    outcomes = raced(tmp_path, [CONTENT, CONTENT + b"!"] * 3)
    assert len({*outcomes} - {"NotDeterministicError"}) == 1  # who begins when it is there takes it as it is


def test_step_that_two_machines_ran_counts_once(bucket: str, tmp_path: Path) -> None:
    with machine(tmp_path, "slow"):
        first = STEP.folder(work())

        def body(folder: Path) -> Outcome:
            with machine(tmp_path, "quick"):
                run()
            return write()(folder)

        receipt = read_receipt(run_once(STEP, work(), body))
        assert first == STEP.folder(work())
    with machine(tmp_path, "quick"):
        assert read_receipt(run()).attempt == receipt.attempt
    assert len({key.split("/")[4] for key in keys() if "/outputs/" in key}) == 1


def test_step_that_is_not_deterministic_is_refused(bucket: str, tmp_path: Path) -> None:
    def body(folder: Path) -> Outcome:
        with machine(tmp_path, "quick"):
            run(CONTENT + b"!")
        return write()(folder)

    with machine(tmp_path, "slow"), raises("step.not_reproducible"):
        run_once(STEP, work(), body)


def test_step_that_is_asked_for_runs_once_wherever_it_is_looked_at(bucket: str, tmp_path: Path) -> None:
    before = read_receipt(run()).attempt
    request_rerun(STEP.folder(work()))
    with machine(tmp_path, "second"):
        refresh_step(STEP.folder(work()))
        assert rerun_requested(STEP.folder(work()))
        after = read_receipt(run()).attempt
    assert after != before
    with machine(tmp_path, "third"):
        assert read_receipt(run()).attempt == after
    assert read_receipt(run()).attempt == after


def test_outputs_that_are_lost_are_made_again_under_another_attempt(bucket: str, tmp_path: Path) -> None:
    before = read_receipt(run()).attempt
    for key in keys():
        if "/outputs/" in key:
            objects().delete(key)
    with machine(tmp_path, "second"):
        assert read_receipt(run_once(STEP, work(), write(), verify=True)).attempt != before
    with machine(tmp_path, "third"):
        assert read_anew() == CONTENT


@pytest.mark.parametrize("seed", quick(range(40), 2, 6))
def test_store_that_fails_now_and_then_changes_nothing(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with FaultyProxy(os.environ[bucket], seed=seed, share=0.5, faults=12, kinds=FAILURES) as proxy:
        monkeypatch.setenv(bucket, proxy.endpoint)
        attempts = set()
        for name in ("second", "third"):
            with machine(tmp_path, name):
                attempts.add(read_receipt(run()).attempt)
                assert read_anew() == CONTENT
        assert len(attempts) == 1
        assert sum(proxy.dealt.values())


@pytest.mark.parametrize("seed", quick(range(40), 2, 6))
def test_store_that_lies_is_found_out_or_asked_again(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    store = os.environ[bucket]
    with FaultyProxy(store, seed=seed, share=0.2, faults=8, kinds=DAMAGES) as proxy:
        monkeypatch.setenv(bucket, proxy.endpoint)
        for name in ("second", "third"):
            with machine(tmp_path, name), suppress(CorpusmillError):
                run()
                assert read_anew() == CONTENT
    monkeypatch.setenv(bucket, store)
    with machine(tmp_path, "last"):
        run()
        assert read_or_run_again()[0] == CONTENT


def killed_after(requests: int, folder: Path, name: str) -> int:
    """Run the step in a process that is killed when it sends so many requests; its exit code."""
    context = multiprocessing.get_context("spawn")
    victim = context.Process(target=run_and_die, args=(folder, name, requests))
    victim.start()
    victim.join()
    return int(victim.exitcode or 0)


def run_and_die(folder: Path, name: str, requests: int) -> None:
    left = [requests]
    store: Any = type(objects().store)
    send = store.call

    def counted(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), 9)
        return send(*arguments)

    store.call = counted
    with machine(folder, name):
        run()


@pytest.mark.slow
def test_worker_that_is_killed_with_its_disk_at_any_request_costs_nothing(bucket: str, tmp_path: Path) -> None:
    for requests in range(30):
        code = killed_after(requests, tmp_path, f"victim {requests}")
        if code == 0:
            break
        assert code == -9
        with machine(tmp_path, f"next {requests}"):
            read_receipt(run())
            assert read_anew() == CONTENT
            request_rerun(STEP.folder(work()))
    assert requests > 5
