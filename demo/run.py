"""`make demo`: a dataset from raw text to four training formats, under Airflow, offline.

Collects the sample corpus, starts Airflow (unless it runs), triggers build_dataset over REST, shows progress,
prints the report, and stops Airflow again if it was started here.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import server
from rest import Api

from corpusmill.builds.graph import open_build
from corpusmill.builds.progress import RunProgress
from corpusmill.engine.stage import StepMissingError
from corpusmill.report.progress import StageProgress, progress_view
from corpusmill.report.summary import from_json
from corpusmill.report.terminal import print_summary

SAMPLE = server.ROOT / "sample"
POLL_SECONDS = 0.5


class RunFailedError(Exception):
    """The run ended without success; the message carries what the failed tasks logged."""


def main() -> int:
    """Run the demo; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Airflow is stopped then, too
    began = time.monotonic()
    started = False
    try:
        kernels = beside(
            "The kernels could not be compiled", str(server.ROOT / "deploy" / "compile_kernels.py"), "demo"
        )
        with sample_corpus(), kernels:
            airflow, started = server.start()
        print(f"Airflow runs at {airflow.url}   ({time.monotonic() - began:.0f} s)")
        build_demo(Api(airflow))
    except (server.ServerError, RunFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Finished steps are kept and will be reused.", file=sys.stderr)
        return 130
    finally:
        if started and server.stop():
            print("Airflow is stopped.")
    print(f"All of it took {time.monotonic() - began:.0f} s.  Next: make up (the UI), or read README.md.")
    return 0


def build_demo(api: Api) -> None:
    """Trigger the DAG, follow the run to its end, print its report."""
    run = f"demo_{datetime.now(UTC):%Y%m%dT%H%M%S}"
    api.trigger(run)
    print(f"Building the dataset: {api.run_page(run)}")
    try:
        state = follow(api, run)
    except (KeyboardInterrupt, SystemExit):
        api.give_up(run)  # else it would be resumed when Airflow starts again
        raise
    if state != "success":
        failures = "\n".join(f"  {task.name}\n{task.log}" for task in api.failed_tasks(run))
        raise RunFailedError(f"The run {run} {state}.\n{failures}")
    # A run in which nothing has changed ends with its plan, which names the last report.
    report = Path(str(api.result(run, "report") or api.result(run, "plan", "unchanged"))).parent
    print_summary(from_json((report / "summary.json").read_bytes()), report / "report.html")
    print(f"In the UI: make up, then {api.run_page(run)}")


def follow(api: Api, run: str) -> str:
    """Show how far the stages are until the run has ended; returns its state."""
    while (plan := api.result(run, "plan")) is None:
        if (state := api.run_state(run)) in {"success", "failed"}:
            return state
        time.sleep(POLL_SECONDS)
    with progress_view(lambda: progress_of(Path(plan))):
        while (state := api.run_state(run)) not in {"success", "failed"}:
            time.sleep(POLL_SECONDS)
    return state


def progress_of(plan_receipt: Path) -> list[StageProgress]:
    """How far a run elsewhere is, by the receipts that are there at this moment."""
    build = open_build(plan_receipt)
    progress = RunProgress(build.graph, build.graph.names)
    with build.at_this_moment():
        for stage in build.graph.names:
            # Units may not be known yet, and a receipt goes when its step runs again.
            with suppress(StepMissingError, FileNotFoundError):
                progress.begin(build, stage)
                for unit in build.units(stage):
                    if build.find(stage, unit):
                        progress.end(build, stage, unit)
    return progress.read()


@contextmanager
def sample_corpus() -> Iterator[None]:
    """Collect the sample corpus beside whatever the body does; it appears under its name when it is complete."""
    if SAMPLE.exists():
        print(f"Sample text: {SAMPLE}")
        yield
        return
    print(f"Collecting sample text from the installed Python packages: {SAMPLE}")
    partial = SAMPLE.with_name(".sample-being-written")
    with beside("The sample corpus could not be written", str(server.ROOT / "deploy/sample_corpus.py"), str(partial)):
        yield
    partial.rename(SAMPLE)


@contextmanager
def beside(failed: str, *arguments: str) -> Iterator[None]:
    """Run Python with these arguments while the body runs, then wait for it."""
    with subprocess.Popen([sys.executable, *arguments], env=server.environment(server.DEFAULT_PORT)) as process:
        try:
            yield
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RunFailedError(f"{failed}; its messages are above. Exit code {process.returncode}.")


if __name__ == "__main__":
    sys.exit(main())
