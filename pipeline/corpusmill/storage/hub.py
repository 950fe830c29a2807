"""Reads files of one revision of a dataset on the Hugging Face Hub (huggingface_hub). hub_repository.py writes.

A location is ``hf://datasets/owner/name@revision/folder``; without a revision it is main, and a ``/`` in one is
written %2F. The revision is resolved to a commit once, and locations of listed files name that commit, so that a plan
never reads another. Credentials come from the SDK's own chain (HF_TOKEN, `hf auth login`); HF_ENDPOINT sets another
hub.

Files are read by ranges from the URLs that the Hub redirects to; nothing is built or cached on disk.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from socket import SHUT_RD
from typing import Any, BinaryIO, NoReturn, TypeVar
from urllib.parse import quote, unquote

from corpusmill.errors import ConfigError
from corpusmill.storage.addresses import natural_order
from corpusmill.storage.checksums import Checksum
from corpusmill.storage.hub_errors import EXPECTED, explained
from corpusmill.storage.locations import StoredFile, require_identity, safe_relative_name, size_of
from corpusmill.storage.ranged import WINDOW_BYTES, arriving, open_remote, range_body
from corpusmill.storage.retries import Traffic, retried
from corpusmill.storage.twice import listed_twice

T = TypeVar("T")

LOCATION = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([^/]+))?(?:/(.*))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
SETTINGS = ".gitattributes"  # git's: the hub writes it when it creates a repository
TIMEOUT_SECONDS = 60
SHA256_DIGITS = 64


class HubStore:
    """``hf://datasets/owner/name@revision/folder``; names are paths below the folder."""

    def __init__(self, folder: str, *, traffic: Traffic | None = None) -> None:
        matched = LOCATION.fullmatch(folder.rstrip("/"))
        revision = unquote(matched[2] or "main") if matched else ""
        if not matched or {"", ".", ".."} & {*matched[1].split("/"), *revision.split("/")}:
            raise ConfigError("hub.not_a_dataset: this is not a dataset of a hub", where=folder, expected=EXPECTED)
        self.folder = folder.rstrip("/")
        self.traffic = traffic or Traffic()
        self.repository: str = matched[1]
        self.revision = revision
        self._prefix = f"{matched[3]}/" if matched[3] else ""
        self._endpoint = os.environ.get("HF_ENDPOINT")

    @cached_property
    def _api(self) -> Any:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self._endpoint)

    @cached_property
    def commit(self) -> str:
        """The commit that the revision names now."""
        if COMMIT.fullmatch(self.revision):
            return self.revision
        info = self._call(
            "look up", self.folder, lambda: self._api.dataset_info(self.repository, revision=self.revision)
        )
        return str(info.sha)

    def iter_files(self) -> Iterator[StoredFile]:
        """See Store. Pages are requested one by one: the SDK's own listing has a retry policy of its own."""
        return listed_twice(self._listed, self.folder)

    def _listed(self) -> Iterator[StoredFile]:
        below = f"/{quote(self._prefix.rstrip('/'), safe='')}" if self._prefix else ""
        first = f"{self._api.endpoint}/api/datasets/{self.repository}/tree/{self.commit}{below}?recursive=True"
        address: str | None = first
        while address:
            files, address = self._call("list", self.folder, partial(self._page, address))
            yield from files

    def _page(self, address: str) -> tuple[list[StoredFile], str | None]:
        """(files of a page of a listing, URL of the next one). KeyError or ValueError if it is malformed."""
        from huggingface_hub.hf_api import RepoFile

        answer = _get(address, where=self.folder)
        entries = answer.json()
        rows = [(row["type"], row["path"], row) for row in entries]
        if not isinstance(entries, list) or not all(path.startswith(self._prefix) for _, path, _ in rows):
            raise ValueError("a page of another listing")
        repo_file: Any = RepoFile
        listed = [repo_file(**row) for kind, _, row in rows if kind == "file"]
        files = [self._stored(file.path.removeprefix(self._prefix), file) for file in listed if file.path != SETTINGS]
        following = answer.links.get("next", {}).get("url")
        if following and not following.startswith(f"{self._api.endpoint}/"):
            raise ValueError("a next page on another host, which must not get the token")
        return files, following

    def list_files(self) -> list[StoredFile]:
        """See Store."""
        return sorted(self.iter_files(), key=lambda file: natural_order(file.name))

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
            answer = _get(address, headers, where=self._location(name), size_bytes=last - first)
            size, stated = size_of(identity), answer.headers.get("Content-Range")
            return range_body(answer.content, stated, first, last, size_bytes=size, where=self._location(name))

        data = self._call("read", self._location(name), read)
        self.traffic.add(bytes_received=len(data))
        return data

    def open(self, name: str) -> BinaryIO:
        """See Store."""
        return open_remote(self, name)

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

    def holds(self, name: str, path: Path, sha256: str) -> bool:  # noqa: ARG002
        """See _refuse."""
        self._refuse()

    def receive(self, source: Path, name: str, sha256: str) -> None:  # noqa: ARG002
        """See _refuse."""
        self._refuse()

    def receive_bytes(self, content: bytes, name: str) -> None:  # noqa: ARG002
        """See _refuse."""
        self._refuse()

    def copy(self, name: str, new_name: str) -> None:  # noqa: ARG002
        """See _refuse."""
        self._refuse()

    def delete(self, name: str) -> None:  # noqa: ARG002
        """See _refuse."""
        self._refuse()

    def remove_unfinished(self, *, keep: str) -> int:  # noqa: ARG002
        """See _refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ConfigError(
            "hub.single_file: a hub accepts whole datasets in one commit, not single files",
            where=self.folder,
            expected="a folder, s3://bucket/prefix or gs://bucket/prefix",
            next_step="name the repository among the destinations of the dataset, and build or upload",
        )

    def _find(self, name: str) -> Any:
        from huggingface_hub.hf_api import RepoFile

        path = self._path(name)
        files = self._call(
            "look up",
            self._location(name),
            lambda: self._api.get_paths_info(self.repository, [path], revision=self.commit, repo_type="dataset"),
        )
        return next((file for file in files if isinstance(file, RepoFile) and file.path == path), None)

    def _call(self, verb: str, where: str, request: Callable[[], T]) -> T:
        return retried(request, where=where, traffic=self.traffic, explained=partial(explained, verb, where))

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


def _get(address: str, headers: dict[str, str] | None = None, *, where: str, size_bytes: int = WINDOW_BYTES) -> Any:
    """A response of the Hub, or of the file store it redirects to; its body has about `size_bytes`."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        get_session,
        hf_raise_for_status,
    )

    sent = {**build_hf_headers(), **(headers or {})}
    with get_session().stream("GET", address, headers=sent, follow_redirects=True, timeout=TIMEOUT_SECONDS) as answer:
        if not answer.is_success:
            answer.read()  # the error quotes its body
        hf_raise_for_status(answer)
        connection = answer.extensions["network_stream"].get_extra_info("socket")
        with arriving(partial(connection.shutdown, SHUT_RD), where=where, size_bytes=size_bytes):
            answer.read()
        return answer
