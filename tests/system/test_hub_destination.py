"""A whole build delivered to a hub, verified from there, repaired from, and delivered again."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.inspect.datasets.repair import compare_copies, repair_copies
from corpusmill.inspect.verify import verify_build, verify_version
from corpusmill.upload.stages.retention import find_every_version, find_old_versions
from tests.hub_writing import WritableHub
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

HERE = "hf://datasets/owner/name"


@pytest.fixture
def root(tmp_path: Path, writable_hub: WritableHub) -> Path:
    write_corpus(tmp_path / "corpus", documents=40)
    return tmp_path


def config(root: Path, **changes: object):
    exports = {"megatron": {}, "nanoset": {}, "webdataset": {"context_tokens": 129, "exp_data": True}}
    values = configuration(root, **{"exports": exports, "destinations": [{"path": HERE}], **changes})
    return check_config(values, where="dataset.yaml")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_hub_gets_what_a_folder_gets_is_verified_and_a_folder_is_repaired_from_it(root, writable_hub) -> None:
    both = config(root, destinations=[{"path": str(root / "outputs")}, {"path": HERE}])
    build = open_build(build_dataset(both))
    version = json.loads((root / "outputs/tiny/latest.json").read_text())["version"]
    expected = files_of(root / "outputs" / "tiny" / version)
    tree = writable_hub.tree(version)
    assert {name: writable_hub.content(version, name) for name in tree if name != ".gitattributes"} == expected
    assert writable_hub.tree("main") == tree
    assert writable_hub.titles == ["initial commit", f"tiny {version}"]
    assert b"hf://datasets/owner/name@" + version.encode() in expected["webdataset/exp_data_00001.json"]
    assert verify_build(build).findings == ()
    for wanted in (version, "latest"):
        verified = verify_version(both, wanted)
        assert verified.findings == ()
        assert verified.files == 2 * len(expected)
    assert not any(b"hf_let-me-write" in path.read_bytes() for path in (root / "work").rglob("*") if path.is_file())

    local = root / "outputs" / "tiny" / version
    (local / "dataset.json").unlink()
    damaged = next(name for name in sorted(expected) if name.endswith(".bin"))
    (local / damaged).unlink()  # the .ds is a link to it
    (local / damaged).write_bytes(b"damage")
    compared = compare_copies(str(local), f"{HERE}@{version}")
    assert sorted(compared.wrong_first) == sorted([damaged, "dataset.json"])
    assert repair_copies(compared) == (2, 0)
    assert files_of(local) == expected
    tree[damaged] = b"damage"
    del tree["SHA256SUMS"]
    tree["more.txt"] = b"more"
    for findings in (verify_build(build).findings, verify_version(both, version).findings):
        assert {finding.where.rpartition("@")[2].partition("/")[2].partition(",")[0] for finding in findings} == {
            damaged,
            "SHA256SUMS",
            "more.txt",
        }


def test_hub_build_that_gives_exports_back_delivers_again_without_sending(root, writable_hub) -> None:
    eager = config(root, reclaim="eager")
    build_dataset(eager)
    put, titles = list(writable_hub.put), list(writable_hub.titles)
    build_dataset(eager)
    assert (writable_hub.put, writable_hub.titles) == (put, titles)


def test_hub_keeps_old_versions_as_tags_whatever_retention_says(root, writable_hub) -> None:
    build_dataset(config(root, keep_versions=1))
    (root / "corpus/a1.jsonl").write_bytes(b'{"text": "something else"}\n')
    second = config(root, keep_versions=1)
    build_dataset(second)
    assert len(writable_hub.tags) == 2
    assert find_old_versions(second, 1) == find_every_version(second) == []
    latest = hashlib.sha256(writable_hub.content("main", "dataset.json")).hexdigest()[:12]
    assert writable_hub.tree(latest) == writable_hub.tree("main")


def test_hub_that_may_not_be_written_is_known_before_anything_is_built(root, writable_hub, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_another")
    with raises("hub.refused") as caught:
        plan_dataset(config(root), to_build=True)
    assert "hf_another" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", str(writable_hub.token))
    with raises("config.hub_address"):
        plan_dataset(config(root, destinations=[{"path": HERE, "endpoint_url": writable_hub.endpoint}]), to_build=True)
    with raises("hub.not_a_whole_repository"):
        plan_dataset(config(root, destinations=[{"path": f"{HERE}/folder"}]), to_build=True)
    assert writable_hub.put == []
    shutil.rmtree(root / "work", ignore_errors=True)
