"""References with a work folder in a bucket: indexed by one machine, read by others that share nothing else."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.engine.garbage import Garbage, find_garbage, remove_garbage
from corpusmill.inspect.verify.verification import verify_build
from tests.engine.work_folder.machines import machine
from tests.system.corpus import configuration, lines_of, make_documents

TEXTS = make_documents(60, seed=5)


def settings(root: Path, name: str, work_folder: str, *against: str) -> DatasetConfig:
    (root / name).mkdir(exist_ok=True)
    (root / name / "own.jsonl").write_bytes(lines_of(TEXTS[30:]))
    values: dict[str, Any] = configuration(
        root,
        name=name,
        source={"paths": [str(root / name)]},
        exports={"megatron": {}},
        dedup={"mode": "remove", "minimum_bytes": 100, **({"against": list(against)} if against else {})},
        destinations=[{"path": f"s3://corpus/{name}-out"} if name == "earlier" else {"path": str(root / "out")}],
        work_folder=work_folder,
    )
    return check_config(values, where="test")


def documents(root: Path, name: str) -> list[str]:
    lines = (root / "out" / name / "latest" / "documents" / "own.jsonl").read_bytes().splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.slow
def test_reference_dataset_in_a_bucket_is_indexed_once_for_all_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moto: str, moto_client: Any
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    earlier = settings(tmp_path, "earlier", str(tmp_path / "work"))
    (tmp_path / "earlier" / "own.jsonl").write_bytes(lines_of(TEXTS[:30]))
    build_dataset(earlier, workers=1)
    latest = "s3://corpus/earlier-out/earlier/latest"
    build_dataset(settings(tmp_path, "locally", str(tmp_path / "work"), latest), workers=1)
    for name in ("first", "second"):
        with machine(tmp_path / "mirrors", name):
            config = settings(tmp_path, name, "s3://corpus/mill", latest)
            made = open_build(build_dataset(config, workers=1))
            assert made.plan.references
            assert len(made.plan.references[0].version) == 12
            indexed = [
                made.receipt(stage, unit) for stage in ("reference", "reference_index") for unit in made.units(stage)
            ]
            attempts = {receipt.attempt for receipt in indexed}
            if name == "first":
                of_first = attempts
            assert attempts == of_first
            assert made.total("union", "reference_bytes") > 0
            assert not verify_build(made).findings
            assert not any(".common" in str(item.folder) for item in find_garbage(made.work, GRAPH))
            assert documents(tmp_path, name) == documents(tmp_path, "locally")
    assert plan_dataset(settings(tmp_path, "locally", str(tmp_path / "work"), latest))
    require_collected_when_unneeded(tmp_path, moto_client, latest)


def require_collected_when_unneeded(root: Path, client: Any, latest: str) -> None:
    """What both datasets had in common stays while one of them needs it, and until it is old; then all of it goes."""
    with machine(root / "mirrors", "second"):
        alone = settings(root, "second", "s3://corpus/mill")
        made = open_build(build_dataset(alone, workers=1))
        assert not common_garbage(made.work, collecting_at_once(alone))  # the other dataset needs it
    with machine(root / "mirrors", "third"):
        alone = settings(root, "first", "s3://corpus/mill")
        made = open_build(build_dataset(alone, workers=1))
        assert not common_garbage(made.work)
        actual = common_garbage(made.work, collecting_at_once(alone))
        assert {garbage.folder.parent.name for garbage in actual} == {"reference", "reference_index"}
        remove_garbage(made.work, GRAPH, actual)
        assert not common_garbage(made.work, collecting_at_once(alone))
        assert "Contents" not in client.list_objects_v2(Bucket="corpus", Prefix="mill/.common/")
        again = open_build(build_dataset(settings(root, "first", "s3://corpus/mill", latest), workers=1))
        assert documents(root, "first") == documents(root, "locally")
        assert not verify_build(again).findings


def collecting_at_once(config: DatasetConfig) -> DatasetConfig:
    """The same dataset, of which whatever no task under way can need is old enough to go."""
    return config.model_copy(update={"dag": ScheduleConfig(task_timeout=timedelta(0))})


def common_garbage(work: Path, config: DatasetConfig | None = None) -> list[Garbage]:
    return [garbage for garbage in find_garbage(work, GRAPH, config=config) if ".common" in garbage.folder.parts]
