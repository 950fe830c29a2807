"""What the wheel costs an Airflow that is already there: time to import its DAG file, growth of its environment.

    .venv/bin/python -m benchmarks.existing_airflow

A fresh environment gets Airflow, then the wheel. The DAG file of 50 configurations is imported beside a file that makes
50 equal DAGs (as many tasks, edges, groups and fields of a form) with Airflow alone. Each import is a new process that
has loaded Airflow's own modules, as the DAG processor has before it forks. Needs uv and a package index.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.results import write_result
from corpusmill_airflow.__main__ import FILES
from tests.wheel.fresh import AIRFLOWS, make_environment, make_wheel, outside

ROOT = Path(__file__).resolve().parent.parent
DEMO = (ROOT / "dags" / "datasets" / "demo.yaml").read_text()
COUNT, ROUNDS, WARM = 50, 9, 3
MOST_RATIO, MOST_GROWTH_BYTES = 1.3, 30_000_000
# Airflow's own names that DAG files of either kind use, so that neither pays for their import.
READ = """
import json, resource, sys, time
from pathlib import Path
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Asset, ExceptionRetryPolicy, Param, TaskGroup, task
task.short_circuit
file = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.process_time()
bag = BundleDagBag(str(file), bundle_path=file.parent)
seconds = time.process_time() - began
assert not bag.import_errors, bag.import_errors
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"dags": len(bag.dags), "seconds": seconds, "memory_bytes": grown << 10}))
"""
# What a dataset's DAG consists of, for the peer.
DESCRIBED = """
import json, sys
from graphlib import TopologicalSorter
from pathlib import Path
from airflow.dag_processing.dagbag import BundleDagBag
file = Path(sys.argv[1])
dag = BundleDagBag(str(file), bundle_path=file.parent).dags["dataset__demo0"]
upstream = {one.task_id: sorted(one.upstream_task_ids) for one in dag.tasks}
tasks = [
    {
        "id": one.task_id, "label": one.label, "group": one.task_group.group_id, "kind": one.task_type,
        "is_mapped": one.is_mapped, "is_teardown": one.is_teardown, "upstream": upstream[one.task_id],
    }
    for one in map(dag.get_task, TopologicalSorter(upstream).static_order())
]
form = [[name, field.value, {"description": field.description, **field.schema}] for name, field in dag.params.items()]
print(json.dumps({"tasks": tasks, "form": form}))
"""
PLAIN = '''"""DAGs like those of datasets, with Airflow alone (an Airflow DAG file)."""
from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, TaskGroup, TriggerRule, task

TASKS = {tasks!r}
FORM = {form!r}
PLAN = "{{{{ ti.xcom_pull(task_ids='plan') }}}}"
RETRYING = {{"retries": 3, "retry_delay": timedelta(seconds=5), "trigger_rule": TriggerRule.NONE_FAILED}}


@task
def step(stage, plan_receipt):
    pass


@task(map_index_template="{{{{ task.op_kwargs['unit'] }}}}")
def mapped(stage, processes, unit, plan_receipt, airflow):
    pass


@task.short_circuit(ignore_downstream_trigger_rules=True)
def estimate(plan_receipt):
    pass


def plain(number):
    dag = DAG(
        f"plain__{{number}}", schedule=None, default_args=RETRYING, max_active_tasks=64, max_active_runs=1,
        tags=["plain"], doc_md={words!r}, auto_register=False,
    )
    made, groups = {{}}, {{None: None}}
    with dag:
        for one in TASKS:
            if one["group"] not in groups:
                groups[one["group"]] = TaskGroup(one["group"])
            group = {{"task_group": groups[one["group"]]}} if one["group"] else {{}}
            if one["is_mapped"]:
                lists = [made[name] for name in one["upstream"] if "list_" in name]
                steps = mapped.override(task_id=one["label"], execution_timeout=timedelta(days=2), **group)
                task_made = steps.partial(stage=one["label"], processes=1).expand_kwargs(lists[0])
            elif one["kind"] == "Approve":
                task_made = ApprovalOperator(task_id=one["label"], subject="Approve?", retries=0, **group)
            elif one["id"] == "estimate":
                task_made = estimate(PLAN)
            else:
                task_made = step.override(task_id=one["label"], **group)(one["label"], PLAN)
            for name in one["upstream"]:
                made[name] >> task_made
            made[one["id"]] = task_made.as_teardown() if one["is_teardown"] else task_made
    dag.params = {{name: Param(value, **schema) for name, value, schema in FORM}}
    dag.validate()
    return dag


globals().update({{f"plain__{{number}}": plain(number) for number in range({count})}})
'''


def main() -> int:
    """Measure, print, write the result; 1 if the import takes too long or the environment grows too much."""
    version = max(AIRFLOWS)
    with tempfile.TemporaryDirectory(prefix="corpusmill-wheel-") as temporary:
        folder = Path(temporary)
        wheel = make_wheel(folder / "wheels")
        python = make_environment(folder / "airflow-env", f"apache-airflow=={version}", newest=AIRFLOWS[version])
        before = installed_bytes(folder / "airflow-env")
        make_environment(folder / "airflow-env", wheel)
        ours, plain = dag_files(folder, python)
        measured = [(read(python, ours, folder), read(python, plain, folder)) for _ in range(WARM + ROUNDS)][WARM:]
        # With what Python has compiled of ours by now.
        grown = installed_bytes(folder / "airflow-env") - before
    least = [min(item[side]["seconds"] for item in measured) for side in (0, 1)]
    ratio = least[0] / least[1]
    figures: dict[str, Any] = {
        "airflow": version,
        "configurations": COUNT,
        "import seconds of processor, ours": [round(ours["seconds"], 3) for ours, _ in measured],
        "import seconds of processor, equal DAGs": [round(plain["seconds"], 3) for _, plain in measured],
        "ratio of the least": round(ratio, 2),
        "memory of the importing process, ours, bytes": min(ours["memory_bytes"] for ours, _ in measured),
        "memory of the importing process, equal DAGs, bytes": min(plain["memory_bytes"] for _, plain in measured),
        "environment grown by, bytes": grown,
        "load_average": round(os.getloadavg()[0], 1),
    }
    claim = (
        f"a DAG file of {COUNT} configurations is imported within {MOST_RATIO} times what equal DAGs take,"
        f" and the environment grows by at most {MOST_GROWTH_BYTES / 1e6:.0f} MB"
    )
    path = write_result("existing_airflow", claim, figures)
    print(json.dumps(figures, indent=1), path, sep="\n")
    return int(ratio > MOST_RATIO or grown > MOST_GROWTH_BYTES)


def dag_files(folder: Path, python: Path) -> tuple[Path, Path]:
    """(the DAG file of 50 configurations, that of 50 equal DAGs)."""
    (folder / "ours" / "datasets").mkdir(parents=True)
    for number in range(COUNT):
        text = DEMO.replace("name: demo", f"name: demo{number}")
        (folder / "ours" / "datasets" / f"demo{number}.yaml").write_text(text)
    ours = folder / "ours" / "corpusmill_datasets.py"
    ours.write_text(FILES[ours.name])
    described = last_line(python, DESCRIBED, ours, folder)
    plain = folder / "plain" / "plain.py"
    plain.parent.mkdir()
    plain.write_text(PLAIN.format(**json.loads(described), words=DEMO, count=COUNT))
    peer = last_line(python, DESCRIBED.replace("dataset__demo0", "plain__0"), plain, folder)
    edges = [{task["id"]: task["upstream"] for task in json.loads(text)["tasks"]} for text in (described, peer)]
    assert edges[0] == edges[1], {name: (edges[0].get(name), edges[1].get(name)) for name in edges[0] | edges[1]}
    assert len(json.loads(described)["form"]) == len(json.loads(peer)["form"])
    return ours, plain


def read(python: Path, file: Path, folder: Path) -> dict[str, Any]:
    """How a fresh process imported a DAG file."""
    measured: dict[str, Any] = json.loads(last_line(python, READ, file, folder))
    assert measured["dags"] in {COUNT, COUNT + 4}
    return measured


def last_line(python: Path, code: str, file: Path, folder: Path) -> str:
    """What a program of the fresh environment printed last."""
    settings = {"AIRFLOW_HOME": str(folder / "home"), "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}
    environment = outside() | settings | {"CORPUSMILL_ROOT": str(folder)}
    command = [str(python), "-c", code, str(file)]
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def installed_bytes(environment: Path) -> int:
    """Bytes of all files of an environment, but what Python compiled of others' packages."""
    files = [path for path in environment.rglob("*") if path.is_file() and not path.is_symlink()]
    ours = ("corpusmill", "xxhash")
    counted = [
        path
        for path in files
        if path.suffix != ".pyc" or any(name in str(path.relative_to(environment)) for name in ours)
    ]
    return sum(path.stat().st_size for path in counted)


if __name__ == "__main__":
    sys.exit(main())
