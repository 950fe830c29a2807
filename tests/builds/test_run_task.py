"""One part of a task of a planned build, by the function and the program that schedulers start."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from corpusmill.builds import local
from corpusmill.builds.chain import all_tasks
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset, run_build, run_part
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.parts import WHOLE, Part
from corpusmill.engine.rollup import is_unchanged
from corpusmill.engine.running import RunnableBuild
from corpusmill.errors import TransientError
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

PROGRAM = [sys.executable, "-m", "corpusmill.cli", "run-task"]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "corpus", documents=60)
    source = {"paths": [str(tmp_path / "corpus")], "shard_bytes": 200}
    return plan_dataset(check_config(configuration(tmp_path, source=source), where="a test"))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
def test_every_part_of_every_task_is_a_build(plan: Path, tmp_path: Path, parts: int) -> None:
    build = open_build(plan)
    for task in all_tasks():
        for number in range(parts, 0, -1):
            run_part(plan, task.name, Part(number, parts), processes=1 + number % 2)
    assert all(is_unchanged(build, stage) for stage in GRAPH.names)
    delivered = files_of(tmp_path / "outputs")
    again = build_dataset(build.config, workers=1)
    assert all(open_build(again).find(stage, unit) for stage in GRAPH.names for unit in build.units(stage))
    assert files_of(tmp_path / "outputs") == delivered


@pytest.mark.parametrize("processes", [1, 2])
def test_run_task_that_verifies_makes_damaged_outputs_again(plan: Path, processes: int) -> None:
    run_part(plan, "download", WHOLE)
    receipts = run_part(plan, "index.read", WHOLE)
    text = receipts[0].parent / "tokenized"
    whole = text.read_bytes()
    text.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    run_part(plan, "index.read", WHOLE, processes=processes)
    assert text.read_bytes() != whole
    run_part(plan, "index.read", WHOLE, processes=processes, verify=True)
    assert text.read_bytes() == whole


def test_run_part_of_as_many_parts_as_shards_runs_one_each_however_small(plan: Path) -> None:
    """An array of a batch system has the machines that it was told, so shards are not joined for being small."""
    units = open_build(plan).units("download")
    for number, unit in enumerate(units, start=1):
        (receipt,) = run_part(plan, "download", Part(number, len(units)))
        assert receipt.parent.name.startswith(unit)


@pytest.mark.parametrize("processes", [1, 2])
def test_run_task_logs_each_step_once_whatever_the_processes(
    plan: Path, processes: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    units = open_build(plan).units("download")
    run_part(plan, "download", WHOLE, processes=processes)
    steps = [words for words in map(str.split, caplog.messages) if words[0] == "download"]
    assert sorted(words[1] for words in steps) == [f"{unit}:" for unit in units]
    assert len(units) > 1


@pytest.mark.parametrize("workers", [1, 2])
def test_build_logs_each_step_once_whatever_the_workers(
    plan: Path, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run_build(plan, workers=workers, until="index")
    steps = [" ".join(words[:2]) for words in map(str.split, caplog.messages) if words[0] in {"download", "index"}]
    units = open_build(plan).units("download")
    assert sorted(steps) == [f"{stage} {unit}:" for stage in ("download", "index") for unit in units]


def test_run_part_of_one_step_starts_no_other_process(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "worker_pool", lambda _: pytest.fail("a pool for one step"))
    receipts = run_part(plan, "download", Part(1, len(open_build(plan).units("download"))), processes=2)
    assert [path.name for path in receipts] == ["receipt.json"]


def test_run_part_of_more_parts_than_shards_runs_each_shard_once(plan: Path) -> None:
    units = open_build(plan).units("download")
    parts = 2 * len(units) + 1
    ran = [path for number in range(1, parts + 1) for path in run_part(plan, "download", Part(number, parts))]
    assert [path.parent.name.partition("-")[0] for path in ran] == units


@pytest.mark.slow
def test_part_that_is_cleared_and_killed_does_the_rest_again_when_it_is_retried(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler clears once; its retry does not ask again."""
    for name in ("download", "index.read", "index.index"):
        run_part(plan, name, WHOLE)
    build = open_build(plan)
    finished = {
        (stage, unit): build.finished_at(stage, unit) for stage in ("index", "anchor") for unit in build.units(stage)
    }
    assert {stage for stage, _ in finished} == {"index", "anchor"}
    run = RunnableBuild.run

    def run_first(build: RunnableBuild, stage: str, unit: str, *, verify: bool = False) -> Path:
        if stage != "index":
            raise KeyboardInterrupt
        return run(build, stage, unit, verify=verify)

    monkeypatch.setattr(RunnableBuild, "run", run_first)
    with pytest.raises(KeyboardInterrupt):
        run_part(plan, "index.read", WHOLE, again=True)
    monkeypatch.setattr(RunnableBuild, "run", run)
    run_part(plan, "index.read", WHOLE)
    build = open_build(plan)
    assert all(build.finished_at(stage, unit) > before for (stage, unit), before in finished.items())


def test_run_task_of_a_plan_of_another_version_is_refused(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.builds.plan.__version__", "99.0")
    with raises("run.code_replaced", "corpusmill"):
        run_part(plan, "download", WHOLE)
    replaced = plan_dataset(open_build(plan).config)
    assert replaced != plan
    assert run_part(replaced, "download", WHOLE)


@pytest.mark.parametrize("edited", [b'"size_bytes": ', b'"name": "', b'"corpusmill": "', b'"text_field": "'])
def test_run_task_of_a_plan_whose_receipt_was_edited_anywhere_is_refused(plan: Path, edited: bytes) -> None:
    """Tasks take little of it; its seal is that of the whole file."""
    whole = plan.read_bytes()
    assert edited in whole
    plan.write_bytes(whole.replace(edited, edited + b"1", 1))
    with raises("receipt.broken_seal"):
        run_part(plan, "download", WHOLE)


HUNGRY = """
import os
import time
from pathlib import Path

def hungry(document):
    taken = bytearray(600 << 20)  # zeros that nobody has touched take no memory
    began, touched = time.monotonic(), 0
    while touched < len(taken):  # 600 MB within two seconds: the pool looks ten times a second
        grown = min(len(taken), int((time.monotonic() - began) / 2 * len(taken))) // 4096 * 4096
        taken[touched:grown:4096] = b"1" * ((grown - touched) // 4096)
        touched = grown
    marks = Path(os.environ["MARKS"])
    (marks / str(os.getpid())).touch()
    while len(list(marks.iterdir())) < int(os.environ["AT_ONCE"]):
        os.sched_yield()
    return True
"""


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A memory control group of 1,100 MB, into which a program goes that writes its number into the file."""
    group = Path(f"/sys/fs/cgroup/memory/corpusmill-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("memory control groups of version 1 cannot be made here (needs root)")
    (group / "memory.limit_in_bytes").write_text(str(1_100_000_000))
    yield group / "cgroup.procs"
    while (group / "cgroup.procs").read_text():
        os.sched_yield()
    group.rmdir()


@pytest.mark.slow
def test_run_task_whose_worker_the_kernel_kills_for_memory_names_its_unit_and_peak_and_fits_with_fewer(
    tmp_path: Path, room: Path
) -> None:
    for name in "ab":
        (tmp_path / f"corpus/{name}.jsonl").parent.mkdir(exist_ok=True)
        (tmp_path / f"corpus/{name}.jsonl").write_text('{"id": "1", "text": "a text"}\n')
    (tmp_path / "own.py").write_text(HUNGRY)
    source = {"paths": [str(tmp_path / "corpus")], "shard_bytes": 1}
    values = configuration(tmp_path, source=source, steps=[{"use": "own:hungry"}])
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(values))

    def run(*arguments: str, at_once: int) -> subprocess.CompletedProcess[str]:
        (marks := tmp_path / f"marks-{at_once}").mkdir(exist_ok=True)
        environment = os.environ | {
            "PYTHONPATH": str(tmp_path),
            "MARKS": str(marks),
            "AT_ONCE": str(at_once),
        }
        return subprocess.run(
            [sys.executable, "-m", "corpusmill.cli", *arguments],
            env=environment,
            preexec_fn=lambda: room.write_text(str(os.getpid())),
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("plan", str(config), at_once=1).returncode == 0
    (plan,) = tmp_path.glob("work/tiny/plan/*/receipt.json")
    assert run("run-task", str(plan), "download", "1/1", at_once=1).returncode == 0
    lost = run("run-task", str(plan), "index.read", "1/1", "--workers", "2", at_once=2)
    assert lost.returncode == TransientError.exit_code, lost.stderr
    said = re.search(
        r"died while it ran (filter \d{5}(?: and filter \d{5})?)\n.* peak at least ([\d, ]+) bytes", lost.stderr
    )
    assert said, lost.stderr
    units, peaks = said[1].split(" and "), [int(peak.replace(",", "")) for peak in said[2].split(", ")]
    assert len(units) == len(peaks)  # the kernel may have killed both
    assert all(100 << 20 < peak < 1_100_000_000 for peak in peaks)
    assert run("run-task", str(plan), "index.read", "1/1", "--workers", "1", at_once=1).returncode == 0


GATE = """
import os
from pathlib import Path

def gate(document):
    if document.text == "the last":
        Path(os.environ["AT_THE_LAST"]).write_text(str(os.getpid()))
        while not Path(os.environ["OPEN"]).exists():
            os.sched_yield()
    return True
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["the program", "its worker"])
def test_run_task_with_workers_that_is_killed_at_its_last_shard_leaves_no_process_and_repeats_that_one_alone(
    tmp_path: Path, killed: str
) -> None:
    texts = ["the first", "the second", "the third", "the last"]
    (tmp_path / "corpus").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / f"corpus/{number}.jsonl").write_text(json.dumps({"id": str(number), "text": text}) + "\n")
    (tmp_path / "own.py").write_text(GATE)
    source = {"paths": [str(tmp_path / "corpus")], "shard_bytes": 1}
    values = configuration(tmp_path, source=source, steps=[{"use": "own:gate"}])
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values))
    at_the_last, opened = tmp_path / "at_the_last", tmp_path / "opened"
    variables = {"PYTHONPATH": str(tmp_path), "AT_THE_LAST": str(at_the_last), "OPEN": str(opened)}

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "corpusmill.cli", *arguments], env=os.environ | variables)

    assert start("plan", str(tmp_path / "tiny.yaml")).wait() == 0
    (plan,) = tmp_path.glob("work/tiny/plan/*/receipt.json")
    assert start("run-task", str(plan), "download", "1/1").wait() == 0
    task = ("run-task", str(plan), "index.read", "1/1", "--workers", "2")
    program = start(*task)
    until = time.monotonic() + 60
    while not (
        at_the_last.exists()
        and at_the_last.read_text()
        and len(list(tmp_path.glob("work/tiny/filter/*/receipt.json"))) == len(texts) - 1
    ):
        assert program.poll() is None
        assert time.monotonic() < until
        os.sched_yield()
    processes = psutil.Process(program.pid).children(recursive=True)
    assert len(processes) >= 2
    os.kill(program.pid if killed == "the program" else int(at_the_last.read_text()), signal.SIGKILL)
    assert program.wait() == (-signal.SIGKILL if killed == "the program" else TransientError.exit_code)
    _, left = psutil.wait_procs(processes, timeout=20)
    for process in left:
        process.kill()
    assert left == []

    finished = {path: path.stat().st_mtime_ns for path in tmp_path.glob("work/tiny/*/*/receipt.json")}
    opened.touch()
    assert start(*task).wait() == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    units = open_build(plan).units("filter")
    assert all(open_build(plan).finished_at("filter", unit) for unit in units)
    assert len(units) == len(texts)


def test_run_task_program_ends_with_the_process_that_started_it(plan: Path) -> None:
    read_end, write_end = os.pipe()  # its other end is open as long as the program lives
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys, time\n"
            "os.environ['CORPUSMILL_TASK'] = str(os.getpid())\n"
            "subprocess.run(sys.argv[1:], pass_fds=[int(os.environ['HELD'])])",
            *PROGRAM,
            str(plan),
            "download",
            "1/1",
            "--workers",
            "2",
        ],
        env=os.environ | {"HELD": str(write_end)},
        pass_fds=[write_end],
        stdout=subprocess.PIPE,
    )
    os.close(write_end)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert select.select([read_end], [], [], 10)[0]
    assert os.read(read_end, 1) == b""
    os.close(read_end)
