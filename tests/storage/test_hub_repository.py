from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from corpusmill.storage import Traffic
from corpusmill.storage.hub import HubRepository, LocalFile
from corpusmill.storage.retries import retried
from corpusmill.upload.stages.hub_upload import commit_version
from tests.quick import quick
from tests.raising import raises

HERE = "hf://datasets/owner/name"
CONTENT = {
    "megatron/a.bin": b"tokens" * 1000,
    "nanoset/a.ds": b"tokens" * 1000,
    "megatron/a.idx": b"index" * 500,
    "documents/empty.jsonl": b"",
    "README.md": b"---\npretty_name: demo\n---\n",
    "dataset.json": b'{"name": "demo"}',
    "SHA256SUMS": "".join(
        f"{'0' * 64}  {name}\n"
        for name in (
            "megatron/a.bin",
            "nanoset/a.ds",
            "megatron/a.idx",
            "documents/empty.jsonl",
            "README.md",
            "dataset.json",
            "documents/old.jsonl",
        )
    ).encode(),
}


@pytest.fixture(autouse=True)
def _impatient(hasty, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _seconds: None)


def written(folder: Path, content: dict[str, bytes]) -> list[LocalFile]:
    files = []
    for name, data in content.items():
        path = folder / "dataset" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        files.append(LocalFile(name, path, hashlib.sha256(data).hexdigest(), len(data)))
    return files


def deliver(files: list[LocalFile], version: str = "0123456789ab", branch: str = "main") -> tuple[int, int]:
    repository = HubRepository(HERE, traffic=Traffic())
    repository.prepare()
    return retried(
        lambda: commit_version(repository, files, name="demo", version=version, branch=branch),
        where=HERE,
        traffic=repository.traffic,
    )


def holds(hub, revision: str) -> dict[str, bytes]:
    return {name: hub.content(revision, name) for name in hub.tree(revision) if name != ".gitattributes"}


def test_hub_repository_that_is_not_there_is_made_private_and_gets_one_commit_and_its_tag(
    writable_hub, tmp_path
) -> None:
    assert deliver(written(tmp_path, CONTENT)) == (6, 1)
    assert writable_hub.private is True
    assert writable_hub.titles == ["initial commit", "demo 0123456789ab"]
    assert holds(writable_hub, "main") == holds(writable_hub, "0123456789ab") == CONTENT
    assert len(writable_hub.put) == len(set(writable_hub.put)) == 2  # .bin and .ds are one object


def test_hub_delivery_made_again_sends_and_commits_nothing(writable_hub, tmp_path) -> None:
    files = written(tmp_path, CONTENT)
    deliver(files)
    before = list(writable_hub.put)
    assert deliver(files) == (0, 0)
    assert writable_hub.put == before
    assert len(writable_hub.titles) == 2


def test_hub_second_version_replaces_the_first_on_main_and_leaves_its_tag(writable_hub, tmp_path) -> None:
    first = {**CONTENT, "documents/old.jsonl": b"old"}
    deliver(written(tmp_path / "first", first), "aaaaaaaaaaaa")
    second = {**CONTENT, "megatron/a.idx": b"other" * 500}
    assert deliver(written(tmp_path / "second", second), "bbbbbbbbbbbb") == (1, 0)
    assert holds(writable_hub, "main") == holds(writable_hub, "bbbbbbbbbbbb") == second
    assert holds(writable_hub, "aaaaaaaaaaaa") == first
    assert len(writable_hub.titles) == 3


def test_hub_version_that_is_not_to_be_the_latest_has_a_branch_of_its_own(writable_hub, tmp_path) -> None:
    deliver(written(tmp_path / "first", CONTENT), "aaaaaaaaaaaa")
    second = {**CONTENT, "megatron/a.idx": b"other" * 500}
    deliver(written(tmp_path / "second", second), "bbbbbbbbbbbb", branch="bbbbbbbbbbbb")
    assert holds(writable_hub, "main") == CONTENT
    assert holds(writable_hub, "bbbbbbbbbbbb") == second
    put = len(writable_hub.put)
    deliver(written(tmp_path / "second", second), "bbbbbbbbbbbb")  # now it is
    assert holds(writable_hub, "main") == second
    assert len(writable_hub.put) == put


@pytest.mark.parametrize(
    "asked", ["auth-check", "refs", "preupload", "objects/batch", "PUT /lfs", "lfs/verify", "commit/", "tag/"]
)
@pytest.mark.parametrize(("fault", "headers"), [(429, {"Retry-After": "0"}), (500, {}), ("cut", {}), ("lost", {})])
def test_hub_delivery_through_a_fault_is_one_commit_and_right_to_the_byte(
    writable_hub, tmp_path, asked, fault, headers
) -> None:
    writable_hub.create()
    writable_hub.faults = [(asked, fault, headers)] * (1 if fault == "lost" else 2)
    deliver(written(tmp_path, CONTENT))
    assert writable_hub.faults == []
    assert len(writable_hub.titles) == 2
    assert holds(writable_hub, "main") == holds(writable_hub, "0123456789ab") == CONTENT


def test_hub_delivery_that_was_given_up_goes_on_with_what_has_arrived(writable_hub, tmp_path) -> None:
    writable_hub.create()
    files = written(tmp_path, CONTENT)
    writable_hub.faults = [("commit/", 503, {})] * 10
    with raises("hub.unavailable"):
        deliver(files)
    sent = list(writable_hub.put)
    assert len(sent) == 2
    deliver(files)
    assert writable_hub.put == sent
    assert holds(writable_hub, "main") == CONTENT


@pytest.mark.parametrize(
    "other",
    [
        {"README.md": b"# mine"},
        {"model.safetensors": b"weights"},
        {"dataset.json": b'{"name": "another"}', "SHA256SUMS": CONTENT["SHA256SUMS"]},
        {"dataset.json": b"[1]", "SHA256SUMS": CONTENT["SHA256SUMS"]},
        {"dataset.json": b'{"name": "demo"}', "SHA256SUMS": b"\xff\xfe"},
        {"dataset.json": b'{"name": "demo"}', "SHA256SUMS": CONTENT["SHA256SUMS"], "notes.txt": b"by hand"},
    ],
)
def test_hub_repository_with_files_that_are_not_ours_is_left_alone(writable_hub, tmp_path, other) -> None:
    writable_hub.create(other)
    with raises("hub.files_of_others"):
        deliver(written(tmp_path, CONTENT))
    assert holds(writable_hub, "main") == other
    assert writable_hub.put == []


@pytest.mark.parametrize("status", [401, 403, 404, 400])
@pytest.mark.parametrize("asked", ["preupload", "objects/batch", "PUT /lfs", "commit/"])
def test_hub_refusal_is_permanent_and_says_neither_token_nor_signature(
    writable_hub, tmp_path, caplog, status, asked
) -> None:
    writable_hub.create()
    writable_hub.faults = [(asked, status, {})]
    with raises("hub.refused") as caught:
        deliver(written(tmp_path, CONTENT))
    assert writable_hub.faults == []
    assert len(writable_hub.titles) == 1
    assert not any(secret in str(caught.value) + caplog.text for secret in ("hf_let-me-write", "hush"))


def test_hub_signatures_stand_in_no_log_of_an_upload_that_is_tried_again(writable_hub, tmp_path, caplog) -> None:
    writable_hub.create()
    writable_hub.faults = [("PUT /lfs", 503, {}), ("PUT /lfs", "cut", {})]
    deliver(written(tmp_path, CONTENT))
    assert not any(secret in caplog.text for secret in ("hf_let-me-write", "hush"))


def test_hub_commit_of_somebody_else_in_between_is_met_by_looking_again(writable_hub, tmp_path) -> None:
    files = written(tmp_path, CONTENT)
    deliver(files, "aaaaaaaaaaaa")
    repository = HubRepository(HERE)
    head = repository.revisions()["main"]
    second = written(tmp_path / "second", {**CONTENT, "megatron/a.idx": b"other" * 500})
    deliver(second, "bbbbbbbbbbbb")
    with raises("hub.unavailable"):
        repository.commit(files, [], branch="main", parent=head, title="late")
    assert writable_hub.titles[-1] == "demo bbbbbbbbbbbb"


def test_hub_file_that_changed_since_its_receipt_is_not_committed(writable_hub, tmp_path) -> None:
    files = written(tmp_path, CONTENT)
    (tmp_path / "dataset" / "megatron/a.bin").write_bytes(b"TOKENS" * 1000)
    with raises("store.upload_differs_from_receipt"):
        deliver(files)
    assert len(writable_hub.titles) == 1


def test_hub_tag_of_the_version_with_other_content_is_refused(writable_hub, tmp_path) -> None:
    writable_hub.create()
    writable_hub.tags["0123456789ab"] = writable_hub.branches["main"]
    with raises("hub.delivery_differs"):
        deliver(written(tmp_path, CONTENT))


@pytest.mark.parametrize(
    "place", [f"{HERE}/folder", f"{HERE}@{'0' * 40}", "hf://models/owner/name", "hf://datasets/name"]
)
def test_hub_place_that_is_no_whole_repository_is_refused(place: str) -> None:
    with raises("hub.not_a_dataset hub.not_a_whole_repository"):
        HubRepository(place)


def test_hub_branch_that_is_not_there_is_refused(writable_hub) -> None:
    writable_hub.create()
    with raises("hub.no_such_branch"):
        HubRepository(f"{HERE}@other").prepare()


@pytest.fixture
def xet_hub(writable_hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    writable_hub.xet = tmp_path / "xet"
    writable_hub.xet.mkdir()
    return writable_hub


def test_hub_that_stores_by_xet_gets_every_sha256_and_nothing_by_lfs(xet_hub, tmp_path) -> None:
    files = written(tmp_path, CONTENT)
    assert deliver(files) == (6, 1)
    large = {file.name: file.sha256 for file in files if file.size_bytes >= 1000}
    tree = xet_hub.tree("0123456789ab")
    assert {name: tree[name][0] for name in large} == large
    assert xet_hub.put == []
    assert any(path.is_file() for path in xet_hub.xet.rglob("*"))
    assert deliver(files) == (0, 0)


@pytest.mark.parametrize("fault", quick([("lost", {}), (429, {"Retry-After": "0"}), (500, {}), ("cut", {})], 1))
def test_hub_that_stores_by_xet_through_a_fault_is_one_commit(xet_hub, tmp_path, fault) -> None:
    xet_hub.create()
    xet_hub.faults = [(asked, *fault) for asked in ("xet-write-token", "commit/")]
    deliver(written(tmp_path, CONTENT))
    assert xet_hub.faults == []
    assert len(xet_hub.titles) == 2


@pytest.mark.parametrize("status", [401, 403, 404])
def test_hub_that_refuses_to_store_by_xet_is_permanent_and_no_token_is_said(xet_hub, tmp_path, caplog, status) -> None:
    xet_hub.create()
    xet_hub.faults = [("xet-write-token", status, {})]
    with raises("hub.refused") as caught:
        deliver(written(tmp_path, CONTENT))
    assert xet_hub.faults == []
    assert len(xet_hub.titles) == 1
    assert not any(secret in str(caught.value) + caplog.text for secret in ("hf_let-me-write", "hush"))
