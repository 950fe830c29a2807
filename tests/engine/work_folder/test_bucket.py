"""Work folders in a bucket: machines that share nothing else build what one machine builds in a folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig, check_config, work_of
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.engine import garbage
from corpusmill.engine.ledger.cache import disk_bytes
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.runs import begin_run
from corpusmill.errors import PermanentError
from corpusmill.inspect.verify.verification import verify_build
from corpusmill.storage.mirrored import address_of
from tests.engine.work_folder.machines import build_apart, keys, machine, objects, work_folder
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

Machine = Callable[[str], AbstractContextManager[Path]]


@pytest.fixture
def other(tmp_path: Path, bucket: str) -> Machine:
    """Makes machines beside `first`, whose mirrors share nothing."""
    return partial(machine, tmp_path)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "corpus", documents=24)
    return tmp_path


def config_in(root: Path, work_folder: str, **changes: Any) -> DatasetConfig:
    out = [{"path": str(root / f"out-{len(work_folder)}")}]
    values = {**configuration(root), "work_folder": work_folder, "destinations": out, **changes}
    return check_config(values, where="test")


def in_bucket(root: Path, **changes: Any) -> DatasetConfig:
    return config_in(root, work_folder(), **changes)


def delivered(config: DatasetConfig) -> dict[str, bytes]:
    folder = Path(config.destinations[0].path, config.name, "latest")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture(scope="module")
def locally(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a build of the same sources in a folder delivers."""
    root = tmp_path_factory.mktemp("locally")
    write_corpus(root / "corpus", documents=24)
    config = config_in(root, str(root / "work"))
    build_dataset(config, workers=1)
    return delivered(config)


def outputs_in_bucket() -> list[str]:
    return keys("mill/tiny/outputs/")


@pytest.mark.slow
def test_build_with_each_step_on_a_machine_of_its_own_that_reclaims_delivers_what_a_local_one_does(
    corpus: Path, other: Machine, locally: dict[str, bytes]
) -> None:
    config = in_bucket(corpus, reclaim="eager")
    plan = build_apart(config, corpus / "machines")
    assert delivered(config) == locally
    build = open_build(plan)
    gone = [
        f"{build.receipt(stage, unit).attempt}/{name}"
        for stage, unit in steps_of(build)
        for name in build.receipt(stage, unit).reclaimed
    ]
    there = outputs_in_bucket()
    assert gone
    assert not [key for key in there if any(key.endswith(item) for item in gone)]


@pytest.mark.slow
def test_bit_that_flips_in_the_cache_is_fetched_again_and_verify_reads_what_the_bucket_holds(
    corpus: Path, other: Machine
) -> None:
    build = open_build(build_dataset(in_bucket(corpus), workers=1))
    path = build.step_folder("index", "00000") / "tokenized"
    before = path.read_bytes()
    path.write_bytes(before[:5] + bytes([before[5] ^ 1]) + before[6:])
    assert (open_build(build.plan_receipt).folder("index", "00000") / "tokenized").read_bytes() == before
    address = address_of(build.plan_receipt)
    assert not verify_build(open_build(address)).findings
    lost = next(key for key in outputs_in_bucket() if key.endswith("/tokenized"))
    flipped = next(key for key in outputs_in_bucket() if key.endswith("/tokens"))
    objects().delete(lost)
    stored = objects().get(flipped)
    assert stored
    content = bytearray(stored.content)
    content[len(content) // 2] ^= 1
    objects().put(flipped, bytes(content))
    for name in ("first", "second"):  # whose cache holds both as they were, and whose cache is empty
        with other(name):
            actual = verify_build(open_build(address)).findings
        assert {finding.where.rpartition("/")[2] for finding in actual} >= {"tokenized", "tokens"}, name


def test_range_of_an_object_that_has_become_shorter_is_gone(bucket: str) -> None:
    objects().put("mill/some", b"0123456789")
    assert objects().read("mill/some", 2, 10) == b"23456789"
    objects().put("mill/some", b"01234")
    for first in (2, 5):  # a part of it is left, and nothing
        with raises("work_folder.object_gone"):
            objects().read("mill/some", first, 10)


@pytest.mark.parametrize("left", quick([0.5, None], 0, 1))
def test_object_that_is_lost_or_cut_after_its_receipt_is_made_again_by_its_step(
    corpus: Path, other: Machine, locally: dict[str, bytes], left: float | None
) -> None:
    config = in_bucket(corpus)
    plan = address_of(begin_run(plan_dataset(config, to_build=True)))
    for stage in ("download", "index"):
        for unit in open_build(plan).units(stage):
            open_build(plan).run(stage, unit)
    for key in outputs_in_bucket():
        if key.endswith(("/tokenized", "/.blocks")):
            stored = objects().get(key)
            assert stored
            objects().delete(key)
            if left is not None:
                objects().put(key, stored.content[: int(left * len(stored.content))])
    with other("second"):
        build_dataset(config, workers=1)
    assert delivered(config) == locally
    with other("third"):
        assert not verify_build(open_build(plan)).findings


@pytest.mark.slow
def test_garbage_is_what_no_plan_leads_to_and_what_a_killed_worker_left(
    corpus: Path, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = in_bucket(corpus)
    build_dataset(config, workers=1)
    objects().put("mill/tiny/outputs/0123456789abcdef/killed/tokens", b"half")
    begin_upload("mill/tiny/outputs/0123456789abcdef/in-parts/tokens")
    newer = in_bucket(corpus, shuffle={"seed": 8})
    build_dataset(newer, workers=1)
    needed = delivered(newer)
    at_once = ScheduleConfig.model_construct(task_timeout=timedelta(seconds=-1))
    monkeypatch.setattr(garbage, "ScheduleConfig", lambda: at_once)
    with other("second"):
        actual = garbage.find_garbage(work_of(newer), GRAPH)
        assert {item.reason for item in actual} == {garbage.SUPERSEDED, garbage.ABANDONED}
        assert garbage.remove_garbage(work_of(newer), GRAPH, actual)
        assert not garbage.find_garbage(work_of(newer), GRAPH)
    with other("third"):
        build = open_build(build_dataset(newer, workers=1))
        assert not verify_build(build).findings
    assert delivered(newer) == needed
    attempts = {build.receipt(*step).attempt for step in steps_of(build)}
    left = {key.split("/")[4] for key in outputs_in_bucket()} - attempts
    assert not any("killed" in item for item in left)
    assert not objects().unfinished("")


def test_output_of_several_parts_arrives_as_it_was(tmp_path: Path, other: Machine) -> None:
    content = b"".join(number.to_bytes(4, "little") for number in range(5 << 20))  # 20 MiB: three parts
    (tmp_path / "output").write_bytes(content)
    objects().send(tmp_path / "output", "mill/output")
    assert objects().read("mill/output", 0, len(content)) == content


def test_output_whose_upload_fails_leaves_no_upload_behind(
    tmp_path: Path, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "output").write_bytes(bytes(20 << 20))
    store: Any = objects().store
    usual, writes = store.call, count()

    def call(verb: str, where: str, request: Any) -> Any:
        if verb == "write" and next(writes) == 2:  # after the begin and one part
            raise PermanentError("disk.broken: the disk of this test is broken")
        return usual(verb, where, request)

    monkeypatch.setattr(store, "call", call)
    with raises("disk.broken"):
        objects().send(tmp_path / "output", "mill/output")
    assert not objects().unfinished("")


@pytest.mark.slow
def test_cache_keeps_its_bound_and_the_build_its_bytes(
    corpus: Path, other: Machine, locally: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_CACHE_BYTES", "250000")
    config = in_bucket(corpus)
    plan = build_dataset(config, workers=1)
    assert delivered(config) == locally
    kept = sum(disk_bytes(path.parent) for path in work_of(config).glob("*/*/receipt.json"))
    receipts = sum(1 for path in work_of(config).glob("*/*/receipt.json"))
    assert kept <= 250_000 + 3 * 4096 * receipts
    assert not verify_build(open_build(plan)).findings


def steps_of(build: RunnableBuild) -> list[tuple[str, str]]:
    return [(stage, unit) for stage in GRAPH.names for unit in build.units(stage)]


def begin_upload(key: str) -> None:
    """Leave an upload in parts as a worker does that is killed."""
    store: Any = objects().store
    store.client.create_multipart_upload(Bucket="corpus", Key=key)
