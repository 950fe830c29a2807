"""Every configuration of the family of tests/sameness, each step on a machine of its own, writes the recorded bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.engine.work_folder.machines import build_apart
from tests.quick import quick
from tests.sameness.digests import digests_by_format, prepared, recorded
from tests.sameness.family import FEW, family
from tests.search.folders import delivered, rooted, small_limits
from tests.search.settings import configuration

FAMILY = family()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("family"))


@pytest.mark.parametrize("name", quick(reversed(list(FAMILY)[:FEW:6]), 0, slow=1))
def test_build_of_machines_that_share_a_bucket_delivers_the_recorded_bytes(
    sources: Path, tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    root = sources / "root"  # paths are relative to it: exp_data.json holds them as configured
    root.mkdir()
    config = configuration(FAMILY[name], Path(".."), Path("..") / FAMILY[name]["tokenizer"]["file"])
    try:
        with small_limits(), rooted(root):
            build_apart(config.model_copy(update={"work_folder": "s3://corpus/mill"}), tmp_path, until="upload")
        assert digests_by_format(delivered(root, config.name).files) == recorded()[name]
    finally:
        shutil.rmtree(root)
