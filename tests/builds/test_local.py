"""Where workers come from: forked from the build's process where that is safe, and only if a step must run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import quick
from tests.system.corpus import configuration, write_corpus

# Builds twice with 2 workers, beside a thread if told so; prints how often it was forked, after each build.
PROGRAM = """
import json, os, sys, threading
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config

forks = []
os.register_at_fork(before=lambda: forks.append(1))
if sys.argv[2] == "threads":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
config = check_config(json.loads(sys.argv[1]), where="a test")
for _ in range(2):
    build_dataset(config, workers=2)
    print(len(forks))
"""


def forks_of(folder: Path, threads: str) -> list[int]:
    write_corpus(folder / "corpus", documents=40)
    config = configuration(folder)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(config), threads], capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    return [int(number) for number in done.stdout.split()]


def test_build_of_a_process_without_threads_forks_its_workers_once_and_none_for_what_stands(tmp_path: Path) -> None:
    assert forks_of(tmp_path, "none") == [2, 2]


@pytest.mark.parametrize("threads", quick(["threads"], 0))
def test_build_of_a_process_with_threads_is_never_forked(tmp_path: Path, threads: str) -> None:
    assert forks_of(tmp_path, threads) == [0, 0]
