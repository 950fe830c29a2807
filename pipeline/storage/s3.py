"""Objects below a prefix of an S3 bucket (boto3)."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from pipeline.errors import PermanentError, SourceError, StoreUnavailableError, VerificationError
from pipeline.storage.listing import natural_order
from pipeline.storage.locations import StoredFile, safe_relative_name

DIGEST_KEY = "sha256"  # user metadata of every object we write: hex sha256 of the whole content
NOT_FOUND = {"404", "NoSuchKey", "NotFound"}
TRANSIENT = {
    "RequestTimeout",
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "Throttling",
    "500",
    "502",
    "503",
    "504",
}


class _Body(io.RawIOBase):
    """An object's body as a stream. botocore's own stream forgets to check the length when used in a `with`."""

    def __init__(self, body: Any, explained: Callable[[], AbstractContextManager[None]]) -> None:
        self._body = body
        self._explained = explained

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self._explained():
            return bytes(self._body.read(None if size < 0 else size))

    def close(self) -> None:
        self._body.close()
        super().close()


class S3Store:
    """``s3://bucket/prefix``; names are keys below ``prefix/``."""

    def __init__(self, folder: str, *, endpoint_url: str | None = None) -> None:
        import boto3
        from botocore.config import Config

        self.folder = folder.rstrip("/")
        self.bucket, _, prefix = self.folder.removeprefix("s3://").partition("/")
        if not self.bucket:
            raise SourceError("an S3 location names no bucket", where=folder, expected="s3://bucket/prefix")
        self._prefix = f"{prefix}/" if prefix else ""
        retries = Config(retries={"mode": "standard", "max_attempts": 5})
        self._client: Any = boto3.client("s3", endpoint_url=endpoint_url, config=retries)

    def list_files(self) -> list[StoredFile]:
        """Every object below the prefix; zero-byte folder placeholders (keys that end in /) are left out."""
        found = []
        with self._explained("list", self.folder):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._prefix):
                found += [one for one in page.get("Contents", []) if not one["Key"].endswith("/")]
        stored = [self._stored(one["Key"].removeprefix(self._prefix), one["Size"], one["ETag"]) for one in found]
        return sorted(stored, key=lambda file: natural_order(file.name))

    def stat(self, name: str) -> StoredFile | None:
        """See Store."""
        head = self._head(name)
        return self._stored(name, head["ContentLength"], head["ETag"]) if head else None

    def open(self, name: str) -> BinaryIO:
        """See Store; reading raises StoreUnavailableError when the body breaks off or is shorter than the object."""
        with self._explained("read", self._location(name)):
            body = self._client.get_object(Bucket=self.bucket, Key=self._key(name))["Body"]
        return cast(BinaryIO, _Body(body, lambda: self._explained("read", self._location(name))))

    def digest(self, name: str) -> str | None:
        """The sha256 that the writer recorded with the object; None for objects that others wrote."""
        head = self._head(name)
        return head["Metadata"].get(DIGEST_KEY) if head else None

    def receive(self, source: Path, name: str, sha256: str) -> None:
        """Upload (multipart when large); S3 itself checks every part's SHA-256; then size and digest are read back."""
        from boto3.s3.transfer import TransferConfig

        options = {"ChecksumAlgorithm": "SHA256", "Metadata": {DIGEST_KEY: sha256}}
        with self._explained("write", self._location(name)):
            self._client.upload_file(
                str(source), self.bucket, self._key(name), ExtraArgs=options, Config=TransferConfig(max_concurrency=4)
            )
        self._require_arrived(name, source.stat().st_size, sha256)

    def receive_bytes(self, content: bytes, name: str) -> None:
        """See Store."""
        digest = hashlib.sha256(content)
        with self._explained("write", self._location(name)):
            self._client.put_object(
                Bucket=self.bucket,
                Key=self._key(name),
                Body=content,
                ChecksumSHA256=base64.b64encode(digest.digest()).decode(),
                Metadata={DIGEST_KEY: digest.hexdigest()},
            )
        self._require_arrived(name, len(content), digest.hexdigest())

    def _require_arrived(self, name: str, size_bytes: int, sha256: str) -> None:
        head = self._head(name)
        got = (head["ContentLength"], head["Metadata"].get(DIGEST_KEY)) if head else None
        if got != (size_bytes, sha256):
            raise VerificationError(
                "an uploaded object is not what was sent",
                where=self._location(name),
                expected=f"{size_bytes:,} bytes, sha256 {sha256}",
                got="no object" if got is None else f"{got[0]:,} bytes, sha256 {got[1]}",
                next_step="run again; if it stays, look who else writes to this prefix",
            )

    def _head(self, name: str) -> Any:
        from botocore.exceptions import ClientError

        try:
            with self._explained("look up", self._location(name)):
                return self._client.head_object(Bucket=self.bucket, Key=self._key(name))
        except PermanentError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and cause.response["Error"]["Code"] in NOT_FOUND:
                return None
            raise

    def _key(self, name: str) -> str:
        return self._prefix + safe_relative_name(name, where=self.folder)

    def _location(self, name: str) -> str:
        return f"s3://{self.bucket}/{self._key(name)}"

    def _stored(self, name: str, size_bytes: int, etag: str) -> StoredFile:
        return StoredFile(name, self._location(name), size_bytes, f"{size_bytes}-{etag.strip(chr(34))}")

    @contextmanager
    def _explained(self, verb: str, where: str) -> Iterator[None]:
        """Turn SDK errors into ours: transient ones are retried by the scheduler, the others say what to mend."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
        from urllib3.exceptions import HTTPError

        try:
            yield
        except NoCredentialsError as error:
            raise PermanentError(
                f"no credentials to {verb} an S3 location",
                where=where,
                next_step="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run with a role",
            ) from error
        except ClientError as error:
            code = error.response["Error"]["Code"]
            kind = StoreUnavailableError if code in TRANSIENT else PermanentError
            raise kind(f"cannot {verb} an S3 location", where=where, got=f"{code}: {error}") from error
        except (BotoCoreError, Boto3Error, HTTPError, ConnectionError, TimeoutError) as error:
            raise StoreUnavailableError(f"cannot {verb} an S3 location", where=where, got=error) from error
