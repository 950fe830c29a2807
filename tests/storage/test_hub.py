"""The hub: a dataset is read at a commit; a version is delivered in one commit, whatever happens on the way."""

from __future__ import annotations

import hashlib
import logging
import traceback
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import xxhash

from corpusmill.storage import Checksum, Traffic, Wanted, fetch, list_sources, open_location, open_store
from corpusmill.storage.hub import HubRepository, LocalFile
from corpusmill.storage.locations import Endpoint
from corpusmill.storage.retries import retried
from corpusmill.upload.stages.hub_upload import commit_version
from tests.hub import COMMIT, Hub
from tests.quick import quick
from tests.raising import raises

FILES = {
    "README.md": b"# data",
    "data/part10.jsonl": b'{"text": "ten"}\n' * 200,
    "data/part2.jsonl": b'{"text": "two"}\n' * 3,
    "data/part3.jsonl": b"",
}


@pytest.fixture
def hub(monkeypatch):
    with Hub(dict(FILES)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", ["data/part2.jsonl", "data/part3.jsonl", "data/part10.jsonl"]),
        ("@main/data/", ["part2.jsonl", "part3.jsonl", "part10.jsonl"]),
        ("/data/part2.jsonl", ["part2.jsonl"]),
        ("@main/d*/part[0-9].jsonl", ["data/part2.jsonl", "data/part3.jsonl"]),
    ],
)
def test_hub_dataset_folder_file_or_glob_is_listed_in_natural_order_at_a_commit(
    hub, path: str, names: list[str]
) -> None:
    actual = list_sources([f"hf://datasets/owner/name{path}"], (".jsonl",))
    assert [file.name for file in actual] == names
    assert actual[0].location == f"hf://datasets/owner/name@{COMMIT}/data/part2.jsonl"


@pytest.mark.parametrize("name", ["data/part10.jsonl", "data/part2.jsonl", "data/part3.jsonl"])
def test_hub_file_arrives_verified(hub, hasty, tmp_path, name: str) -> None:
    hub.refuse = 2
    store, last = open_location(f"hf://datasets/owner/name@{COMMIT}/{name}")
    there = store.stat(last)
    assert there is not None
    own = fetch(store, Wanted(last, there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
    assert (tmp_path / "file").read_bytes() == FILES[name]
    assert own == Checksum("xxh3_128", xxhash.xxh3_128_hexdigest(FILES[name]))


def test_hub_file_with_other_bytes_than_its_commit_says_is_refused(hub, hasty, tmp_path) -> None:
    store, last = open_location(f"hf://datasets/owner/name@{COMMIT}/data/part10.jsonl")
    entry = hub.entry("data/part10.jsonl")
    hub.entry = lambda _path: entry
    hub.files["data/part10.jsonl"] = FILES["data/part10.jsonl"].replace(b"ten", b"TEN")
    there = store.stat(last)
    assert there is not None
    with raises("store.checksum_differs"):
        fetch(store, Wanted(last, there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
    assert not (tmp_path / "file").exists()


def test_hub_gated_dataset_says_how_to_get_in(monkeypatch) -> None:
    with Hub(dict(FILES), token="let-me-in") as server:  # noqa: S106
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        with raises("hub.refused", "look up", "HF_TOKEN"):
            open_store("hf://datasets/owner/name").list_files()


class SignedHub(Hub):
    """Sends those who ask for a file to an address with a signature, where there is none."""

    def get(self, client: BaseHTTPRequestHandler) -> None:
        if "/resolve/" in client.path:
            return self.send(client, 302, b"", {"Location": f"{self.endpoint}/nowhere?X-Amz-Signature=hush"})
        return super().get(client)


def test_hub_redirect_is_never_printed_with_its_signature(monkeypatch, caplog) -> None:
    caplog.set_level(logging.INFO)
    with SignedHub(dict(FILES)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        store, name = open_location(f"hf://datasets/owner/name@{COMMIT}/data/part2.jsonl")
        with raises("hub.refused", "read") as caught:
            store.read_range(name, 0, 5, identity="48-x")
    assert "/nowhere" in str(caught.value)
    assert "hush" not in "".join(traceback.format_exception(caught.value)) + caplog.text


class LeadingHub(Hub):
    """Says that the next page is another host's; `sent` are the Authorization headers that it got."""

    def __init__(self, next_page: str | None) -> None:
        super().__init__(dict(FILES))
        self.next_page, self.sent = next_page, list[str | None]()

    def get(self, client: BaseHTTPRequestHandler) -> None:
        self.sent.append(client.headers.get("Authorization"))
        if self.next_page and "/tree/" in client.path:
            return self.json(client, [self.entry("README.md")], {"Link": f'<{self.next_page}>; rel="next"'})
        return super().get(client)


def test_hub_whose_next_page_is_of_another_host_is_not_followed_with_the_token(hasty, monkeypatch) -> None:
    with LeadingHub(None) as other, LeadingHub(f"{other.endpoint}/page") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_TOKEN", "hf_hush")
        with raises("store.malformed_answer"):
            open_store(f"hf://datasets/owner/name@{COMMIT}").list_files()
        assert "Bearer hf_hush" in server.sent
        assert other.sent == []


@pytest.mark.parametrize("anonymous", [False, True])
def test_hub_gets_the_token_unless_it_is_asked_anonymously(monkeypatch, tmp_path: Path, anonymous: bool) -> None:
    with LeadingHub(None) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_TOKEN", "hf_hush")
        store = open_store("hf://datasets/owner/name/data", endpoint_url=Endpoint("", anonymous=anonymous))
        for file in store.list_files():
            fetch(store, Wanted(file.name, file.size_bytes, file.identity), tmp_path / "file", tmp_path / "partial")
    assert len(server.sent) > 5
    assert ("Bearer hf_hush" in server.sent) is not anonymous


def test_hub_missing_dataset_is_permanent(hub) -> None:
    with raises("hub.refused", "look up"):
        open_store("hf://datasets/owner/nothing").list_files()


def test_hub_takes_no_single_file(hub) -> None:
    with raises("hub.single_file"):
        open_store("hf://datasets/owner/name").receive_bytes(b"", "a")


@pytest.mark.parametrize(
    "location",
    [
        *("hf://models/owner/name", "hf://datasets/name", "hf://datasets//name", "hf://datasets/../name@main"),
        *(f"hf://datasets/owner/{name}" for name in ("name@..", "name@.", "name@a%2F..%2Fb", "..@main")),
        f"hf://datasets/owner/name?x=@{COMMIT}",
    ],
)
def test_hub_location_that_is_none_is_refused_before_anything_is_asked(location: str) -> None:
    for opened in (open_store, HubRepository):
        with raises("hub.not_a_dataset"):
            opened(location)


@pytest.mark.parametrize("place", ["hf://datasets/owner/name/folder", f"hf://datasets/owner/name@{'0' * 40}"])
def test_hub_place_that_is_no_whole_repository_is_refused(place: str) -> None:
    with raises("hub.not_a_whole_repository"):
        HubRepository(place)


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
    files = written(tmp_path, CONTENT)
    assert deliver(files) == (6, 1)
    assert writable_hub.private is True
    assert len(writable_hub.put) == len(set(writable_hub.put)) == 2  # .bin and .ds are one object
    assert deliver(files) == (0, 0)
    assert len(writable_hub.put) == 2
    assert writable_hub.titles == ["initial commit", "demo 0123456789ab"]
    assert holds(writable_hub, "main") == holds(writable_hub, "0123456789ab") == CONTENT


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
    writable_hub, tmp_path, caplog, asked, fault, headers
) -> None:
    writable_hub.create()
    writable_hub.faults = [(asked, fault, headers)] * (1 if fault == "lost" else 2)
    deliver(written(tmp_path, CONTENT))
    assert writable_hub.faults == []
    assert len(writable_hub.titles) == 2
    assert holds(writable_hub, "main") == holds(writable_hub, "0123456789ab") == CONTENT
    assert not any(secret in caplog.text for secret in ("hf_let-me-write", "hush"))


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
