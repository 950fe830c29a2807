"""Objects of a bucket of Google Cloud Storage. Tags are generations.

Experimental: we have not run a build there. The JSON API documents no header with an object's time of change for its
content, so reading a small object takes two requests: its metadata, then its content at that generation.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import google_crc32c

from corpusmill.errors import StoreUnavailableError
from corpusmill.storage.gcs import GcsStore
from corpusmill.storage.gcs_multipart import abort, put, send_in_parts, unfinished
from corpusmill.storage.ranged import arriving
from corpusmill.storage.retries import ChecksumMismatchError
from corpusmill.storage.s3_multipart import PART_BYTES, Unfinished
from corpusmill.work_folder.moved import moved
from corpusmill.work_folder.objects import Listed, Objects, Small


class GcsObjects(Objects):
    """See Objects."""

    if_absent, if_same = "ifGenerationMatch=0", "ifGenerationMatch"
    other_tag = "1"  # generations are microseconds since 1970

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.store = GcsStore(address, traffic=moved())

    def get(self, key: str) -> Small | None:
        from google.api_core.exceptions import NotFound

        def look_up() -> tuple[Any, float] | None:
            try:
                answer = self.store.get(self._path(key), {})
            except NotFound:
                return None
            with arriving(answer.raw.shutdown, where=self.location(key)):
                row = answer.json()
            _ = int(row["size"]), _seconds(row), base64.b64decode(row["crc32c"])  # a malformed answer fails here
            return row, _date(answer)

        def content(row: Any) -> bytes:
            size_bytes = int(row["size"])
            if not size_bytes:
                return b""  # an empty object has no ranges
            try:
                answer = self.store.media(key, 0, size_bytes, {"generation": row["generation"]})
            except NotFound as error:
                raise StoreUnavailableError(
                    "an object was replaced while it was read", where=self.location(key)
                ) from error
            with arriving(answer.raw.shutdown, where=self.location(key), size_bytes=size_bytes):
                content: bytes = answer.raw.read(decode_content=False)
            if (crc32c := google_crc32c.value(content).to_bytes(4, "big")) != base64.b64decode(row["crc32c"]):
                raise ChecksumMismatchError("an object arrived changed", where=self.location(key), got=crc32c.hex())
            return content

        def both() -> Small | None:
            there = look_up()
            if there is None:
                return None
            self.store.traffic.add(requests=1)
            row, asked_at = there
            return Small(content(row), str(row["generation"]), _seconds(row), asked_at)

        small = self.store.call("read", self.location(key), both)
        self.store.traffic.add(bytes_received=len(small.content) if small else 0)
        return small

    def put(self, key: str, content: bytes, *, over: str | None = None) -> Small:
        from google.api_core.exceptions import PreconditionFailed

        condition = {} if over is None else {"if_generation_match": int(over or 0)}

        def write() -> Small:
            blob = self.store.blob(key)
            try:
                put(blob, content, **condition)
            except PreconditionFailed as error:
                raise self.taken(key) from error
            changed_at = blob.updated.timestamp()
            return Small(content, str(blob.generation), changed_at, changed_at)

        written = self.store.call("write", self.location(key), write)
        self.store.traffic.add(bytes_sent=len(content))
        return written

    def send(self, path: Path, key: str) -> None:
        if path.stat().st_size > PART_BYTES:
            send_in_parts(self.store, path, self.store.blob(key))
            return
        content = path.read_bytes()
        self.store.call("write", self.location(key), lambda: put(self.store.blob(key), content))
        self.store.traffic.add(bytes_sent=len(content))

    def _range(self, key: str, first: int, last: int) -> bytes:
        from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

        def read() -> bytes:
            try:
                answer = self.store.media(key, first, last, {})
            except (NotFound, RequestRangeNotSatisfiable) as error:
                raise self.gone(key) from error
            with arriving(answer.raw.shutdown, where=self.location(key), size_bytes=last - first):
                data: bytes = answer.raw.read(decode_content=False)
            if len(data) != last - first:
                raise self.cut(key, last, answer.headers.get("Content-Range", ""))
            return data

        data = self.store.call("read", self.location(key), read)
        self.store.traffic.add(bytes_received=len(data))
        return data

    def list(self, prefix: str) -> Iterator[Listed]:
        for page in self._pages({"prefix": prefix}):
            for row in page.get("items", []):
                yield Listed(row["name"], int(row["size"]), _seconds(row), str(row["generation"]))

    def folders(self, prefix: str) -> Iterator[str]:
        for page in self._pages({"prefix": prefix, "delimiter": "/"}):
            for folder in page.get("prefixes", []):
                yield folder.removeprefix(prefix).rstrip("/")

    def _pages(self, asked: dict[str, str]) -> Iterator[Any]:
        token: str | None = ""
        while token is not None:
            more = {"pageToken": token} if token else {}
            page = self.store.call("list", self.location(asked["prefix"]), partial(self.store.page, asked | more))
            yield page
            token = page.get("nextPageToken") or None

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        return unfinished(self.store, prefix)

    def abort(self, upload: Unfinished) -> None:
        abort(self.store, upload)

    def clock(self) -> float:
        def ask() -> float:
            answer = self.store.get(self._path(""), {"maxResults": "1"})
            answer.close()
            return _date(answer)

        return self.store.call("list", self.location(""), ask)

    def delete(self, key: str) -> None:
        self.store.delete(key)

    def _path(self, key: str) -> str:
        """The JSON API's path of an object, or of the bucket's listing."""
        folder = f"storage/v1/b/{quote(self.store.bucket, safe='')}/o"
        return f"{folder}/{quote(key, safe='')}" if key else folder


def _seconds(row: Any) -> float:
    """The time of an object's change, in seconds by the store's clock."""
    return datetime.fromisoformat(row["updated"]).timestamp()


def _date(answer: Any) -> float:
    """The time of a response, in seconds by the store's clock."""
    return parsedate_to_datetime(answer.headers["Date"]).timestamp()
