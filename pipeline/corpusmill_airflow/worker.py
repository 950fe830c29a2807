"""Runs the steps of tasks, in this process or in the environment that CORPUSMILL_PYTHON names.

That environment has Corpusmill of this version with all its dependencies; Airflow's own then needs msgspec, pydantic,
PyYAML and xxhash alone.
Claims need Airflow's records of runs, so they stay in the task's process.

Airflow's metrics (StatsD, OpenTelemetry) have the figures of every build as gauges with the tag `dataset`, and a
task's traffic with a work folder in a bucket as counters with the tag `task`:

    corpusmill.build.shards  .source_bytes  .documents  .text_bytes  .removed_bytes  .tokens
    corpusmill.work_folder.requests  .retries  .bytes_received  .bytes_sent  .cache_hits  .cache_misses
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import corpusmill
from corpusmill import installed
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.engine.work_folder.moved import MOVED, moved, report_moved, reported
from corpusmill.errors import CorpusmillError, PermanentError, StorageFullError, TransientError
from corpusmill.lazy import lazily
from corpusmill.storage.mirrored import address_of
from corpusmill_airflow.by_version import Stats

with lazily:
    from corpusmill import questions
    from corpusmill.builds import graph, local

if TYPE_CHECKING:
    from corpusmill.engine.parts import Part

METRICS = "corpusmill.work_folder"
BUILD_METRICS = "corpusmill.build"
FIGURES = ("shards", "source_bytes", "documents", "text_bytes", "removed_bytes", "tokens")
EXIT_CODES = {kind.exit_code: kind for kind in (StorageFullError, TransientError)}


def worker_python() -> str:
    """The interpreter of the workers' environment; "" if that is this one."""
    return os.environ.get("CORPUSMILL_PYTHON", "")


def ask(question: str, **values: Any) -> Any:
    """The answer of corpusmill/questions.py; its errors are raised as one of the error families."""
    if not worker_python():
        return questions.QUESTIONS[question](**values)
    code, out = _run(["corpusmill.questions", question], json.dumps(values))
    answer = json.loads(out) if out else {}
    if "answer" in answer:
        return answer["answer"]
    if "refused" in answer:
        refused = answer["refused"]
        details = tuple((str(label), text) for label, text in refused["details"])
        raise EXIT_CODES.get(code, PermanentError)(refused["text"], details=details)
    raise _why_it_ended(code, question)


def run_part(
    plan_receipt: str,
    name: str,
    part: Part,
    *,
    processes: int | None,
    failures: int,
    again: bool,
    verify: bool = False,
) -> list[str]:
    """Run a part of a task (corpusmill/builds/chain.py), with so many processes, or None for as many as there are cores
    if its step has one task; half as many after each of its `failures`, which may have been for memory. Returns the
    receipts' addresses.

    If no pool can be forked from this process, `corpusmill run-task` does the work, whose lines go to this task's log:
    StorageFullError, TransientError or PermanentError then, depending on its exit code.
    """
    number = _processes(plan_receipt, part, processes) >> failures
    if not worker_python() and (number <= 1 or _may_have_processes()):
        paths = local.run_part(plan_receipt, name, part, processes=max(1, number), again=again, verify=verify)
        return [address_of(path) for path in paths]
    options = ["--workers", str(max(1, number)), *(["--again"] if again else []), *(["--verify"] if verify else [])]
    code, out = _run(["corpusmill.cli", "run-task", plan_receipt, name, str(part), *options])
    print(out, end="")
    if code:
        raise _why_it_ended(code, f"{name} {part}")
    return [line for line in out.splitlines() if Path(line).name == RECEIPT_NAME]


def _processes(plan_receipt: str, part: Part, processes: int | None) -> int:
    if processes or part.of > 1:
        return processes or 1
    return local.worker_count(None, graph.open_build(plan_receipt).plan.source_bytes())


def _may_have_processes() -> bool:
    """Whether a pool can be forked from this process: no other thread runs in it, and it may have children.

    Celery marks its processes as daemons, which may not; it ends them only when they have nothing to do.
    """
    if not local.forks():
        return False
    process = multiprocessing.current_process()
    if process.daemon:
        try:
            process.daemon = False
        except AssertionError:  # not its own process object
            return False
    return True


def require_worker() -> None:
    """PermanentError if steps cannot run: the environment, or a package, is missing or has another version."""
    python = worker_python()
    if not python:
        installed.require_worker()
        return
    command = [python, "-P", "-m", "corpusmill.installed"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        there = json.loads(completed.stdout) if completed.returncode == 0 else {}
    except OSError as error:
        there = {"got": f"no interpreter: {error.strerror}"}
    version, lacking = there.get("version", ""), ", ".join(there.get("missing", ()))
    if version != corpusmill.__version__ or lacking:
        got = f"version {version}" + (f" without {lacking}" if lacking else "") if version else "no Corpusmill"
        raise PermanentError(
            "airflow.environment_differs: the environment of the steps does not match Airflow's",
            where=f"CORPUSMILL_PYTHON={python}",
            expected=f"Corpusmill {corpusmill.__version__} with its dependencies",
            got=there.get("got", got),
            next_step=f'{python} -m pip install "corpusmill=={corpusmill.__version__}"',
        )


def _run(module: list[str], question: str = "") -> tuple[int, str]:
    """(exit code of a program of Corpusmill, its output); its standard error goes to this task's log."""
    python = worker_python() or sys.executable
    # The folder in which Airflow was started may hold anything; -P keeps Python from importing it.
    environment = os.environ | {"CORPUSMILL_TASK": str(os.getpid()), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as asked, tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        asked.write(question)
        asked.seek(0)
        with subprocess.Popen(
            [python, "-P", "-m", *module],
            env=environment,
            stdin=asked,
            stdout=out,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as program:
            try:
                for line in program.stderr or ():
                    print(line, end="")
            except BaseException:  # the task is stopped
                program.kill()
                raise
        out.seek(0)
        return program.returncode, out.read()


def _why_it_ended(code: int, what: str) -> CorpusmillError:
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    if code < 0:
        return TransientError(
            f"airflow.program_killed: the program that ran {what} was killed",
            got=f"{signal.Signals(-code).name}, most likely because memory ran out; peak {peak:,} bytes",
            next_step="nothing: the next try runs half as many units at once",
        )
    if code not in EXIT_CODES:
        require_worker()
    text = f"airflow.program_failed: the program that ran {what} failed; the lines above say why"
    return EXIT_CODES.get(code, PermanentError)(text, got=code)


def count_build(dataset: str, announcement: Mapping[str, Any]) -> None:
    """Emit the figures of a finished build."""
    for name in FIGURES:
        Stats.gauge(f"{BUILD_METRICS}.{name}", announcement[name], tags={"dataset": dataset})


@contextmanager
def traffic_counted(task: str) -> Iterator[None]:
    """Count the traffic of this process and of programs that it starts, and emit it at the end, errors included."""
    moved().news()  # drops earlier counts, which are not this task's
    with tempfile.NamedTemporaryFile() as file:
        os.environ[MOVED] = file.name
        try:
            yield
        finally:
            report_moved()
            del os.environ[MOVED]
            for name, count in reported(Path(file.name)).items():
                Stats.incr(f"{METRICS}.{name}", count, tags={"task": task})
