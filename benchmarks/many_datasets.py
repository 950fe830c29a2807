"""A thousand datasets' configurations as DAGs: what Airflow spends on them, and whether any goes stale.

The peer is one DAG file with as many equal DAGs (the same tasks, form and words) that are written in Python, without a
configuration. Each file is read as Airflow's processor does it, in a process of its own; processor time is compared.
Beside reading a file, Airflow serializes its DAGs, which costs the same for both and is measured alone. Then a real
DAG processor reads everything three times while other processes keep every core busy, and every DAG must stand.

    .venv/bin/python -m benchmarks.many_datasets
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results import write_result

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "dags" / "datasets" / "demo.yaml"
OURS = ("build_dataset.py", "refused_configurations.py")
MOST_RATIO = 1.3
LONGEST_SECONDS = 1800
PLAIN = """
from airflow.sdk import Param, task
from corpusmill_airflow.dataset_dag import make_dag

FORM = {form!r}


def plain(number):
    @task
    def plan(params=None):
        pass

    @task
    def close():
        pass

    return make_dag(
        f"plain__{{number}}",
        plan,
        finish=lambda reported: reported >> close().as_teardown(),
        dag_display_name=f"Plain {{number}}",
        description="As many tasks as a dataset's DAG has.",
        params={{name: Param(value, **schema) for name, value, schema in FORM}},
        doc_md={words!r},
    )


globals().update({{f"plain__{{number}}": plain(number) for number in range({count})}})
"""
READ = """
import json, sys, time
from pathlib import Path
import airflow.sdk
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.serialization.serialized_objects import DagSerialization
file = Path(sys.argv[1])
import corpusmill_airflow.factory, corpusmill.config.form
began = time.process_time()
bag = BundleDagBag(str(file), bundle_path=file.parent)
parsed = time.process_time()
for dag in bag.dags.values():
    DagSerialization.to_dict(dag)
ended = time.process_time()
assert not bag.import_errors, bag.import_errors
dags = sum(name.startswith(("plain__", "dataset__")) for name in bag.dags)
print(json.dumps({"dags": dags, "parsed": parsed - began, "serialized": ended - parsed}))
"""
FORM_OF_A_DATASET = """
import json
from pathlib import Path
import sys
from airflow.dag_processing.dagbag import BundleDagBag
file = Path(sys.argv[1])
dag = BundleDagBag(str(file), bundle_path=file.parent).dags["dataset__demo0"]
form = dag.params.items()
print(json.dumps([[name, field.value, {"description": field.description, **field.schema}] for name, field in form]))
"""


def main() -> int:
    """Measure, print, write the result; 1 if it takes more than 1.3 times the peer's time, or a DAG goes stale."""
    count, rounds = 1000, 5
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "datasets").mkdir()
        text = DEMO.read_text()
        for number in range(count):
            (folder / "datasets" / f"demo{number}.yaml").write_text(text.replace("name: demo", f"name: demo{number}"))
        environment = settings(folder)
        form = json.loads(last_line(FORM_OF_A_DATASET, [ROOT / "dags" / OURS[0]], environment))
        (folder / "plain.py").write_text(PLAIN.format(form=form, words=text, count=count))
        files = {"plain": folder / "plain.py"} | {name: ROOT / "dags" / name for name in OURS}
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in files}
        for _ in range(rounds):
            for name, file in files.items():
                measured[name].append(json.loads(last_line(READ, [file], environment)))
                print(name, measured[name][-1], flush=True)
        assert measured[OURS[0]][0]["dags"] == measured["plain"][0]["dags"] == count
        # What else the machine does inflates processor time, too: the least of the rounds is nearest to the work's own.
        least = {name: min(item["parsed"] for item in measured[name]) for name in files}
        stands, seconds = processed(folder, environment)
    ratio = sum(least[name] for name in OURS) / least["plain"]
    figures: dict[str, object] = {
        "datasets": count,
        **{
            f"{name}, {part} seconds of processor": [round(item[part], 2) for item in measured[name]]
            for name in files
            for part in ("parsed", "serialized")
        },
        "ratio": round(ratio, 2),
        "DAGs that stand after three times under load": stands,
        "seconds of three times under load": round(seconds),
        "load_average": round(os.getloadavg()[0], 1),
    }
    path = write_result(
        "many_datasets",
        f"{count:,} datasets are parsed within {MOST_RATIO} times what equal DAGs without configurations take,"
        " and none goes stale on a busy machine",
        figures,
    )
    print(f"{ratio:.2f} times the peer's time, {stands:,} of {count:,} DAGs stand; {path}")
    return int(ratio > MOST_RATIO or stands != count)


def settings(folder: Path) -> dict[str, str]:
    """Those of `make up`, with a home of its own."""
    sys.path.insert(0, str(ROOT / "demo"))
    import server

    return server.environment(server.DEFAULT_PORT) | {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow/airflow.db",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "1",
        "CORPUSMILL_DATASETS": str(folder / "datasets"),
        "CORPUSMILL_ROOT": str(folder),
    }


def last_line(code: str, arguments: list[Path], environment: dict[str, str]) -> str:
    """What a program printed last."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


def processed(folder: Path, environment: dict[str, str]) -> tuple[int, float]:
    """(DAGs of datasets that are not stale, seconds) after Airflow's DAG processor read every file three times.

    A process for each core counts in a loop meanwhile.
    """
    airflow = str(Path(sys.executable).with_name("airflow"))
    subprocess.run([airflow, "db", "migrate"], env=environment, check=True, capture_output=True)
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    began = time.monotonic()
    try:
        command = [airflow, "dag-processor", "--num-runs", "3"]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=LONGEST_SECONDS)
    finally:
        for process in load:
            process.kill()
            process.wait()
    seconds = time.monotonic() - began
    with sqlite3.connect(folder / "airflow" / "airflow.db") as database:
        (stands,) = database.execute(
            "select count(*) from dag where dag_id like 'dataset\\_\\_%' escape '\\' and not is_stale"
        ).fetchone()
    return stands, seconds


if __name__ == "__main__":
    sys.exit(main())
