"""Objects of one bucket: small ones, put on conditions; stretches of large ones; listings."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import PermanentError, TransientError
from corpusmill.mirrored import cache_folder
from corpusmill.work_folder.moved import moved

if TYPE_CHECKING:
    from corpusmill.storage.s3_multipart import Unfinished

TAKEN = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
RANGE_BYTES = 8 << 20
THREADS = 4


class TakenError(TransientError):
    """An object is there already, or is another one than it was: somebody else was first."""


class GoneError(PermanentError):
    """An object is not there."""


@dataclass(frozen=True)
class Small:
    """An object that is read whole. `tag`: its ETag. Times are the store's, in seconds: its change, the answer."""

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


@lru_cache(maxsize=32)
def _of_process(bucket: str, _pid: int, _mirror: Path, _endpoint: str | None) -> Objects:
    return Objects(bucket)


def objects_of(bucket: str) -> Objects:
    """The objects of a bucket; a client of its own for each process, since none survives a fork."""
    return _of_process(bucket, os.getpid(), cache_folder(), os.environ.get("AWS_ENDPOINT_URL"))


class Objects:
    """Requests to one bucket, at the endpoint and with the credentials that the environment says.

    What a process knows of it: `tags`, of small objects by key as they were last seen, "" for one that was not there;
    `keeps_conditions`, once that is known; `looked_at`, the bytes it had moved when it looked what the cache holds.
    """

    def __init__(self, bucket: str) -> None:
        from corpusmill.storage.s3 import S3Store

        self.store = S3Store(f"s3://{bucket}", traffic=moved())
        self.bucket = bucket
        self.tags: dict[str, str] = {}
        self.keeps_conditions = False
        self.looked_at = 0

    def get(self, key: str) -> Small | None:
        """A small object, or None."""

        def get() -> Small | None:
            try:
                answer = self.store.client.get_object(Bucket=self.bucket, Key=key)
            except self.store.client.exceptions.ClientError as error:
                if _is_absent(error):
                    return None
                raise
            content: bytes = answer["Body"].read()
            self.store.require_etag(answer, _md5(content).hexdigest(), self._address(key))
            return Small(content, answer["ETag"], answer["LastModified"].timestamp(), _date(answer).timestamp())

        small = self.store.call("read", self._address(key), get)
        self.store.traffic.add(bytes_received=len(small.content) if small else 0)
        return small

    def put(self, key: str, content: bytes, *, over: str | None = None) -> Small:
        """Write a small object: where none is (`over` is ""), over the one of that tag, or whatever is there (None).

        TakenError if another is there. One's own success may be answered so, where an answer was lost: look.
        """
        condition = {} if over is None else {"IfMatch": over} if over else {"IfNoneMatch": "*"}
        md5 = _md5(content)
        headers = {"ContentMD5": base64.b64encode(md5.digest()).decode(), **condition}

        def put() -> Small:
            try:
                answer = self.store.client.put_object(Bucket=self.bucket, Key=key, Body=content, **headers)
            except self.store.client.exceptions.ClientError as error:
                if condition and (error.response["Error"]["Code"] in TAKEN or _is_absent(error)):
                    raise TakenError("somebody else wrote an object", where=self._address(key)) from error
                raise
            self.store.require_etag(answer, md5.hexdigest(), self._address(key))
            return Small(content, answer["ETag"], _date(answer).timestamp(), _date(answer).timestamp())

        written = self.store.call("write", self._address(key), put)
        self.store.traffic.add(bytes_sent=len(content))
        return written

    def send(self, path: Path, key: str) -> None:
        """Upload a file under a key that nobody else writes.

        The store compares what arrives with one digest that comes along: the least that a request can be signed with.
        Whoever reads the object compares it with the digests of its blocks.
        """
        from corpusmill.storage.s3_multipart import PART_BYTES, content_md5, send_in_parts

        if path.stat().st_size > PART_BYTES:
            send_in_parts(self.store, path, key)
            return
        content = path.read_bytes()
        headers = content_md5(self.store, content)
        put = partial(self.store.client.put_object, Bucket=self.bucket, Key=key, Body=content, **headers)
        self.store.call("write", self._address(key), put)
        self.store.traffic.add(bytes_sent=len(content))

    def read(self, key: str, first: int, last: int) -> bytes:
        """The bytes [first, last) of an object; GoneError if it is not there, or is shorter."""
        ranges = [(begin, min(begin + RANGE_BYTES, last)) for begin in range(first, last, RANGE_BYTES)]
        if len(ranges) == 1:
            return self._range(key, *ranges[0])
        with ThreadPoolExecutor(THREADS) as pool:
            return b"".join(pool.map(lambda block: self._range(key, *block), ranges))

    def _range(self, key: str, first: int, last: int) -> bytes:
        def read() -> bytes:
            try:
                answer = self.store.client.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={first}-{last - 1}")
            except self.store.client.exceptions.ClientError as error:
                if _is_absent(error) or error.response["Error"]["Code"] in {"416", "InvalidRange"}:
                    raise GoneError("an object is gone, or shorter than before", where=self._address(key)) from error
                raise
            data: bytes = answer["Body"].read()
            if len(data) != last - first:
                raise ValueError("an answer of another length")
            return data

        data = self.store.call("read", self._address(key), read)
        self.store.traffic.add(bytes_received=len(data))
        return data

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key begins with `prefix`, in the store's order."""
        for page in self._pages(prefix):
            for row in page.get("Contents", []):
                yield Listed(row["Key"], row["Size"], row["LastModified"].timestamp(), row["ETag"])

    def folders(self, prefix: str) -> Iterator[str]:
        """What stands between `prefix` and the next slash, of all keys that have both; each once."""
        for page in self._pages(prefix, "/"):
            for row in page.get("CommonPrefixes", []):
                yield row["Prefix"].removeprefix(prefix).rstrip("/")

    def _pages(self, prefix: str, delimiter: str = "") -> Iterator[Any]:
        token = ""
        while True:
            page = self.store.call("list", self._address(prefix), partial(self._page, prefix, token, delimiter))
            yield page
            if not page["IsTruncated"]:
                return
            token = page["NextContinuationToken"]

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Uploads in parts that a killed worker left behind, or that one is about to finish."""
        from corpusmill.storage.s3_multipart import unfinished

        return unfinished(self.store, prefix)

    def abort(self, upload: Unfinished) -> None:
        """End such an upload."""
        from corpusmill.storage.s3_multipart import abort

        abort(self.store, upload)

    def _page(self, prefix: str, token: str, delimiter: str = "") -> Any:
        more = {"ContinuationToken": token} if token else {}
        more |= {"Delimiter": delimiter} if delimiter else {}
        return self.store.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **more)

    def clock(self) -> float:
        """What time it is for the store, in seconds."""
        ask = partial(self.store.client.list_objects_v2, Bucket=self.bucket, MaxKeys=1)
        return float(_date(self.store.call("list", self._address(""), ask)).timestamp())

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens if there is none."""
        self.store.call(
            "delete", self._address(key), lambda: self.store.client.delete_object(Bucket=self.bucket, Key=key)
        )

    def _address(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"


def _md5(content: bytes) -> Any:
    return hashlib.md5(content, usedforsecurity=False)


def _is_absent(error: Any) -> bool:
    from corpusmill.storage.s3_errors import is_absent

    return is_absent(error)


def _date(answer: Any) -> Any:
    """When the store answered, by its own clock."""
    from email.utils import parsedate_to_datetime

    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
