"""A real Airflow: a task that is killed in the middle begins its shard anew; a full disk under a task (slow)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zstandard

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from deploy.sample_corpus import write_sample_corpus
from tests.dags.live import LONGEST_SECONDS, Live, free_port
from tests.disks import enlarge, small_disk
from tests.system.corpus import lines_of, make_documents

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Airflow, as `make up` starts it."""
    live = Live(tmp_path_factory.mktemp("live"), free_port())
    try:
        live.server("up")
        live.login()
        yield live
    finally:
        live.server("down")


def settings(name: str, source: Path, root: Path, work: Path | None = None) -> dict[str, Any]:
    """One shard, and the engine that takes longest for it."""
    return {
        "name": name,
        "source": {"paths": [str(source)]},
        "dedup": {"mode": "none"},
        "tokenizer": {"name": "cl100k_base", "engine": "tiktoken"},
        "shuffle": {"seed": 3},
        "exports": {"nanoset": {}},
        "destinations": [{"path": str(root / "out")}],
        "work_folder": str(work or root / "work"),
    }


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def built_alone(name: str, source: Path, root: Path) -> dict[str, bytes]:
    """What a build without Airflow, that nothing disturbs, makes of the same source."""
    build_dataset(check_config(settings(name, source, root), where="a test"), workers=1)
    return files_below(root / "out")


def test_killed_task_begins_its_shard_anew_and_the_run_delivers_the_same_bytes(live: Live, tmp_path: Path) -> None:
    source, dag = tmp_path / "corpus", "dataset__killed"
    write_sample_corpus(source, target_bytes=20_000_000, files=1)
    shutil.copy(source / "sample_000.jsonl.zst", source / "the_same_again.jsonl.zst")  # 40 MB: five seconds and more
    live.configure(settings("killed", source, tmp_path))
    live.trigger(dag, "once")

    def begun() -> list[Path]:
        """The tokens of a shard, some of which are written."""
        files = (tmp_path / "work" / "killed" / "tokenize").glob("*/tokens")
        return [path for path in files if path.stat().st_size]

    (tokens,) = live.wait_for("tokens", begun, every_seconds=0.2)
    running = live.tasks(dag, "once", "tokenize")["tokenize", 0]
    assert (running["state"], running["try_number"]) == ("running", 1)
    with tokens.open("rb") as left:  # so that no other file gets its inode
        os.kill(running["pid"], signal.SIGKILL)
        assert live.finish(dag, "once", seconds=2 * LONGEST_SECONDS) == "success"
        assert not os.path.samestat(os.fstat(left.fileno()), tokens.stat())
    assert live.tasks(dag, "once", "tokenize")["tokenize", 0]["try_number"] == 2
    assert files_below(tmp_path / "out") == built_alone("killed", source, tmp_path / "alone")


@pytest.mark.thorough
def test_killed_program_of_a_task_with_several_units_is_started_again_with_fewer_at_a_time(
    live: Live, tmp_path: Path
) -> None:
    source, dag = tmp_path / "corpus", "dataset__program"
    write_sample_corpus(source, target_bytes=20_000_000, files=4)
    plain = settings("program", source, tmp_path) | {"source": {"paths": [str(source)], "shard_bytes": "2MB"}}
    live.configure(plain | {"dag": {"task_processes": 2}})
    live.trigger(dag, "once")

    def at_work() -> list[psutil.Process]:
        return live.processes("run-task", "tokenize", "--workers", "2")

    program = live.wait_for("a program", at_work, every_seconds=0.2)[0]
    program.kill()
    assert live.finish(dag, "once", seconds=2 * LONGEST_SECONDS) == "success"
    assert [task["try_number"] for task in live.tasks(dag, "once", "tokenize").values()] == [2]
    assert "SIGKILL" in live.log(dag, "once", "tokenize", map_index=0)
    assert not live.processes("run-task")
    alone = settings("program", source, tmp_path / "alone") | {"source": plain["source"]}
    build_dataset(check_config(alone, where="a test"), workers=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "alone" / "out")


def test_full_disk_is_said_in_the_log_and_with_room_the_task_ends_with_the_right_bytes(
    live: Live, tmp_path: Path
) -> None:
    source, dag = tmp_path / "corpus", "dataset__full"
    source.mkdir()
    (source / "a.jsonl.zst").write_bytes(zstandard.compress(lines_of(make_documents(60) * 20)))
    with small_disk(tmp_path / "disk", mebibytes=64) as disk:
        live.configure(settings("full", source, tmp_path, work=disk / "work"))
        live.trigger(dag, "once")
        live.wait_for(
            "a plan, which finds room",
            lambda: any(task["state"] == "success" for task in live.tasks(dag, "once", "plan").values()),
            every_seconds=0.1,
        )
        status = os.statvfs(disk)
        (disk / "ballast").write_bytes(bytes(status.f_bavail * status.f_frsize - 200_000))  # somebody else's file

        def waiting() -> list[dict[str, Any]]:
            return [task for task in live.tasks(dag, "once").values() if task["state"] in {"up_for_retry", "failed"}]

        (stopped,) = live.wait_for("a task without room", waiting)
        assert stopped["state"] == "up_for_retry"  # in five minutes, by itself
        task, place = stopped["task_id"], stopped["map_index"]
        printed = live.log(dag, "once", task, map_index=place)
        for words in ("error[step.disk_full]", str(disk), "bytes free", "free space or move"):
            assert words in printed
        assert "finished steps are reused" in printed

        (disk / "ballast").unlink()
        enlarge(disk, mebibytes=200)
        body = {"dry_run": False, "dag_run_id": "once", "task_ids": [[task, place]], "only_failed": False}
        live.call("POST", f"/api/v2/dags/{dag}/clearTaskInstances", body)
        assert live.finish(dag, "once") == "success"
        assert live.tasks(dag, "once", task)[task, place]["try_number"] == 2
    assert files_below(tmp_path / "out") == built_alone("full", source, tmp_path / "alone")
