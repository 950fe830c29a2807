"""Writes to a dataset repository on the Hugging Face Hub, one commit at a time (huggingface_hub).

The SDK uploads (by LFS or Xet, as available) with retries of its own, and sends the commit itself once. Here a failed
step is repeated by the policy of retries.py, and files that the Hub already has are not sent again: each upload checks
first. A commit names its parent, so two writers never overwrite each other, and the next attempt finds a commit whose
answer was lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from corpusmill.errors import ConfigError, PermanentError
from corpusmill.fingerprint import file_digest
from corpusmill.storage.hub import COMMIT, LOCATION, HubStore
from corpusmill.storage.hub_errors import explained
from corpusmill.storage.locations import StoredFile
from corpusmill.storage.retries import Traffic, retried
from corpusmill.storage.verified import changed_before_upload

T = TypeVar("T")

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
        store = HubStore(location)
        if not matched or matched[3] or COMMIT.fullmatch(store.revision):
            raise ConfigError(
                "hub.not_a_whole_repository: a dataset takes a whole repository", where=location, expected=PLACE
            )
        self.where = store.folder
        self.repository, self.branch = store.repository, store.revision
        self.traffic = traffic or Traffic()

    @cached_property
    def _api(self) -> Any:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars()  # they would fill logs
        return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))

    def prepare(self) -> None:
        """Create the repository, private, if there is none; PermanentError without write permission or branch."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def once() -> None:
            try:
                self._api.auth_check(self.repository, repo_type="dataset", write=True)
            except RepositoryNotFoundError:
                self._api.create_repo(self.repository, repo_type="dataset", private=True, exist_ok=True)

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
        refs = self._call("look up", lambda: self._api.list_repo_refs(self.repository, repo_type="dataset"))
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
        self._call("branch", lambda: self._api.create_branch(self.repository, **options))

    def add_tag(self, name: str, commit: str) -> None:
        """Tag a commit; an existing tag of that name is not moved."""
        options = {"repo_type": "dataset", "tag": name, "revision": commit, "exist_ok": True}
        self._call("tag", lambda: self._api.create_tag(self.repository, **options))

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
        with explained("upload to", self.where):
            with ThreadPoolExecutor(DIGEST_THREADS) as threads:
                digests = threads.map(file_digest, [file.path for file, _ in adding])
                try:
                    self._api.preupload_lfs_files(self.repository, first.values(), free_memory=False, **options)
                finally:
                    for (file, _), digest in zip(adding, digests, strict=True):
                        if digest != file.sha256:
                            raise changed_before_upload(file.path, file.sha256)
            removing = [CommitOperationDelete(name, is_folder=False) for name in sorted(removed)]
            operations = [*removing, *(operation for _, operation in adding)]
            options |= {"commit_message": title, "parent_commit": parent}
            done = self._api.create_commit(self.repository, operations, **options)
        self.traffic.add(bytes_sent=sum(operation.upload_info.size for operation in first.values()))
        return str(done.oid)

    def _call(self, verb: str, request: Callable[[], T]) -> T:
        return retried(request, where=self.where, traffic=self.traffic, explained=partial(explained, verb, self.where))
