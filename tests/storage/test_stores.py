"""The same behaviour from every store: a folder, two S3 servers (moto, rclone), and an emulator of GCS, on loopback."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from pathlib import Path

import pytest

from corpusmill.storage import Store, list_sources, open_store
from corpusmill.storage.local import LocalStore, write_whole
from tests.disks import small_disk
from tests.raising import raises


@pytest.fixture(params=["folder", "s3", "rclone", "gcs"])
def store(request, tmp_path) -> Store:
    if request.param == "folder":
        (tmp_path / "data").mkdir()
        return open_store(str(tmp_path / "data"))
    if request.param == "rclone":
        return open_store("s3://corpus/data", endpoint_url=request.getfixturevalue("rclone").endpoint)
    if request.param == "gcs":
        request.getfixturevalue("gcs")
        return open_store("gs://corpus/data")
    return open_store("s3://corpus/data", endpoint_url=request.getfixturevalue("moto"))


def source(tmp_path: Path, content: bytes) -> tuple[Path, str]:
    path = tmp_path / "source.bin"
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 9 << 20])
def test_store_received_file_reads_back_equal(store: Store, tmp_path, size: int) -> None:
    content = hashlib.shake_128(b"x").digest(size)
    path, digest = source(tmp_path, content)
    store.receive(path, "a/b.bin", digest)
    with store.open("a/b.bin") as stream:
        assert io.BytesIO(stream.read()).getvalue() == content
    assert store.digest("a/b.bin") == digest
    assert [(file.name, file.size_bytes) for file in store.list_files()] == [("a/b.bin", size)]


def test_store_absent_file_has_no_stat_and_no_digest(store: Store) -> None:
    assert store.stat("nothing") is None
    assert store.digest("nothing") is None
    assert store.list_files() == []
    with raises("source.name_leaves_folder"):
        store.receive_bytes(b"x", "../x")


def test_store_received_bytes_replace_the_old_file(store: Store) -> None:
    store.receive_bytes(b"old", "latest.json")
    before = store.stat("latest.json")
    store.receive_bytes(b"newer", "latest.json")
    after = store.stat("latest.json")
    assert store.open("latest.json").read() == b"newer"
    assert before is not None
    assert after is not None
    assert before.identity != after.identity


def test_store_range_is_exactly_those_bytes_of_that_identity(store: Store) -> None:
    store.receive_bytes(b"0123456789", "a/b c ü.txt")
    there = store.stat("a/b c ü.txt")
    assert there is not None
    assert store.read_range("a/b c ü.txt", 2, 5, identity=there.identity) == b"234"
    assert store.read_range("a/b c ü.txt", 9, 10, identity=there.identity) == b"9"
    assert store.read_range("a/b c ü.txt", 4, 4, identity=there.identity) == b""


def test_store_stream_seeks_and_reads_like_a_file(store: Store) -> None:
    store.receive_bytes(b"0123456789", "a")
    with store.open("a") as stream:
        assert (stream.read(3), stream.seek(-2, io.SEEK_END), stream.read(), stream.read()) == (b"012", 8, b"89", b"")


def test_store_copied_file_is_equal_and_a_deleted_one_gone(store: Store) -> None:
    store.receive_bytes(b"content", "a/x")
    store.copy("a/x", "b/y")
    store.delete("a/x")
    store.delete("a/x")
    assert store.stat("a/x") is None
    assert store.open("b/y").read() == b"content"
    assert [file.name for file in store.iter_files()] == ["b/y"]


def test_store_holds_only_the_same_bytes(store: Store, tmp_path) -> None:
    path, digest = source(tmp_path, b"x" * (9 << 20))
    other, other_digest = tmp_path / "other", hashlib.sha256(b"y" * (9 << 20)).hexdigest()
    other.write_bytes(b"y" * (9 << 20))
    assert not store.holds("a", path, digest)
    store.receive(path, "a", digest)
    assert store.holds("a", path, digest)
    assert not store.holds("a", other, other_digest)


def test_store_glob_finds_the_same_names_in_every_store(store: Store) -> None:
    for name in ("a.jsonl", "b.json", "c.json.gz", "deep/d.json", "deep/er/e.json", ".h.json", "part10.json"):
        store.receive_bytes(b"{}", f"x/{name}")
    store.receive_bytes(b"{}", "x2/f.json")
    endpoint_url = store.client.meta.endpoint_url if store.folder.startswith("s3") else None

    def named(pattern: str) -> list[str]:
        paths = [f"{store.folder}/{pattern}"]
        actual = list_sources(paths, (".jsonl",), endpoint_url, named=(".json", ".json.gz"))
        assert all(file.location.startswith(f"{store.folder}/x") for file in actual)
        return [file.name for file in actual]

    assert named("x/*") == named("x") == ["a.jsonl"]
    assert named("x/*.json") == ["b.json", "part10.json"]
    assert named("x/**/*.json") == ["b.json", "deep/d.json", "deep/er/e.json", "part10.json"]
    assert named("x/*/[de].json") == ["deep/d.json"]
    assert named("x?/*.json") == ["x2/f.json"]
    assert named("x/c.json.gz") == ["c.json.gz"]
    with raises("source.no_known_files"):
        named("x/*.json.zst")


@pytest.mark.parametrize("size", [10, 9 << 20])
def test_store_file_that_changed_since_its_receipt_is_refused(store: Store, tmp_path, size: int) -> None:
    path, _ = source(tmp_path, bytes(size))
    with raises("destination.copy_differs store.upload_differs_from_receipt"):
        store.receive(path, "a", "0" * 64)
    assert store.list_files() == []


def test_local_store_full_destination_names_it_and_leaves_nothing(tmp_path) -> None:
    with small_disk(tmp_path / "disk", mebibytes=1) as folder:
        path, digest = source(tmp_path, b"x" * 3_000_000)
        with raises("destination.disk_full", folder / "out"):
            open_store(str(folder / "out")).receive(path, "a.bin", digest)
        assert not list((folder / "out").iterdir())


@pytest.mark.parametrize("kernel", ["as it is", "refuses", "stops early", "refuses midway", "none", "full"])
def test_local_store_copies_the_same_bytes_whatever_the_kernel_can_do(tmp_path, monkeypatch, kernel: str) -> None:
    calls = 0

    def copied(reading: int, writing: int, _count: int) -> int:
        nonlocal calls
        calls += 1
        if kernel == "refuses" or (kernel == "refuses midway" and calls == 2):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        if kernel == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if calls == 2:
            return 0
        return os.write(writing, os.read(reading, 1_000_001))

    if kernel == "none":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    elif kernel != "as it is":
        monkeypatch.setattr(os, "copy_file_range", copied, raising=False)
    content = hashlib.shake_128(b"x").digest(3_000_000)
    path, digest = source(tmp_path, content)
    if kernel == "full":  # no reason to copy otherwise
        with raises("destination.disk_full"):
            open_store(str(tmp_path / "out")).receive(path, "a.bin", digest)
        assert not list((tmp_path / "out").iterdir())
        return
    open_store(str(tmp_path / "out")).receive(path, "a.bin", digest)
    there = tmp_path / "out/a.bin"
    assert there.read_bytes() == content
    assert there.stat().st_nlink == 1
    assert not there.samefile(path)
    there.write_bytes(b"a bit that flips in one of them")
    assert path.read_bytes() == content


@pytest.mark.parametrize("swapped", ["the destination is a file", "a folder has the name", "a file is in the way"])
@pytest.mark.parametrize("way", ["receive", "receive_bytes", "copy"])
def test_local_store_file_and_folder_swapped_is_refused_by_name(tmp_path, swapped: str, way: str) -> None:
    path, digest = source(tmp_path, b"tokens")
    root = tmp_path / "out"
    if swapped == "the destination is a file":
        root.write_bytes(b"")
    elif swapped == "a folder has the name":
        (root / "sub/a.bin").mkdir(parents=True)
    else:
        root.mkdir()
        (root / "sub").write_bytes(b"")
    store = open_store(str(root))
    if way == "copy" and root.is_dir():
        store.receive_bytes(b"tokens", "first")
    calls = {
        "receive": lambda: store.receive(path, "sub/a.bin", digest),
        "receive_bytes": lambda: store.receive_bytes(b"tokens", "sub/a.bin"),
        "copy": lambda: store.copy("first", "sub/a.bin"),
    }
    with raises("files.refused", "write to a destination", root / "sub/a.bin"):
        calls[way]()
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("folder", lambda store, name: store.delete(name)),
        ("folder", lambda store, name: store.open(name)),
        ("x" * 300, lambda store, name: store.stat(name)),
        ("x" * 300, lambda store, name: store.digest(name)),
        ("x" * 300, lambda store, name: open_store(f"{store.folder}/{name}").list_files()),
    ],
    ids=["delete", "open", "stat", "digest", "list"],
)
def test_local_store_what_a_file_system_refuses_is_refused_by_name(tmp_path, name: str, call) -> None:
    (tmp_path / "folder").mkdir()
    with raises("files.refused", tmp_path / name):
        call(open_store(str(tmp_path)), name)


def test_local_store_device_that_fails_for_now_is_a_transient_error(tmp_path, monkeypatch) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "fsync", fails)
    with raises("files.unavailable", "write to a destination"):
        open_store(str(tmp_path)).receive_bytes(b"x", "a")


def test_copy_in_a_folder_is_a_link_that_costs_no_disk(tmp_path) -> None:
    store = open_store(str(tmp_path / "data"))
    path, digest = source(tmp_path, b"tokens")
    store.receive(path, "megatron/a.bin", digest)
    store.copy("megatron/a.bin", "nanoset/a.ds")
    assert (tmp_path / "data/megatron/a.bin").samefile(tmp_path / "data/nanoset/a.ds")
    store.copy("megatron/a.bin", "nanoset/a.ds")  # once more over itself
    assert store.digest("nanoset/a.ds") == digest


CONTENT = b"tokens" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    """A file that its owner deletes next."""
    path = tmp_path / "taken"
    path.write_bytes(CONTENT)
    return path


def files_of(store: Path) -> list[str]:
    return [path.name for path in store.rglob("*") if path.is_file()]


def test_file_that_is_taken_over_is_flushed_and_the_same_file_under_another_name(
    tmp_path: Path, taken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path / "store"))
    store.receive_bytes(b"old", "deep/name")
    flushed: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    for _ in range(2):
        store.take_over(taken, "deep/name", SHA256)
    assert flushed == [taken, taken]
    assert (tmp_path / "store/deep/name").samefile(taken)
    taken.unlink()
    assert (tmp_path / "store/deep/name").read_bytes() == CONTENT
    assert files_of(tmp_path / "store") == ["name"]
    with pytest.raises(FileNotFoundError):  # an error of its own and not of the destination
        store.take_over(taken, "deep/name", SHA256)


def test_file_of_another_digest_is_not_taken_over(tmp_path: Path, taken: Path) -> None:
    taken.write_bytes(CONTENT[:-1] + b"!")
    with raises("destination.copy_differs"):
        LocalStore(str(tmp_path / "store")).take_over(taken, "name", SHA256)
    assert files_of(tmp_path / "store") == []


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_file_that_cannot_be_linked_is_copied(
    tmp_path: Path, taken: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def refused(_self: Path, _target: Path) -> None:
        raise OSError(reason, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    LocalStore(str(tmp_path / "store")).take_over(taken, "name", SHA256)
    assert (tmp_path / "store/name").read_bytes() == CONTENT
    assert not (tmp_path / "store/name").samefile(taken)


@pytest.mark.parametrize("broken", ["fsync", "rename"])
def test_small_file_whose_writer_breaks_off_is_as_before(tmp_path: Path, monkeypatch, broken: str) -> None:
    path = tmp_path / "small"
    write_whole(path, b"old", changed_ns=1_000_000_000)
    assert path.stat().st_mtime_ns == 1_000_000_000

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(*((os, "fsync") if broken == "fsync" else (Path, "replace")), fails)
    with pytest.raises(OSError, match="Input/output error"):
        write_whole(path, b"new")
    assert (path.read_bytes(), files_of(tmp_path)) == (b"old", ["small"])


def test_small_file_that_cannot_be_written_is_named_by_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "gone" / "small", b"new")
    assert caught.value.filename == str(tmp_path / "gone" / "small")


def test_copy_of_an_object_beyond_one_request_goes_in_ranges_and_keeps_its_sha256(moto, tmp_path, monkeypatch) -> None:
    from corpusmill.storage import s3_multipart

    monkeypatch.setattr(s3_multipart, "LARGEST_COPY_BYTES", 5 << 20)
    monkeypatch.setattr(s3_multipart, "COPY_PART_BYTES", 5 << 20)
    store = open_store("s3://corpus/data", endpoint_url=moto)
    content = hashlib.shake_128(b"large").digest(12 << 20)
    path, digest = source(tmp_path, content)
    store.receive(path, "a.bin", digest)
    store.copy("a.bin", "a.ds")
    assert store.digest("a.ds") == digest
    assert store.holds("a.ds", path, digest)
    with store.open("a.ds") as file:
        assert file.read() == content
