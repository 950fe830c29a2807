"""Datasets on the Hugging Face Hub (huggingface_hub): files of one revision are read, a whole version is one commit.

A location is ``hf://datasets/owner/name@revision/folder``; without a revision it is main, and a ``/`` in one is
written %2F. The revision is resolved to a commit once, and locations of listed files name that commit, so that a plan
never reads another. Credentials come from the SDK's own chain (HF_TOKEN, `hf auth login`); HF_ENDPOINT sets another
hub. Files are read by ranges from the URLs that the Hub redirects to; nothing is built or cached on disk.

The SDK uploads (by LFS or Xet, as available) with retries of its own, and sends the commit itself once. Here a failed
step is repeated by the policy of retries.py, and files that the Hub already has are not sent again: each upload checks
first. A commit names its parent, so two writers never overwrite each other, and the next attempt finds a commit whose
answer was lost.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from socket import SHUT_RD
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, unquote

from corpusmill.errors import ConfigError, PermanentError
from corpusmill.fingerprint import file_digest
from corpusmill.storage.checksums import Checksum
from corpusmill.storage.locations import StoredFile, require_identity, safe_relative_name, size_of
from corpusmill.storage.reading import (
    WINDOW_BYTES,
    RemoteStore,
    arriving,
    changed_before_upload,
    range_body,
)
from corpusmill.storage.retries import Traffic
from corpusmill.storage.sdk_errors import HUB_EXPECTED, hub_explained

T = TypeVar("T")

LOCATION = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([^/]+))?(?:/(.*))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
SETTINGS = ".gitattributes"  # git's: the hub writes it when it creates a repository
TIMEOUT_SECONDS = 60
SHA256_DIGITS = 64


class HubStore(RemoteStore):
    """``hf://datasets/owner/name@revision/folder``; names are paths below the folder."""

    explained = staticmethod(hub_explained)

    def __init__(self, folder: str, *, anonymous: bool = False, traffic: Traffic | None = None) -> None:
        matched = LOCATION.fullmatch(folder.rstrip("/"))
        revision = unquote(matched[2] or "main") if matched else ""
        if not matched or {"", ".", ".."} & {*matched[1].split("/"), *revision.split("/")}:
            raise ConfigError("hub.not_a_dataset: this is not a dataset of a hub", where=folder, expected=HUB_EXPECTED)
        super().__init__(folder, traffic, anonymous=anonymous)
        self.repository: str = matched[1]
        self.revision = revision
        self._prefix = f"{matched[3]}/" if matched[3] else ""
        self._endpoint = os.environ.get("HF_ENDPOINT")

    @property
    def _token(self) -> bool | None:
        """What the SDK calls the choice of credentials: False for none, None for its own chain."""
        return False if self.anonymous else None

    @cached_property
    def api(self) -> Any:
        """The SDK's client."""
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars()  # they would fill logs
        return HfApi(endpoint=self._endpoint, token=self._token)

    @cached_property
    def commit(self) -> str:
        """The commit that the revision names now."""
        if COMMIT.fullmatch(self.revision):
            return self.revision
        info = self.call("look up", self.folder, lambda: self.api.dataset_info(self.repository, revision=self.revision))
        return str(info.sha)

    def _listed(self) -> Iterator[StoredFile]:
        _ = self.commit  # resolved by a request of its own, before that of a page
        return super()._listed()

    def _page(self, token: str | None) -> tuple[list[StoredFile], str | None]:
        # The SDK's own listing has a retry policy of its own.
        from huggingface_hub.hf_api import RepoFile

        below = f"/{quote(self._prefix.rstrip('/'), safe='')}" if self._prefix else ""
        tree = f"{self.api.endpoint}/api/datasets/{self.repository}/tree/{self.commit}{below}?recursive=True"
        answer = _get(token or tree, token=self._token, where=self.folder)
        entries = answer.json()
        rows = [(row["type"], row["path"], row) for row in entries]
        if not isinstance(entries, list) or not all(path.startswith(self._prefix) for _, path, _ in rows):
            raise ValueError("a page of another listing")
        repo_file: Any = RepoFile
        listed = [repo_file(**row) for kind, _, row in rows if kind == "file"]
        files = [self._stored(file.path.removeprefix(self._prefix), file) for file in listed if file.path != SETTINGS]
        following = answer.links.get("next", {}).get("url")
        if following and not following.startswith(f"{self.api.endpoint}/"):
            raise ValueError("a next page on another host, which must not get the token")
        return files, following

    def stat(self, name: str) -> StoredFile | None:
        """See Store."""
        file = self._find(name)
        return self._stored(name, file) if file else None

    def read_range(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        """See Store. A commit's files never change, so the commit in the URL guarantees the identity."""
        from huggingface_hub import hf_hub_url

        if first == last:
            return b""
        path = self._path(name)
        address = hf_hub_url(self.repository, path, repo_type="dataset", revision=self.commit, endpoint=self._endpoint)

        def read() -> bytes:
            headers = {"Range": f"bytes={first}-{last - 1}", "Accept-Encoding": "identity"}
            answer = _get(address, headers, token=self._token, where=self._location(name), size_bytes=last - first)
            size, stated = size_of(identity), answer.headers.get("Content-Range")
            return range_body(answer.content, stated, first, last, size_bytes=size, where=self._location(name))

        data = self.call("read", self._location(name), read)
        self.traffic.add(bytes_received=len(data))
        return data

    def checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """See Store: sha256 of large files, git's sha1 of small ones."""
        file = self._find(name)
        require_identity(self._location(name), identity, self._stored(name, file) if file else None)
        return (Checksum("sha256", file.lfs.sha256) if file.lfs else Checksum("git-sha1", file.blob_id),)

    def own_checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """See Store."""
        return self.checksums(name, identity=identity)

    def digest(self, name: str) -> str | None:
        """See Store; small files, of which the Hub keeps only git's sha1, are read."""
        file = self._find(name)
        if file is None or file.lfs:
            return file.lfs.sha256 if file else None
        identity = self._stored(name, file).identity
        return hashlib.sha256(self.read_range(name, 0, file.size, identity=identity)).hexdigest()

    def _refuse(self, *_given: object, **_named: object) -> NoReturn:
        raise ConfigError(
            "hub.single_file: a hub accepts whole datasets in one commit, not single files",
            where=self.folder,
            expected="a folder, s3://bucket/prefix or gs://bucket/prefix",
            next_step="name the repository among the destinations of the dataset, and build or upload",
        )

    holds = receive = receive_bytes = copy = delete = remove_unfinished = _refuse

    def _find(self, name: str) -> Any:
        from huggingface_hub.hf_api import RepoFile

        path = self._path(name)
        files = self.call(
            "look up",
            self._location(name),
            lambda: self.api.get_paths_info(self.repository, [path], revision=self.commit, repo_type="dataset"),
        )
        return next((file for file in files if isinstance(file, RepoFile) and file.path == path), None)

    def _path(self, name: str) -> str:
        return self._prefix + safe_relative_name(name, where=self.folder)

    def _location(self, name: str) -> str:
        return f"hf://datasets/{self.repository}@{quote(self.revision, safe='')}/{self._prefix}{name}"

    def _stored(self, name: str, file: Any) -> StoredFile:
        content = file.lfs.sha256 if file.lfs else file.blob_id
        location = f"hf://datasets/{self.repository}@{self.commit}/{self._prefix}{name}"
        return StoredFile(name, location, file.size, f"{file.size}-{content}")


def content_of(file: StoredFile) -> Checksum:
    """A file's checksum from a listing of the Hub: sha256 of large files, git's sha1 of small ones."""
    value = file.identity.partition("-")[2]
    return Checksum("sha256" if len(value) == SHA256_DIGITS else "git-sha1", value)


def _get(
    address: str,
    headers: dict[str, str] | None = None,
    *,
    token: bool | None,
    where: str,
    size_bytes: int = WINDOW_BYTES,
) -> Any:
    """A response of the Hub, or of the file store it redirects to; its body has about `size_bytes`."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        get_session,
        hf_raise_for_status,
    )

    sent = {**build_hf_headers(token=token), **(headers or {})}
    with get_session().stream("GET", address, headers=sent, follow_redirects=True, timeout=TIMEOUT_SECONDS) as answer:
        if not answer.is_success:
            answer.read()  # the error quotes its body
        hf_raise_for_status(answer)
        connection = answer.extensions["network_stream"].get_extra_info("socket")
        with arriving(partial(connection.shutdown, SHUT_RD), where=where, size_bytes=size_bytes):
            answer.read()
        return answer


DIGEST_THREADS = 2  # one digests about 1 GB/s, which is more than a link to the hub takes
PLACE = "hf://datasets/owner/name, or hf://datasets/owner/name@branch"


@dataclass(frozen=True)
class LocalFile:
    """A file to commit: its name in the repository, local path, sha256 and size in bytes."""

    name: str
    path: Path
    sha256: str
    size_bytes: int


class HubRepository:
    """``hf://datasets/owner/name@branch``; without a branch it is main. The constructor sends no request."""

    def __init__(self, location: str, *, traffic: Traffic | None = None) -> None:
        matched = LOCATION.fullmatch(location.rstrip("/"))
        self._store = store = HubStore(location, traffic=traffic)
        if not matched or matched[3] or COMMIT.fullmatch(store.revision):
            raise ConfigError(
                "hub.not_a_whole_repository: a dataset is delivered to a whole repository",
                where=location,
                expected=PLACE,
            )
        self.where = store.folder
        self.repository, self.branch = store.repository, store.revision
        self.traffic = store.traffic

    def prepare(self) -> None:
        """Create the repository, private, if there is none; PermanentError without write permission or branch."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def once() -> None:
            try:
                self._store.api.auth_check(self.repository, repo_type="dataset", write=True)
            except RepositoryNotFoundError:
                self._store.api.create_repo(self.repository, repo_type="dataset", private=True, exist_ok=True)

        self._call("write to", once)
        if self.branch not in self.revisions():
            raise PermanentError(
                "hub.no_such_branch: a hub's repository has no such branch",
                where=self.where,
                got=self.branch,
                next_step="create the branch on the hub, or omit it: versions are tags of main",
            )

    def revisions(self) -> dict[str, str]:
        """Every branch and tag -> its commit; a branch takes precedence over a tag of the same name."""
        refs = self._call("look up", lambda: self._store.api.list_repo_refs(self.repository, repo_type="dataset"))
        return {tag.name: str(tag.target_commit) for tag in (*refs.tags, *refs.branches)}

    def at(self, commit: str) -> HubStore:
        """The files of a commit."""
        return HubStore(f"hf://datasets/{self.repository}@{commit}", traffic=self.traffic)

    def files(self, commit: str) -> dict[str, StoredFile]:
        """Name -> file of a commit."""
        return {file.name: file for file in self.at(commit).iter_files()}

    def add_branch(self, name: str, commit: str) -> None:
        """Create a branch at a commit."""
        options = {"repo_type": "dataset", "branch": name, "revision": commit, "exist_ok": True}
        self._call("branch", lambda: self._store.api.create_branch(self.repository, **options))

    def add_tag(self, name: str, commit: str) -> None:
        """Tag a commit; an existing tag of that name is not moved."""
        options = {"repo_type": "dataset", "tag": name, "revision": commit, "exist_ok": True}
        self._call("tag", lambda: self._store.api.create_tag(self.repository, **options))

    def commit(
        self, files: Iterable[LocalFile], removed: Iterable[str], *, branch: str, parent: str, title: str
    ) -> str:
        """Add files and remove names, in one commit, which is returned. One attempt.

        Content that several files share is sent once. The SDK would digest all files before it sends the first; it gets
        the receipts' digests instead, and every file is digested while the SDK sends. VerificationError, before
        the commit, for a file that no longer has its sha256, even if sending failed, too; StoreUnavailableError
        if `branch` is no longer at `parent`.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        adding = [(file, CommitOperationAdd(file.name, file.path)) for file in files]
        for file, operation in adding:
            operation.upload_info.sha256 = bytes.fromhex(file.sha256)
        first = {file.sha256: operation for file, operation in reversed(adding)}
        options = {"repo_type": "dataset", "revision": branch}
        with hub_explained("upload to", self.where):
            with ThreadPoolExecutor(DIGEST_THREADS) as threads:
                digests = threads.map(file_digest, [file.path for file, _ in adding])
                try:
                    self._store.api.preupload_lfs_files(self.repository, first.values(), free_memory=False, **options)
                finally:
                    for (file, _), digest in zip(adding, digests, strict=True):
                        if digest != file.sha256:
                            raise changed_before_upload(file.path, file.sha256)
            removing = [CommitOperationDelete(name, is_folder=False) for name in sorted(removed)]
            operations = [*removing, *(operation for _, operation in adding)]
            options |= {"commit_message": title, "parent_commit": parent}
            done = self._store.api.create_commit(self.repository, operations, **options)
        self.traffic.add(bytes_sent=sum(operation.upload_info.size for operation in first.values()))
        return str(done.oid)

    def _call(self, verb: str, request: Callable[[], T]) -> T:
        return self._store.call(verb, self.where, request)
