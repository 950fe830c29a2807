"""Objects of one bucket of S3 or of a compatible store: conditional writes of small ones, ranges of large ones,
listings.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from corpusmill.engine.work_folder.moved import moved
from corpusmill.errors import PermanentError, TransientError
from corpusmill.storage.mirrored import cache_folder
from corpusmill.storage.s3 import S3Store
from corpusmill.storage.s3_multipart import PART_BYTES, Unfinished, abort, content_md5, send_in_parts, unfinished
from corpusmill.storage.sdk_errors import is_absent

RANGE_BYTES = 8 << 20
THREADS = 4
TAKEN = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
NO_TAG = '"00000000000000000000000000000000"'
"""A tag that no object has."""


class TakenError(TransientError):
    """An object exists already, or has changed: another process was first."""


class GoneError(PermanentError):
    """An object does not exist, or is too short."""


@dataclass(frozen=True)
class Small:
    """An object that is read whole. `tag`, its ETag, identifies its content.

    Times are the store's, in seconds since 1970: of its last change, of the response.
    """

    content: bytes
    tag: str
    changed_at: float
    asked_at: float


@dataclass(frozen=True)
class Listed:
    """An object of a listing."""

    key: str
    size_bytes: int
    changed_at: float
    tag: str


class Objects:
    """Requests to one bucket, with endpoint and credentials from the environment.

    `address`: s3://bucket. State of this process: `tags`, of small objects by key as last seen, "" for a missing one;
    `keeps_conditions`, once checked; `unseen`, bytes added to the cache since its size was measured, and `most_kept`,
    the largest size measured.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.store = S3Store(address, traffic=moved())
        self.bucket = self.store.bucket
        self.tags: dict[str, str] = {}
        self.keeps_conditions = False
        self.unseen = 0
        self.most_kept = 0

    def location(self, key: str) -> str:
        """The complete address of an object."""
        return f"{self.address}/{key}"

    def get(self, key: str) -> Small | None:
        """A small object, or None."""

        def get() -> Small | None:
            try:
                answer = self.store.client.get_object(Bucket=self.bucket, Key=key)
            except self.store.client.exceptions.ClientError as error:
                if is_absent(error):
                    return None
                raise
            content: bytes = answer["Body"].read()
            self.store.require_etag(answer, _md5(content).hexdigest(), self.location(key))
            return Small(content, answer["ETag"], answer["LastModified"].timestamp(), _date(answer).timestamp())

        small = self.store.call("read", self.location(key), get)
        self.store.traffic.add(bytes_received=len(small.content) if small else 0)
        return small

    def put(self, key: str, content: bytes, *, over: str | None = None) -> Small:
        """Write a small object: only if none exists (`over` is ""), only over the one with that tag, or always (None).

        TakenError if the condition fails; also for a retry after one's own success whose answer was lost, so look.
        """
        condition = {} if over is None else {"IfMatch": over} if over else {"IfNoneMatch": "*"}
        md5 = _md5(content)
        headers = {"ContentMD5": base64.b64encode(md5.digest()).decode(), **condition}

        def put() -> Small:
            try:
                answer = self.store.client.put_object(Bucket=self.bucket, Key=key, Body=content, **headers)
            except self.store.client.exceptions.ClientError as error:
                if condition and (error.response["Error"]["Code"] in TAKEN or is_absent(error)):
                    raise self.taken(key) from error
                raise
            self.store.require_etag(answer, md5.hexdigest(), self.location(key))
            return Small(content, answer["ETag"], _date(answer).timestamp(), _date(answer).timestamp())

        written = self.store.call("write", self.location(key), put)
        self.store.traffic.add(bytes_sent=len(content))
        return written

    def send(self, path: Path, key: str) -> None:
        """Upload a file under a key that no other process writes.

        The store checks one digest sent along. Readers of the object check the digests of its blocks.
        """
        if path.stat().st_size > PART_BYTES:
            send_in_parts(self.store, path, key)
            return
        content = path.read_bytes()
        headers = content_md5(self.store, content)  # the cheapest digest with which a request can be signed
        put = partial(self.store.client.put_object, Bucket=self.bucket, Key=key, Body=content, **headers)
        self.store.call("write", self.location(key), put)
        self.store.traffic.add(bytes_sent=len(content))

    def read(self, key: str, first: int, last: int) -> bytes:
        """The bytes [first, last) of an object; GoneError if it does not exist, or is shorter."""
        ranges = [(begin, min(begin + RANGE_BYTES, last)) for begin in range(first, last, RANGE_BYTES)]
        if len(ranges) == 1:
            return self._range(key, *ranges[0])
        with ThreadPoolExecutor(THREADS) as pool:
            return b"".join(pool.map(lambda block: self._range(key, *block), ranges))

    def _range(self, key: str, first: int, last: int) -> bytes:
        """As read, in one request."""

        def read() -> bytes:
            try:
                answer = self.store.client.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={first}-{last - 1}")
            except self.store.client.exceptions.ClientError as error:
                if is_absent(error) or error.response["Error"]["Code"] in {"416", "InvalidRange"}:
                    raise self.gone(key) from error
                raise
            data: bytes = answer["Body"].read()
            if len(data) != last - first:
                raise self.cut(key, last, answer.get("ContentRange", ""))
            return data

        data = self.store.call("read", self.location(key), read)
        self.store.traffic.add(bytes_received=len(data))
        return data

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key begins with `prefix`, in the store's order."""
        for page in self._pages(prefix):
            for row in page.get("Contents", []):
                yield Listed(row["Key"], row["Size"], row["LastModified"].timestamp(), row["ETag"])

    def folders(self, prefix: str) -> Iterator[str]:
        """The names between `prefix` and the next slash, for all keys with both; each once."""
        for page in self._pages(prefix, "/"):
            for row in page.get("CommonPrefixes", []):
                yield row["Prefix"].removeprefix(prefix).rstrip("/")

    def _pages(self, prefix: str, delimiter: str = "") -> Iterator[Any]:
        token = ""
        while True:
            page = self.store.call("list", self.location(prefix), partial(self._page, prefix, token, delimiter))
            yield page
            if not page["IsTruncated"]:
                return
            token = page["NextContinuationToken"]

    def _page(self, prefix: str, token: str, delimiter: str = "") -> Any:
        more = {"ContinuationToken": token} if token else {}
        more |= {"Delimiter": delimiter} if delimiter else {}
        return self.store.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **more)

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Unfinished uploads in parts of keys that begin with `prefix`: of killed workers, or still running."""
        return unfinished(self.store, prefix)

    def abort(self, upload: Unfinished) -> None:
        """End such an upload."""
        abort(self.store, upload)

    def clock(self) -> float:
        """The store's time, in seconds since 1970."""
        ask = partial(self.store.client.list_objects_v2, Bucket=self.bucket, MaxKeys=1)
        return float(_date(self.store.call("list", self.location(""), ask)).timestamp())

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""
        self.store.call(
            "delete", self.location(key), lambda: self.store.client.delete_object(Bucket=self.bucket, Key=key)
        )

    def gone(self, key: str) -> GoneError:
        """The error for a missing object or range."""
        return GoneError("work_folder.object_gone: an object is gone, or shorter than before", where=self.location(key))

    def cut(self, key: str, last: int, content_range: str) -> Exception:
        """The error for a range that came back shorter: GoneError if the object ends before `last`, as the answer's
        Content-Range says, or else a ValueError, for which the store is asked again.
        """
        size = content_range.rpartition("/")[2]
        if size.isdecimal() and int(size) < last:
            return self.gone(key)
        return ValueError("a response of another length")

    def taken(self, key: str) -> TakenError:
        """The error for an object that another process wrote."""
        return TakenError("work_folder.object_taken: another process wrote an object", where=self.location(key))


def _md5(content: bytes) -> Any:
    return hashlib.md5(content, usedforsecurity=False)


def _date(answer: Any) -> Any:
    """The time of a response, by the store's clock."""
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])


ENDPOINT = "AWS_ENDPOINT_URL"


def objects_of(bucket: str) -> Objects:
    """The objects of ``s3://bucket``; one client per process, since clients do not survive forks."""
    return _of_process(bucket, os.getpid(), cache_folder(), os.environ.get(ENDPOINT))


@lru_cache(maxsize=32)
def _of_process(bucket: str, _pid: int, _mirror: Path, _endpoint: str | None) -> Objects:
    return Objects(bucket)
