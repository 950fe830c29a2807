"""dataset.json lists all that is delivered, so its version changes whenever a delivered file does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.inspect.verify import verify_build
from tests.system.corpus import configuration, lines_of, make_documents

PLAIN: dict[str, Any] = {
    "webdataset": {"context_tokens": 33, "contexts_per_shard": 50},
    "numpy": {"tokens_per_shard": 900},
    "megatron": {},
    "nanoset": {},
}
# What the manifest itself writes or leaves out, each beside PLAIN.
OPTIONS: dict[str, dict[str, Any]] = {
    "placeholders": {"numpy": {"tokens_per_shard": 900, "placeholders": True}},
    "checkpoints": {"numpy": {"tokens_per_shard": 900, "checkpoints": True}},
    "checkpoints of other shards": {"numpy": {"tokens_per_shard": 1100, "checkpoints": True}},
    "exp_data": {"webdataset": {"context_tokens": 33, "contexts_per_shard": 50, "exp_data": True}},
    "five documents": {"sample_documents": 5},
    "three documents": {"sample_documents": 3},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("versions")
    (folder / "corpus").mkdir()
    (folder / "corpus" / "a.jsonl").write_bytes(lines_of(make_documents(30, seed=3)))
    return folder


def delivered(root: Path, **changes: Any) -> dict[str, bytes]:
    """Build, and read the version that `latest` points to."""
    plan = build_dataset(check_config(configuration(root, **changes), where="test"), workers=1)
    assert verify_build(open_build(plan)).findings == ()
    folder = (root / "outputs" / "tiny" / "latest").resolve()
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert hashlib.sha256(files["dataset.json"]).hexdigest()[:12] == folder.name
    return files


@pytest.mark.slow
def test_manifest_every_option_of_its_own_files_has_a_version_and_comes_back(root) -> None:
    """One work folder, one destination: switching an option off and on again is no other content under one version."""
    versions = {}
    for name, changed in [*OPTIONS.items(), ("plain", {}), *list(OPTIONS.items())[:2]]:
        files = delivered(root, exports=PLAIN | changed)
        version = hashlib.sha256(files["dataset.json"]).hexdigest()
        assert versions.setdefault(name, version) == version
    assert len(set(versions.values())) == len(versions)


def test_manifest_lists_every_delivered_file_with_its_sha256(root) -> None:
    exports = {"webdataset": OPTIONS["exp_data"]["webdataset"], "megatron": {}, "sample_documents": 5}
    files = delivered(root, exports=exports)
    described = json.loads(files["dataset.json"])
    listed = {file["name"]: file["sha256"] for file in described["files"]}
    assert [reference["name"] for reference in described["references"]] == ["webdataset/exp_data.json"]
    beside = {"dataset.json", "SHA256SUMS", "webdataset/exp_data.json", "README.md", "croissant.json"}
    assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name not in beside}


def test_manifest_another_order_or_shard_size_leaves_no_stale_file(root, tmp_path) -> None:
    """What the manifest reads of the configuration is in its fingerprint."""
    exports = {"numpy": {"tokens_per_shard": 900, "checkpoints": True}}
    assert "shuffle_quality.json" in delivered(root, exports=exports)
    settings = {"exports": {"numpy": {"tokens_per_shard": 700, "checkpoints": True}}, "shuffle": {"order": "source"}}
    changed = delivered(root, **settings)
    (tmp_path / "corpus").symlink_to(root / "corpus")
    assert changed == delivered(tmp_path, **settings)
    assert "shuffle_quality.json" not in changed
