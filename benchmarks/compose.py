"""Claim: in the containers of docker-compose.yaml, on two cores, 136 MB of text with dedup and all four formats take at
most 35 s of a run, in containers that have built before; `corpusmill build` runs on the same machine in the same round.

Every round is a dataset of its own, so nothing is reused; the first is not counted. `python -m benchmarks.compose`; run
it alone. `--shards 178 --megabytes 356`: as benchmarks/airflow_tasks.py has them with LocalExecutor, into a result of
its own, in which a run takes at most 3 times the command.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.numbered import write_numbered
from benchmarks.results import write_result
from tests.containers.compose import ROOT, Compose, composed, require_docker, require_images

MEGABYTES, SHARDS, ROUNDS = 136, 4, 3
HEALTHY_SECONDS = 300


def settings(name: str, texts: str, places: str, source: dict[str, int]) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"paths": [texts], **source},
        "dedup": {"mode": "remove", "minimum_bytes": 500},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": f"{places}/outputs"}],
        "work_folder": f"{places}/work",
    }


def under_compose(compose: Compose, name: str) -> dict[str, float]:
    """Seconds of a run of a dataset's DAG, and how many task instances were started."""
    dag = f"dataset__{name}"
    compose.trigger(dag, "build")
    assert compose.finish(dag, "build", seconds=900) == "success", compose.last_words()
    run = compose.call("GET", f"/api/v2/dags/{dag}/dagRuns/build")
    started = [task for task in compose.tasks(dag, "build").values() if task["state"] == "success"]
    assert all(task["try_number"] == 1 for task in started)
    return {"seconds": round(float(run["duration"]), 1), "tasks": len(started)}


def by_command(folder: Path, name: str, source: dict[str, int]) -> float:
    """Seconds of `corpusmill build`, workers as many as cores."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings(name, str(folder / "data"), str(folder / f"here-{name}"), source)))
    cache = {"NUMBA_CACHE_DIR": str(ROOT / ".cache" / "numba"), "NUMBA_THREADING_LAYER": "workqueue"}
    command = [sys.executable, "-m", "corpusmill.cli", "build", str(path)]
    began = time.monotonic()
    subprocess.run(command, check=True, env=os.environ | cache, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return round(time.monotonic() - began, 1)


def main() -> None:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--shards", type=int, default=SHARDS, help="as many files; by default one shard holds them all")
    asked = parser.parse_args()
    usual = (asked.megabytes, asked.shards) == (MEGABYTES, SHARDS)
    source = {} if usual else {"shard_bytes": asked.megabytes * 1_010_000 // asked.shards}
    require_docker()
    require_images()
    rounds = []
    with composed(Path(tempfile.mkdtemp()) / "corpusmill", "shared") as compose:
        names = [f"round{number}" for number in range(ROUNDS + 1)]
        write_numbered(compose.folder / "data", asked.megabytes, asked.shards)
        for name in names:
            text = yaml.safe_dump(settings(name, "/texts", "/data", source))
            (compose.folder / "dags" / "datasets" / f"{name}.yaml").write_text(text)
        compose.line("make compose-env && docker compose up --build --detach")
        compose.wait_until_healthy(HEALTHY_SECONDS)
        compose.log_in()
        for name in names:
            rounds.append(under_compose(compose, name) | {"command_seconds": by_command(compose.folder, name, source)})
            print(rounds[-1], flush=True)
    figures = {"text_megabytes": asked.megabytes, "rounds": rounds[1:]}
    figures["most_seconds"] = max(each["seconds"] for each in rounds[1:])
    figures["most_times_the_command"] = round(max(each["seconds"] / each["command_seconds"] for each in rounds[1:]), 2)
    print(figures)
    name = "compose" if usual else f"compose_{asked.shards}_shards_of_{asked.megabytes // asked.shards}MB"
    write_result(name, (__doc__ or "").split("\n\n", maxsplit=1)[0], figures)


if __name__ == "__main__":
    main()
