"""kill -9 at any moment: a second run ends with the bytes of an undisturbed one."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from corpusmill.storage.local import ARRIVING
from tests.quick import quick
from tests.system.corpus import configuration, write_corpus

BUILD = [sys.executable, "-m", "corpusmill.cli", "build"]


def config_file(root: Path, **changes: object) -> Path:
    root.mkdir()
    write_corpus(root / "corpus", documents=60)
    path = root / "dataset.yaml"
    path.write_text(yaml.safe_dump(configuration(root, **changes)))
    return path


def start(config: Path) -> subprocess.Popen[bytes]:
    command = [*BUILD, str(config), "--workers", "2"]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def outputs(root: Path) -> dict[str, bytes]:
    """What is delivered: a killed upload may leave its temporary file, which another removes a day later."""
    folder = root / "outputs" / "tiny"
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not ARRIVING.fullmatch(path.name))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a build that nobody kills delivers."""
    root = tmp_path_factory.mktemp("undisturbed") / "whole"
    assert start(config_file(root)).wait() == 0
    return outputs(root)


def stage_reached(root: Path, stage: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a folder of the stage appears, or the build ends."""
    while process.poll() is None and not (root / "work" / "tiny" / stage).exists():
        os.sched_yield()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def worker_of(process: subprocess.Popen[bytes]) -> int:
    """A worker that the build has forked."""
    while True:
        for worker in children(process.pid):
            return worker


LAST = ("gather", "manifest", "report")


@pytest.mark.parametrize("case", quick([("keep", ("match",)), ("eager", LAST)], 1))
def test_build_killed_as_stages_begin_then_run_again_writes_the_same_bytes(
    undisturbed, tmp_path, case: tuple[str, tuple[str, ...]]
) -> None:
    reclaim, stages = case
    config = config_file(tmp_path / "killed", reclaim=reclaim)
    for stage in stages:
        process = start(config)
        stage_reached(tmp_path / "killed", stage, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert start(config).wait() == 0
    assert outputs(tmp_path / "killed") == undisturbed


@pytest.mark.slow
def test_build_killed_worker_fails_with_a_reason_and_a_second_run_finishes(tmp_path) -> None:
    config = config_file(tmp_path / "killed")
    process = start(config)
    stage_reached(tmp_path / "killed", "index", process)
    os.kill(worker_of(process), signal.SIGKILL)
    assert process.stderr is not None
    printed = process.stderr.read().decode()
    assert process.wait() == 75
    assert "error[run.worker_died]: a worker died" in printed
    assert start(config).wait() == 0


@pytest.mark.parametrize("sign", quick([signal.SIGKILL, signal.SIGTERM], 1))
def test_build_killed_alone_takes_its_workers_with_it(tmp_path, sign: signal.Signals) -> None:
    process = start(config_file(tmp_path / "killed"))
    stage_reached(tmp_path / "killed", "tokenize", process)
    watched = [os.pidfd_open(worker_of(process)), *map(os.pidfd_open, children(process.pid))]
    process.send_signal(sign)
    deadline = time.monotonic() + 10
    for item in watched:
        ended, _, _ = select.select([item], [], [], max(0, deadline - time.monotonic()))
        os.close(item)
        assert ended


@pytest.mark.parametrize("spoilt", quick([True, False], 1))
def test_build_whose_workers_do_not_end_by_themselves_ends_all_the_same(tmp_path, spoilt: bool) -> None:
    # As workers do that wait for a lock which another one held when it was killed: here for a thread without an end.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, threading\n"
        "if '--workers' in sys.orig_argv:\n"
        "    os.register_at_fork(after_in_child=threading.Thread(target=threading.Event().wait).start)\n"
    )
    config = config_file(tmp_path / "build")
    if spoilt:
        (tmp_path / "build" / "corpus" / "z.jsonl.gz").write_bytes(b"no gzip")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*BUILD, str(config), "--workers", "2"], env=environment, timeout=100, capture_output=True, check=False
    )
    assert done.returncode == (1 if spoilt else 0), done.stderr.decode()


@pytest.mark.slow
def test_build_killed_at_random_moments_ends_with_the_same_bytes(undisturbed, tmp_path) -> None:
    rng = random.Random(0)
    config = config_file(tmp_path / "killed")
    for _ in range(8):
        process = start(config)
        time.sleep(rng.uniform(0.5, 4))  # the subject is the moment of the kill, not a wait for something
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert start(config).wait() == 0
    assert outputs(tmp_path / "killed") == undisturbed
