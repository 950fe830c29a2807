"""Where workers come from: forked from the build's process where that is safe, and only if a step must run."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from corpusmill.builds.local import run_steps
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

BEGIN = """
import errno, json, logging, os, signal, sys, threading
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config

# A runner in the background (`nohup make test &`) ignores SIGINT, and its programs would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
config = check_config(json.loads(sys.argv[1]), where="a test")
"""

COUNTING_FORKS = """
forks = []
os.register_at_fork(before=lambda: forks.append(1))
for _ in range(2):
    build_dataset(config, workers=2)
    print(len(forks))
"""

BESIDE_A_THREAD = """
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""

INTERRUPTED = """
os.register_at_fork({}=lambda: os.kill(os.getpid(), signal.{}))
build_dataset(config, workers=4)
"""

SECOND_FORK_FAILS = """
fork, forks = os.fork, []

def failing():
    forks.append(1)
    if len(forks) == 2:
        raise BlockingIOError(errno.EAGAIN, "no more processes")
    return fork()

os.fork = failing
build_dataset(config, workers=4)
"""

LOGGING_STEPS = """
handler = logging.StreamHandler(sys.stdout)
logging.getLogger("corpusmill").addHandler(handler)
logging.getLogger("corpusmill").setLevel(logging.INFO)
build_dataset(config, workers=2)
"""


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def program(folder: Path, *text: str) -> subprocess.CompletedProcess[str]:
    """A program that builds a small dataset, in a process group of its own, of which nothing is left in the end."""
    write_corpus(folder / "corpus", documents=40)
    with subprocess.Popen(
        [sys.executable, "-c", "".join((BEGIN, *text)), json.dumps(configuration(folder))],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=120)
            deadline = time.monotonic() + 20
            while is_there(process.pid):
                assert time.monotonic() < deadline, "a process of the build is left"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess([], process.returncode, printed, errors)


def test_build_of_a_process_without_threads_forks_workers_once_and_none_for_unchanged_stages(
    tmp_path: Path,
) -> None:
    assert program(tmp_path, COUNTING_FORKS).stdout.split() == ["2", "2"]


@pytest.mark.slow
def test_build_of_a_process_with_threads_is_never_forked(tmp_path: Path) -> None:
    assert program(tmp_path, BESIDE_A_THREAD, COUNTING_FORKS).stdout.split() == ["0", "0"]


@pytest.mark.parametrize("name", quick(["SIGINT", "SIGTERM"], 1))
def test_build_interrupted_while_it_forks_ends_by_the_signal(tmp_path: Path, name: str) -> None:
    assert program(tmp_path, INTERRUPTED.format("before", name)).returncode == -signal.Signals[name]


@pytest.mark.slow
def test_build_whose_workers_are_interrupted_while_they_begin_goes_on(tmp_path: Path) -> None:
    done = program(tmp_path, INTERRUPTED.format("after_in_child", "SIGINT"))
    assert done.returncode == 0, done.stderr


def test_build_that_cannot_fork_all_workers_ends_with_the_error(tmp_path: Path) -> None:
    done = program(tmp_path, SECOND_FORK_FAILS)
    assert done.returncode == 1
    assert "no more processes" in done.stderr


@pytest.mark.slow
def test_build_with_a_log_prints_each_step_once(tmp_path: Path) -> None:
    lines = program(tmp_path, LOGGING_STEPS).stdout.splitlines()
    assert len(lines) > 30
    assert len({line.partition(":")[0] for line in lines}) == len(lines)


def test_build_whose_worker_died_before_a_step_names_the_loss(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=40)
    plan = plan_dataset(check_config(configuration(tmp_path), where="a test"), to_build=True)

    @contextmanager
    def killing(_: object) -> Iterator[None]:
        (worker, *_) = multiprocessing.active_children()
        worker.kill()
        worker.join()
        yield

    with raises("run.worker_died"):
        run_steps(plan, workers=2, view=killing)
