"""Objects below a prefix of a Google Cloud Storage bucket (google-cloud-storage).

A planned object is read at its generation, so another one is never read. A file is digested before it is sent, in
parts that carry crc32c, by the SDK's transfer_manager under our retry policy; then the store's checksum of the whole is
compared. Downloads use transfers.py: those of transfer_manager are slower (benchmarks/gcs_transfers.py), do not digest
in order, do not resume, and ignore our retry policy.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import google_crc32c

from corpusmill.errors import PermanentError, SourceError, VerificationError
from corpusmill.storage.checksums import Checksum, Verifier
from corpusmill.storage.gcs_client import TIMEOUT_SECONDS, abort_unfinished, open_client, put, send_in_parts
from corpusmill.storage.locations import (
    StoredFile,
    asked_as,
    changed_since_planned,
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
from corpusmill.storage.retries import Traffic
from corpusmill.storage.s3_multipart import PART_BYTES
from corpusmill.storage.sdk_errors import gcs_explained

DIGEST_KEY = "sha256"


class GcsStore(RemoteStore):
    """``gs://bucket/prefix``; names are keys below ``prefix/``."""

    explained = staticmethod(gcs_explained)

    def __init__(self, folder: str, *, endpoint_url: str | None = None, traffic: Traffic | None = None) -> None:
        asked = asked_as(endpoint_url)
        super().__init__(folder, traffic, anonymous=asked.anonymous)
        bucket, _, prefix = self.folder.removeprefix("gs://").partition("/")
        if not bucket:
            raise SourceError("gcs.no_bucket: no bucket in a GCS location", where=folder, expected="gs://bucket/prefix")
        self.bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self.client = open_client(self.folder, anonymous=asked.anonymous)
        self._payer = self.client.project if asked.requester_pays else None

    def _page(self, token: str | None) -> tuple[list[StoredFile], str | None]:
        page = self.page({"prefix": self._prefix, **({"pageToken": token} if token else {})})
        rows = page.get("items", [])
        files = [
            self._stored(row["name"].removeprefix(self._prefix), int(row["size"]), row["generation"])
            for row in rows
            if not row["name"].endswith("/")
        ]
        return files, page.get("nextPageToken") or None

    def page(self, asked: dict[str, str]) -> Any:
        """A page of the bucket's listing, as the store sends it. KeyError or ValueError if it is malformed."""
        answer = self.get(f"storage/v1/b/{quote(self.bucket, safe='')}/o", asked)
        with arriving(answer.raw.shutdown, where=self.folder):
            page = answer.json()
        rows = page.get("items", [])
        if page["kind"] != "storage#objects" or not all(row["name"].startswith(asked["prefix"]) for row in rows):
            raise ValueError("a page of another listing")
        return page

    def media(self, name: str, first: int, last: int, query: dict[str, str]) -> Any:
        """An answer with the raw bytes [first, last) of an object, whatever Content-Encoding says, its body unread."""
        path = f"download/storage/v1/b/{quote(self.bucket, safe='')}/o/{quote(self._key(name), safe='')}"
        headers = {"Range": f"bytes={first}-{last - 1}", "Accept-Encoding": "gzip"}  # else the store unpacks gzip
        return self.get(path, {"alt": "media", **query}, headers)

    def get(self, path: str, query: dict[str, str], headers: dict[str, str] | None = None) -> Any:
        """A response of the JSON API, its body unread: the SDK drops a page's kind and the range that was sent."""
        from google.api_core.exceptions import from_http_response

        payer = {"userProject": self._payer} if self._payer else {}
        address = f"{self.client.api_endpoint}/{path}?{urlencode(query | payer)}"
        answer = self.client._http.request("GET", address, headers=headers, stream=True, timeout=TIMEOUT_SECONDS)
        if not answer.ok:
            raise from_http_response(answer)  # type: ignore[no-untyped-call]
        return answer

    def stat(self, name: str) -> StoredFile | None:
        """See Store."""
        return self._there(name, self._find(name))

    def read_range(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        """See Store; raw bytes, whatever Content-Encoding says."""
        from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

        if first == last:
            return b""
        generation = identity.partition("-")[2]

        def read() -> bytes:
            try:
                answer = self.media(name, first, last, {"generation": generation})
            except (NotFound, RequestRangeNotSatisfiable) as error:
                there = self.stat(name)
                raise changed_since_planned(
                    self._location(name), identity, there.identity if there else None
                ) from error
            if (named := answer.headers.get("x-goog-generation", generation)) != generation:
                raise changed_since_planned(self._location(name), identity, f"generation {named}")
            size, stated = size_of(identity), answer.headers.get("Content-Range")
            with arriving(answer.raw.shutdown, where=self._location(name), size_bytes=last - first):
                data: bytes = answer.raw.read(decode_content=False)
            return range_body(data, stated, first, last, size_bytes=size, where=self._location(name))

        data = self.call("read", self._location(name), read)
        self.traffic.add(bytes_received=len(data))
        return data

    def checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """See Store: crc32c of every object, and our own sha256."""
        return _checksums(self._require(name, identity))

    def own_checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """See Store: crc32c."""
        return _crc32c(self._require(name, identity))

    def _require(self, name: str, identity: str) -> Any:
        blob = self._find(name)
        require_identity(self._location(name), identity, self._there(name, blob))
        return blob

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
        """Upload (in parts when large); the store checks crc32c, and then we compare its checksums with ours."""
        digests = Verifier((Checksum("sha256", sha256), Checksum("crc32c", "")), source.stat().st_size)
        digests.read(source)
        computed = digests.values()
        if computed["sha256"] != sha256:
            raise changed_before_upload(source, sha256)
        if source.stat().st_size <= PART_BYTES:
            self._upload(name, source.read_bytes(), sha256)
        else:
            key = self._key(name)
            try:
                abort_unfinished(self, key, lambda other: other == key)  # of killed uploads; an error aborts its own
                send_in_parts(self, source, self._new_blob(name, sha256))
            except PermanentError:
                # The answer may have been lost: then the upload is complete and gone, and only the object shows it.
                if self._refused(name, sha256, computed["crc32c"]):
                    raise
                return
        self._require_arrived(name, sha256, computed["crc32c"])

    def receive_bytes(self, content: bytes, name: str) -> None:
        """See Store."""
        sha256 = hashlib.sha256(content).hexdigest()
        self._upload(name, content, sha256)
        self._require_arrived(name, sha256, f"{google_crc32c.value(content):08x}")

    def copy(self, name: str, new_name: str) -> None:
        """See Store; by the store itself."""
        blob, new = self.blob(name), self.blob(new_name)

        def copy() -> None:
            token, _, _ = new.rewrite(blob, retry=None, timeout=TIMEOUT_SECONDS)
            while token:
                token, _, _ = new.rewrite(blob, token=token, retry=None, timeout=TIMEOUT_SECONDS)

        self.call("copy", self._location(new_name), copy)

    def delete(self, name: str) -> None:
        """See Store."""
        from google.api_core.exceptions import NotFound

        def delete() -> None:
            try:
                self.blob(name).delete(retry=None, timeout=TIMEOUT_SECONDS)
            except NotFound:
                return

        self.call("delete", self._location(name), delete)

    def remove_unfinished(self, *, keep: str) -> int:
        """See Store."""
        kept = self._prefix + keep
        return abort_unfinished(self, self._prefix, lambda key: not key.startswith(kept))

    def blob(self, name: str) -> Any:
        """The SDK's handle of an object, which it has not looked up."""
        return self.client.bucket(self.bucket, user_project=self._payer).blob(self._key(name))

    def _new_blob(self, name: str, sha256: str) -> Any:
        blob = self.blob(name)
        blob.metadata = {DIGEST_KEY: sha256}
        return blob

    def _upload(self, name: str, content: bytes, sha256: str) -> None:
        self.call("write", self._location(name), lambda: put(self._new_blob(name, sha256), content))
        self.traffic.add(bytes_sent=len(content))

    def _require_arrived(self, name: str, sha256: str, crc32c: str) -> None:
        if refused := self._refused(name, sha256, crc32c):
            raise refused

    def _refused(self, name: str, sha256: str, crc32c: str) -> VerificationError | None:
        """The error for an object that was sent; None if it exists with both checksums."""
        blob = self._find(name)
        expected = (Checksum("sha256", sha256), Checksum("crc32c", crc32c))
        if blob is not None and _checksums(blob) == expected:
            return None
        return VerificationError(
            "store.object_differs: an uploaded object differs from what was sent",
            where=self._location(name),
            expected=", ".join(f"{checksum.kind} {checksum.value}" for checksum in expected),
            got=", ".join(f"{checksum.kind} {checksum.value}" for checksum in _checksums(blob))
            if blob
            else "no object",
            next_step="run again; if it persists, check who else writes to this prefix",
        )

    def _find(self, name: str) -> Any:
        def look_up() -> Any:
            blob = self.client.bucket(self.bucket, user_project=self._payer).get_blob(
                self._key(name), retry=None, timeout=TIMEOUT_SECONDS
            )
            if blob is not None and (blob.size is None or not blob.generation):
                raise ValueError("no description of an object")
            _ = _checksums(blob) if blob is not None else ()  # a malformed one is this request's error
            return blob

        return self.call("look up", self._location(name), look_up)

    def _key(self, name: str) -> str:
        return self._prefix + safe_relative_name(name, where=self.folder)

    def _location(self, name: str) -> str:
        return f"gs://{self.bucket}/{self._key(name)}"

    def _there(self, name: str, blob: Any) -> StoredFile | None:
        return self._stored(name, blob.size, blob.generation) if blob else None

    def _stored(self, name: str, size_bytes: int, generation: int | str) -> StoredFile:
        return StoredFile(name, f"gs://{self.bucket}/{self._prefix}{name}", size_bytes, f"{size_bytes}-{generation}")


def _checksums(blob: Any) -> tuple[Checksum, ...]:
    recorded = (blob.metadata or {}).get(DIGEST_KEY)
    return (*((Checksum("sha256", recorded),) if recorded else ()), *_crc32c(blob))


def _crc32c(blob: Any) -> tuple[Checksum, ...]:
    return (Checksum("crc32c", base64.b64decode(blob.crc32c).hex()),) if blob.crc32c else ()
