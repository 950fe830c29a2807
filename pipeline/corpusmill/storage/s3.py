"""Objects below a prefix of an S3 bucket (boto3). Uploads in parts are in s3_multipart.py.

Integrity: every upload carries a digest that S3 checks, and the returned ETag is compared with the md5 of what was sent
(if the ETag is not an md5, the object is looked up); the sha256 of the whole content is kept as metadata. Every ranged
read is compared with the planned ETag.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from functools import cache, partial
from pathlib import Path
from typing import Any

from corpusmill.errors import SourceError, VerificationError
from corpusmill.storage import s3_multipart
from corpusmill.storage.checksums import Checksum, etag_value
from corpusmill.storage.locations import (
    StoredFile,
    asked_as,
    changed_since_planned,
    is_open_to_others,
    require_identity,
    safe_relative_name,
    size_of,
)
from corpusmill.storage.reading import (
    RemoteStore,
    arriving,
    changed_before_upload,
    matches_file,
    range_body,
)
from corpusmill.storage.retries import ChecksumMismatchError, Traffic
from corpusmill.storage.sdk_errors import ABSENT, DIGEST_KEY, is_absent, recorded_sha256, s3_explained

log = logging.getLogger(__name__)

CONNECT_SECONDS, READ_SECONDS = 3, 60
CONNECTIONS = 16  # more than the threads of any transfer


class S3Store(RemoteStore):
    """``s3://bucket/prefix``; names are keys below ``prefix/``."""

    explained = staticmethod(s3_explained)

    def __init__(self, folder: str, *, endpoint_url: str | None = None, traffic: Traffic | None = None) -> None:
        super().__init__(folder, traffic, anonymous=asked_as(endpoint_url).anonymous)
        self.bucket, _, prefix = self.folder.removeprefix("s3://").partition("/")
        if not self.bucket:
            raise SourceError("s3.no_bucket: no bucket in an S3 location", where=folder, expected="s3://bucket/prefix")
        self._prefix = f"{prefix}/" if prefix else ""
        self.client = _client(endpoint_url)

    def _page(self, token: str | None) -> tuple[list[StoredFile], str | None]:
        listed = {"Bucket": self.bucket, "Prefix": self._prefix}
        page = self.client.list_objects_v2(**listed, **({"ContinuationToken": token} if token else {}))
        rows = page.get("Contents", [])
        counted = page.get("KeyCount", len(rows)) == len(rows)
        if not page["Name"] or not counted or not all(row["Key"].startswith(self._prefix) for row in rows):
            raise ValueError("a page of another listing")
        files = [
            self._stored(row["Key"].removeprefix(self._prefix), row["Size"], row["ETag"])
            for row in rows
            if not row["Key"].endswith("/")
        ]
        return files, str(page["NextContinuationToken"]) if page["IsTruncated"] else None

    def stat(self, name: str) -> StoredFile | None:
        """See Store."""
        head = self._head(name)
        return self._stored(name, head["ContentLength"], head["ETag"]) if head else None

    def read_range(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        """See Store. The answer's ETag is compared: not every server honours If-Match, and weak ETags never match."""
        if first == last:
            return b""
        planned = identity.partition("-")[2]

        def read() -> bytes:
            try:
                span = f"bytes={first}-{last - 1}"
                got = self.client.get_object(Bucket=self.bucket, Key=self.key(name), Range=span)
                etag = etag_value(got["ETag"])
            except self.client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in {"416", "InvalidRange", *ABSENT}:
                    there = self.stat(name)
                    now = there.identity if there else None
                    raise changed_since_planned(self.location(name), identity, now) from error
                raise
            if etag != planned:
                raise changed_since_planned(self.location(name), identity, f"ETag {etag}")
            with arriving(got["Body"]._raw_stream.shutdown, where=self.location(name), size_bytes=last - first):
                data: bytes = got["Body"].read()
            size = size_of(identity)
            return range_body(data, got.get("ContentRange"), first, last, size_bytes=size, where=self.location(name))

        data = self.call("read", self.location(name), read)
        self.traffic.add(bytes_received=len(data))
        return data

    def checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """See Store: our own sha256, whole-object checksums, or the ETag if it is an md5."""
        head = self._require(name, identity)
        recorded = recorded_sha256(head)
        if recorded:
            return (Checksum("sha256", recorded), *_whole_checksums(head))
        return self._computed(name, head)

    def own_checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """See Store: whole-object checksums, or the ETag if it is an md5."""
        return self._computed(name, self._require(name, identity))

    def _require(self, name: str, identity: str) -> Any:
        head = self._head(name)
        there = self._stored(name, head["ContentLength"], head["ETag"]) if head else None
        require_identity(self.location(name), identity, there)
        return head

    def _computed(self, name: str, head: Any) -> tuple[Checksum, ...]:
        return _whole_checksums(head) or tuple(self._etag_checksum(name, head))

    def _etag_checksum(self, name: str, head: Any) -> list[Checksum]:
        """The ETag as a checksum, if it is one."""
        if not _etag_is_md5(head):
            return []
        value = etag_value(head["ETag"])
        digest, _, parts = value.partition("-")
        if len(digest) != 32 or set(digest) - set("0123456789abcdef"):
            return []
        if not parts:
            return [Checksum("md5", value)]
        part_bytes = self.call(
            "look up",
            self.location(name),
            lambda: self.client.head_object(Bucket=self.bucket, Key=self.key(name), PartNumber=1)["ContentLength"],
        )
        size = int(head["ContentLength"])
        regular = 0 < part_bytes < size and -(-size // part_bytes) == int(parts)
        return [Checksum("md5-parts", value, part_bytes)] if regular else []

    def digest(self, name: str) -> str | None:
        """The sha256 that the writer recorded with the object; None for objects that others wrote."""
        head = self._head(name)
        return recorded_sha256(head) if head else None

    def holds(self, name: str, path: Path, sha256: str) -> bool:
        """See Store."""
        head = self._head(name)
        if not head or head["ContentLength"] != path.stat().st_size or recorded_sha256(head) != sha256:
            return False
        return matches_file(path, self._etag_checksum(name, head))

    def receive(self, source: Path, name: str, sha256: str) -> None:
        """Upload (in parts when large); size and checksums are compared, part by part and whole."""
        size = source.stat().st_size
        if size <= s3_multipart.PART_BYTES:
            content = source.read_bytes()
            if hashlib.sha256(content).hexdigest() != sha256:
                raise changed_before_upload(source, sha256)
            self.receive_bytes(content, name)
        elif not s3_multipart.upload_in_parts(self, source, name, sha256):
            self.require_arrived(name, size, sha256)

    def receive_bytes(self, content: bytes, name: str) -> None:
        """See Store."""
        digest = hashlib.sha256(content).hexdigest()
        md5 = hashlib.md5(content, usedforsecurity=False)

        def put() -> bool:
            response = self.client.put_object(
                Bucket=self.bucket,
                Key=self.key(name),
                Body=content,
                ContentMD5=base64.b64encode(md5.digest()).decode(),
                Metadata={DIGEST_KEY: digest},
            )
            return self.require_etag(response, md5.hexdigest(), self.location(name))

        compared = self.call("write", self.location(name), put)
        self.traffic.add(bytes_sent=len(content))
        if not compared:
            self.require_arrived(name, len(content), digest)

    def copy(self, name: str, new_name: str) -> None:
        """See Store; by the store itself, in parts when large."""
        source = {"Bucket": self.bucket, "Key": self.key(name)}
        there = self.stat(name)
        if there is not None and there.size_bytes > s3_multipart.LARGEST_COPY_BYTES:
            s3_multipart.copy_in_parts(self, name, new_name, there.size_bytes)
            return
        self.call(
            "copy",
            self.location(new_name),
            lambda: self.client.copy_object(Bucket=self.bucket, Key=self.key(new_name), CopySource=source),
        )

    def delete(self, name: str) -> None:
        """See Store."""
        self.call(
            "delete", self.location(name), lambda: self.client.delete_object(Bucket=self.bucket, Key=self.key(name))
        )

    def keeps_versions(self) -> bool:
        """Whether the bucket keeps deleted and overwritten objects, or did so before (*suspended*)."""
        ask = partial(self.client.get_bucket_versioning, Bucket=self.bucket)
        return "Status" in self.call("ask for versions of", self.folder, ask)

    def remove_unfinished(self, *, keep: str) -> int:
        """See Store."""
        return s3_multipart.abort_unfinished(self, self._prefix, keep=self._prefix + keep)

    def require_etag(self, answer: Any, md5: str, where: str) -> bool:
        """Whether an answer's ETag is an md5; ChecksumMismatchError if it is not that of the content sent."""
        if not _etag_is_md5(answer):
            return False  # S3 has compared the content with the digest sent along
        if (got := etag_value(answer["ETag"])) != md5:
            raise ChecksumMismatchError(
                "store.upload_changed: an upload arrived changed", where=where, expected=f"md5 {md5}", got=got
            )
        return True

    def require_arrived(self, name: str, size_bytes: int, sha256: str) -> None:
        """VerificationError unless the object exists with this size and recorded sha256."""
        head = self._head(name)
        got = (head["ContentLength"], recorded_sha256(head)) if head else None
        if got != (size_bytes, sha256):
            raise VerificationError(
                "store.object_differs: an uploaded object differs from what was sent",
                where=self.location(name),
                expected=f"{size_bytes:,} bytes, sha256 {sha256}",
                got="no object" if got is None else f"{got[0]:,} bytes, sha256 {got[1]}",
                next_step="run again; if it persists, check who else writes to this prefix",
            )

    def key(self, name: str) -> str:
        """The key of a name."""
        return self._prefix + safe_relative_name(name, where=self.folder)

    def location(self, name: str) -> str:
        """The complete location of a name."""
        return f"s3://{self.bucket}/{self.key(name)}"

    def _head(self, name: str) -> Any:
        def head() -> Any:
            try:
                there = self.client.head_object(Bucket=self.bucket, Key=self.key(name), ChecksumMode="ENABLED")
            except self.client.exceptions.ClientError as error:
                if is_absent(error):
                    return None
                raise
            # Read here, so that a malformed answer is an error of this request.
            _ = there["ContentLength"], there["ETag"], recorded_sha256(there), _whole_checksums(there)
            return there

        return self.call("look up", self.location(name), head)

    def _stored(self, name: str, size_bytes: int, etag: str) -> StoredFile:
        return StoredFile(
            name, f"s3://{self.bucket}/{self._prefix}{name}", size_bytes, f"{size_bytes}-{etag_value(etag)}"
        )


@cache
def _service_models() -> Any:
    """The SDK's descriptions of its services, loaded once per process: every new session would read 2 MB again."""
    from botocore.loaders import create_loader

    return create_loader()


def _client(endpoint_url: str | None) -> Any:
    import boto3
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": 1},  # retries.py is the one policy
        request_checksum_calculation="when_required",  # a digest is sent anyway
        response_checksum_validation="when_required",  # some servers send the whole object's with a range
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=CONNECTIONS,
        **({"signature_version": UNSIGNED} if asked_as(endpoint_url).anonymous else {}),
    )
    with s3_explained("open", endpoint_url or "s3://"):
        session = botocore.session.Session()
        session.register_component("data_loader", _service_models())
        client = boto3.Session(botocore_session=session).client("s3", endpoint_url=endpoint_url or None, config=config)
    if asked_as(endpoint_url).requester_pays:
        client.meta.events.register("provide-client-params.s3", _pay)
    if is_open_to_others(client.meta.endpoint_url):
        _warn_of_plain_http(client.meta.endpoint_url)
    return client


def _pay(params: dict[str, Any], model: Any, **_: Any) -> None:
    """Have the requester pay for each request that can say so."""
    if "RequestPayer" in model.input_shape.members:
        params.setdefault("RequestPayer", "requester")


@cache
def _warn_of_plain_http(endpoint_url: str) -> None:
    """Warn once per process."""
    log.warning("requests to %s are signed but not encrypted: others can read and replay them; use https", endpoint_url)


def _whole_checksums(head: Any) -> tuple[Checksum, ...]:
    if head.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return ()
    stated = [(kind, head.get(f"Checksum{kind}", "")) for kind in ("SHA256", "CRC64NVME", "CRC32C", "CRC32")]
    return tuple(
        Checksum(kind.lower(), base64.b64decode(value).hex()) for kind, value in stated if value and "-" not in value
    )


def _etag_is_md5(answer: Any) -> bool:
    """Whether the ETag is an md5: not under KMS or customer keys, nor if it is weak."""
    if answer["ETag"].startswith("W/"):
        return False
    return answer.get("ServerSideEncryption", "AES256") == "AES256" and "SSECustomerAlgorithm" not in answer
