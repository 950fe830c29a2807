"""Objects below a prefix of a Google Cloud Storage bucket (google-cloud-storage).

Credentials are the SDK's own chain. STORAGE_EMULATOR_HOST, which the SDK reads, means an emulator without credentials.
A planned object is read at its generation, so that another one is never seen. Uploads carry crc32c, which the store
checks, and what it then says is compared with the local file. Large objects go up as one resumable stream each.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pipeline.errors import CorpusmillError, PermanentError, SourceError, StoreUnavailableError, VerificationError
from pipeline.storage.checksums import Checksum
from pipeline.storage.listing import natural_order
from pipeline.storage.locations import StoredFile, changed_since_planned, require_identity, safe_relative_name
from pipeline.storage.ranged import open_ranged
from pipeline.storage.retries import ChecksumMismatchError, Traffic, retried
from pipeline.storage.verified import matches_file

T = TypeVar("T")

DIGEST_KEY = "sha256"
TIMEOUT_SECONDS = 60


class GcsStore:
    """``gs://bucket/prefix``; names are keys below ``prefix/``."""

    def __init__(self, folder: str, *, traffic: Traffic | None = None) -> None:
        self.folder = folder.rstrip("/")
        self.traffic = traffic or Traffic()
        bucket, _, prefix = self.folder.removeprefix("gs://").partition("/")
        if not bucket:
            raise SourceError("a GCS location names no bucket", where=folder, expected="gs://bucket/prefix")
        self.bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = _client(self.folder)
        self._bucket = self._client.bucket(bucket)

    def iter_files(self) -> Iterator[StoredFile]:
        """See Store; zero-byte folder placeholders (names that end in /) are left out."""
        token: str | None = None
        while True:
            found, token = self._call("list", self.folder, partial(self._page, token))
            for blob in found:
                if not blob.name.endswith("/"):
                    yield self._stored(blob.name.removeprefix(self._prefix), blob)
            if not token:
                return

    def _page(self, token: str | None) -> tuple[list[Any], str | None]:
        pages = self._client.list_blobs(
            self.bucket, prefix=self._prefix or None, page_token=token, retry=None, timeout=TIMEOUT_SECONDS
        )
        return list(next(pages.pages, [])), pages.next_page_token

    def list_files(self) -> list[StoredFile]:
        """See Store."""
        return sorted(self.iter_files(), key=lambda file: natural_order(file.name))

    def stat(self, name: str) -> StoredFile | None:
        """See Store."""
        blob = self._find(name)
        return self._stored(name, blob) if blob else None

    def read_range(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        """See Store; raw bytes, whatever Content-Encoding says."""
        from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

        if first == last:
            return b""
        blob = self._bucket.blob(self._key(name), generation=int(identity.partition("-")[2]))

        def read() -> bytes:
            options = {"raw_download": True, "checksum": None, "retry": None, "timeout": TIMEOUT_SECONDS}
            try:
                data: bytes = blob.download_as_bytes(start=first, end=last - 1, **options)
            except (NotFound, RequestRangeNotSatisfiable) as error:
                there = self.stat(name)
                raise changed_since_planned(
                    self._location(name), identity, there.identity if there else None
                ) from error
            if len(data) != last - first:
                raise StoreUnavailableError(
                    "a body broke off", where=self._location(name), expected=last - first, got=len(data)
                )
            return data

        data = self._call("read", self._location(name), read)
        self.traffic.add(bytes_received=len(data))
        return data

    def open(self, name: str) -> BinaryIO:
        """See Store."""
        there = self.stat(name)
        if there is None:
            raise SourceError("there is no such object", where=self._location(name))
        return open_ranged(
            lambda first, last: self.read_range(name, first, last, identity=there.identity), 0, there.size_bytes
        )

    def checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """See Store: crc32c of every object, and our own sha256."""
        blob = self._find(name)
        require_identity(self._location(name), identity, self._stored(name, blob) if blob else None)
        return _checksums(blob)

    def digest(self, name: str) -> str | None:
        """The sha256 that the writer recorded with the object; None for objects that others wrote."""
        blob = self._find(name)
        return (blob.metadata or {}).get(DIGEST_KEY) if blob else None

    def holds(self, name: str, path: Path, sha256: str) -> bool:
        """See Store."""
        blob = self._find(name)
        if blob is None or blob.size != path.stat().st_size or (blob.metadata or {}).get(DIGEST_KEY) != sha256:
            return False
        return matches_file(path, _crc32c(blob))

    def receive(self, source: Path, name: str, sha256: str) -> None:
        """Upload; the store compares crc32c, and what it then says of the object is compared with the file."""
        with source.open("rb") as file:
            self._upload(name, file, source.stat().st_size, sha256)
        if not self.holds(name, source, sha256):
            self._raise_not_sent(name, sha256)

    def receive_bytes(self, content: bytes, name: str) -> None:
        """See Store."""
        sha256 = hashlib.sha256(content).hexdigest()
        self._upload(name, io.BytesIO(content), len(content), sha256)
        if self.digest(name) != sha256:
            self._raise_not_sent(name, sha256)

    def copy(self, name: str, new_name: str) -> None:
        """See Store; by the store itself."""
        blob, new = self._bucket.blob(self._key(name)), self._bucket.blob(self._key(new_name))

        def copy() -> None:
            token, _, _ = new.rewrite(blob, retry=None, timeout=TIMEOUT_SECONDS)
            while token:
                token, _, _ = new.rewrite(blob, token=token, retry=None, timeout=TIMEOUT_SECONDS)

        self._call("copy", self._location(new_name), copy)

    def delete(self, name: str) -> None:
        """See Store."""
        from google.api_core.exceptions import NotFound

        def delete() -> None:
            try:
                self._bucket.blob(self._key(name)).delete(retry=None, timeout=TIMEOUT_SECONDS)
            except NotFound:
                return

        self._call("delete", self._location(name), delete)

    def _upload(self, name: str, file: BinaryIO, size_bytes: int, sha256: str) -> None:
        def send() -> None:
            file.seek(0)
            blob = self._bucket.blob(self._key(name))
            blob.metadata = {DIGEST_KEY: sha256}
            blob.upload_from_file(file, size=size_bytes, checksum="crc32c", retry=None, timeout=TIMEOUT_SECONDS)

        self._call("write", self._location(name), send)
        self.traffic.add(bytes_sent=size_bytes)

    def _raise_not_sent(self, name: str, sha256: str) -> None:
        blob = self._find(name)
        raise VerificationError(
            "an uploaded object is not what was sent",
            where=self._location(name),
            expected=f"sha256 {sha256} and the crc32c of its bytes",
            got=", ".join(f"{one.kind} {one.value}" for one in _checksums(blob)) if blob else "no object",
            next_step="run again; if it stays, look who else writes to this prefix",
        )

    def _find(self, name: str) -> Any:
        return self._call(
            "look up",
            self._location(name),
            lambda: self._bucket.get_blob(self._key(name), retry=None, timeout=TIMEOUT_SECONDS),
        )

    def _call(self, verb: str, where: str, request: Callable[[], T]) -> T:
        def once() -> T:
            with _explained(verb, where):
                return request()

        return retried(once, where=where, traffic=self.traffic)

    def _key(self, name: str) -> str:
        return self._prefix + safe_relative_name(name, where=self.folder)

    def _location(self, name: str) -> str:
        return f"gs://{self.bucket}/{self._key(name)}"

    def _stored(self, name: str, blob: Any) -> StoredFile:
        return StoredFile(name, f"gs://{self.bucket}/{self._prefix}{name}", blob.size, f"{blob.size}-{blob.generation}")


def _checksums(blob: Any) -> tuple[Checksum, ...]:
    recorded = (blob.metadata or {}).get(DIGEST_KEY)
    return (*((Checksum("sha256", recorded),) if recorded else ()), *_crc32c(blob))


def _crc32c(blob: Any) -> tuple[Checksum, ...]:
    return (Checksum("crc32c", base64.b64decode(blob.crc32c).hex()),) if blob.crc32c else ()


def _client(where: str) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage  # type: ignore[attr-defined]

    with _explained("open", where):
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
            return storage.Client(credentials=anonymous, project="emulator")
        return storage.Client()


@contextmanager
def _explained(verb: str, where: str) -> Iterator[None]:
    """Turn SDK errors into ours."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import DefaultCredentialsError, TransportError
    from google.cloud.exceptions import GoogleCloudError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests.exceptions import RequestException

    what = f"cannot {verb} a GCS location"
    try:
        yield
    except CorpusmillError:
        raise
    except DefaultCredentialsError as error:
        raise PermanentError(
            f"no credentials to {verb} a GCS location",
            where=where,
            next_step="run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
        ) from error
    except DataCorruption as error:
        raise ChecksumMismatchError("a transfer arrived changed", where=where, got=error) from error
    except (GoogleAPICallError, GoogleCloudError, InvalidResponse) as error:
        answer = getattr(error, "response", None)
        status = int(getattr(error, "code", None) or getattr(answer, "status_code", None) or 0)
        if status in {408, 429} or status >= 500:
            raise StoreUnavailableError(what, where=where, got=error) from error
        next_step = {
            403: "these credentials may not do this: grant roles/storage.objectUser, or name others",
            404: "create the bucket, or mend its name in the configuration",
        }.get(status)
        raise PermanentError(what, where=where, got=f"{status}: {error}", next_step=next_step) from error
    except (RequestException, TransportError, ConnectionError, TimeoutError) as error:
        raise StoreUnavailableError(what, where=where, got=error) from error
