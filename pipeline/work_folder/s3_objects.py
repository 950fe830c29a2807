"""Objects of a bucket of S3 or of a compatible store. Tags are ETags."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

from corpusmill.storage.s3 import S3Store
from corpusmill.storage.s3_errors import is_absent
from corpusmill.storage.s3_multipart import PART_BYTES, Unfinished, abort, content_md5, send_in_parts, unfinished
from corpusmill.work_folder.moved import moved
from corpusmill.work_folder.objects import Listed, Objects, Small

TAKEN = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}


class S3Objects(Objects):
    """See Objects."""

    if_absent, if_same = "If-None-Match: *", "If-Match"
    other_tag = '"00000000000000000000000000000000"'

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.store = S3Store(address, traffic=moved())
        self.bucket = self.store.bucket

    def get(self, key: str) -> Small | None:
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
        if path.stat().st_size > PART_BYTES:
            send_in_parts(self.store, path, key)
            return
        content = path.read_bytes()
        headers = content_md5(self.store, content)  # the cheapest digest with which a request can be signed
        put = partial(self.store.client.put_object, Bucket=self.bucket, Key=key, Body=content, **headers)
        self.store.call("write", self.location(key), put)
        self.store.traffic.add(bytes_sent=len(content))

    def _range(self, key: str, first: int, last: int) -> bytes:
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
        for page in self._pages(prefix):
            for row in page.get("Contents", []):
                yield Listed(row["Key"], row["Size"], row["LastModified"].timestamp(), row["ETag"])

    def folders(self, prefix: str) -> Iterator[str]:
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

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        return unfinished(self.store, prefix)

    def abort(self, upload: Unfinished) -> None:
        abort(self.store, upload)

    def _page(self, prefix: str, token: str, delimiter: str = "") -> Any:
        more = {"ContinuationToken": token} if token else {}
        more |= {"Delimiter": delimiter} if delimiter else {}
        return self.store.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **more)

    def clock(self) -> float:
        ask = partial(self.store.client.list_objects_v2, Bucket=self.bucket, MaxKeys=1)
        return float(_date(self.store.call("list", self.location(""), ask)).timestamp())

    def delete(self, key: str) -> None:
        self.store.call(
            "delete", self.location(key), lambda: self.store.client.delete_object(Bucket=self.bucket, Key=key)
        )


def _md5(content: bytes) -> Any:
    return hashlib.md5(content, usedforsecurity=False)


def _date(answer: Any) -> Any:
    """The time of a response, by the store's clock."""
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
