"""A bucket that others use, too: machines whose clocks differ by an hour, two deployments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config, work_of
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.engine import claim, garbage
from corpusmill.engine.claim import Holder, claim_dataset, claimed
from corpusmill.inspect.verify.verification import verify_build
from corpusmill.storage.mirrored import address_of, mirror_of
from tests.engine.work_folder.machines import keys, machine, objects
from tests.faults.proxy import Answer, FaultyProxy
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

XML_TIME = re.compile(rb"<LastModified>([^<]*)</LastModified>")
ONE, OTHER = Holder("here", "dataset__tiny", "one"), Holder("elsewhere", "dataset__tiny", "two")


@contextmanager
def clock_off(hours: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be a machine whose clock is so many hours slow: all times of the store are as much later for it."""
    by = timedelta(hours=hours)

    def shifted(_method: str, _path: str, answer: Answer) -> Answer:
        headers = [
            (name, format_datetime(parsedate_to_datetime(value) + by, usegmt=True))
            if name.lower() in {"date", "last-modified"}
            else (name, value)
            for name, value in answer.headers
        ]
        return Answer(answer.status, headers, XML_TIME.sub(_later, answer.content))

    def _later(found: re.Match[bytes]) -> bytes:
        at = datetime.fromisoformat(found[1].decode().replace("Z", "+00:00")) + by
        return b"<LastModified>%s</LastModified>" % at.astimezone(UTC).isoformat().replace("+00:00", "Z").encode()

    with FaultyProxy(os.environ["AWS_ENDPOINT_URL"], harm=shifted) as proxy, monkeypatch.context() as inside:
        inside.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield


def config_of(root: Path, work_folder: str, **changes: object) -> DatasetConfig:
    return check_config(configuration(root, work_folder=work_folder, **changes), where="test")


@pytest.mark.parametrize("hours", [-1, 1])
def test_claim_is_as_old_as_the_store_says_on_a_machine_whose_clock_is_an_hour_off(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    claim_dataset(mirror_of("s3://corpus/mill/tiny"), ONE, lambda _: False)
    with clock_off(hours, monkeypatch), machine(tmp_path, "second"):
        with raises("run.under_way", "last renewed"):
            claim_dataset(mirror_of("s3://corpus/mill/tiny"), OTHER, lambda _: False)
        monkeypatch.setattr(claim, "EXPIRES_SECONDS", -1.0)
        claim_dataset(mirror_of("s3://corpus/mill/tiny"), OTHER, lambda _: False)


@pytest.mark.slow
def test_machines_whose_clocks_are_hours_apart_reuse_and_keep_each_other_s_steps(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "corpus", documents=20)
    config = config_of(tmp_path, "s3://corpus/mill")
    with clock_off(1, monkeypatch), machine(tmp_path, "slow"):
        plan = address_of(build_dataset(config, workers=1))
    made = attempts()
    half_an_hour = ScheduleConfig.model_construct(task_timeout=timedelta(minutes=15))
    monkeypatch.setattr(garbage, "ScheduleConfig", lambda: half_an_hour)
    objects().put("mill/tiny/outputs/0123456789abcdef/under-way/tokens", b"half")
    with clock_off(-1, monkeypatch), machine(tmp_path, "fast"):
        assert not garbage.find_garbage(work_of(config), GRAPH)  # what a step under way has sent is new for everybody
        build_dataset(config, workers=1)
        assert not verify_build(open_build(plan)).findings
    every_time = {"report", "upload"}
    assert {name: made[name] for name in made if name.split("/")[0] not in every_time} == {
        name: attempt for name, attempt in attempts().items() if name.split("/")[0] not in every_time
    }


def attempts() -> dict[str, str]:
    """The digest of each receipt in the bucket, by stage and step."""
    receipts = [row for row in objects().list("mill/tiny/") if row.key.endswith("/receipt.json")]
    return {row.key.removeprefix("mill/tiny/"): row.tag for row in receipts}


@pytest.mark.slow
def test_deployments_in_one_bucket_keep_out_of_each_other_s_way(bucket: str, tmp_path: Path) -> None:
    """Two with prefixes of which one begins like the other, and a third with the first's prefix and dataset."""
    write_corpus(tmp_path / "corpus", documents=20)
    places = ("s3://corpus/mill", "s3://corpus/mill-2", "s3://corpus/mill/tiny")
    destinations = [{"path": str(tmp_path / name)} for name in ("one", "two", "within")]
    configs = [config_of(tmp_path, place, destinations=[to]) for place, to in zip(places, destinations, strict=True)]
    plans = []
    for number, config in enumerate(configs):
        with machine(tmp_path, f"deployment {number}"):
            plans.append(address_of(build_dataset(config, workers=1)))
    with machine(tmp_path, "deployment 0"), claimed(work_of(configs[0])):
        with machine(tmp_path, "the same dataset"), raises("run.under_way"):
            build_dataset(configs[0], workers=1)
        with machine(tmp_path, "deployment 1"), claimed(work_of(configs[1])):
            pass
    before = keys("mill-2/")
    with machine(tmp_path, "deployment 0"):
        newer = config_of(tmp_path, places[0], destinations=destinations[:1], shuffle={"seed": 8})
        build_dataset(newer, workers=1)
        assert garbage.remove_garbage(work_of(newer), GRAPH, garbage.find_garbage(work_of(newer), GRAPH))
    assert keys("mill-2/") == before
    for number in (1, 2):
        with machine(tmp_path, f"deployment {number}"):
            assert not verify_build(open_build(plans[number])).findings, places[number]
