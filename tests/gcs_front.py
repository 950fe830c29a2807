"""What stands before the emulator of GCS in tests: the three things that the store does and the emulator does not.

* an object that is asked for at another generation than its newest is not there (of a bucket without versions);
* an answer with an object's bytes says of which generation they are;
* uploads in parts (the XML API: initiate, put parts, complete, abort, list), each part compared with its x-goog-hash.

It is a FaultyProxy, too, so that it can do harm on top.
"""

from __future__ import annotations

import base64
import hashlib
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import google_crc32c
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.faults.proxy import FaultyProxy

BEGUN = "<Initiated>2026-01-01T00:00:00.000Z</Initiated>"


class GcsFront(FaultyProxy):
    """`uploads` holds what was begun and neither completed nor aborted: {id: (address, headers, {number: part})}."""

    def __init__(self, target: str, **faults: Any) -> None:
        super().__init__(target, **faults)
        self.uploads: dict[str, tuple[str, dict[str, str], dict[int, bytes]]] = {}
        self.parts = 0
        self.generations: list[str] = []
        self._emulator = storage.Client(
            credentials=AnonymousCredentials(), project="tests", client_options={"api_endpoint": target}
        )

    def empty(self, name: str) -> None:
        """Make a bucket, or take away all that is in it and in this object."""
        bucket = self._emulator.lookup_bucket(name) or self._emulator.create_bucket(name)
        for blob in list(bucket.list_blobs()):
            blob.delete()
        self.uploads.clear()
        self.generations.clear()
        self.parts = 0

    def _passed_on(self, client: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        address = urlsplit(client.path)
        query = parse_qs(address.query, keep_blank_values=True)
        if "uploads" in query or "uploadId" in query:
            return self._upload(client, address.path, query, body)
        if query.get("alt") == ["media"] and "generation" in query:
            self.generations.append(query["generation"][0])
            if query["generation"] != [self._newest(address.path)]:
                return 404, [], b"{}"
            status, headers, content = super()._passed_on(client, body)
            return status, [*headers, ("x-goog-generation", query["generation"][0])], content
        return super()._passed_on(client, body)

    def _newest(self, path: str) -> str | None:
        bucket, _, key = path.rpartition("/b/")[2].partition("/o/")
        blob = self._emulator.bucket(bucket).get_blob(unquote(key))
        return str(blob.generation) if blob else None

    def _upload(
        self, client: BaseHTTPRequestHandler, path: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        if "uploads" in query and client.command == "GET":
            return 200, [], self._listed(path.strip("/"), query["prefix"][0])
        if "uploads" in query:
            name = hashlib.sha256(f"{path} {self._requests}".encode()).hexdigest()
            metadata = {key.lower(): value for key, value in client.headers.items()}
            self.uploads[name] = (path, metadata, {})
            printed = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return (
                200,
                [],
                printed.replace("Result>", "Result xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>", 1).encode(),
            )
        name = query["uploadId"][0]
        if name not in self.uploads:
            return 404, [], b"<Error><Code>NoSuchUpload</Code></Error>"
        if client.command == "PUT":
            crc32c = base64.b64encode(google_crc32c.Checksum(body).digest()).decode()
            if client.headers.get("x-goog-hash") != f"crc32c={crc32c}":
                return 400, [], b"<Error><Code>BadDigest</Code><Message>unequal</Message><Details>MD5</Details></Error>"
            self.uploads[name][2][int(query["partNumber"][0])] = body
            self.parts += 1
            etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
            return 200, [("ETag", f'"{etag}"'), ("x-goog-hash", f"crc32c={crc32c}")], b""
        _, metadata, parts = self.uploads.pop(name)
        if client.command == "POST":
            self._store(path, metadata, b"".join(parts[number] for number in sorted(parts)))
        return (204 if client.command == "DELETE" else 200), [], b""

    def _listed(self, bucket: str, prefix: str) -> bytes:
        keys = [(unquote(path).removeprefix(f"/{bucket}/"), name) for name, (path, _, _) in self.uploads.items()]
        actual = "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{name}</UploadId>{BEGUN}</Upload>"
            for key, name in sorted(keys)
            if key.startswith(prefix)
        )
        namespace = "xmlns='http://s3.amazonaws.com/doc/2006-03-01/'"
        return f"<ListMultipartUploadsResult {namespace}>{actual}</ListMultipartUploadsResult>".encode()

    def _store(self, path: str, metadata: dict[str, str], content: bytes) -> None:
        bucket, _, key = path.lstrip("/").partition("/")
        blob = self._emulator.bucket(bucket).blob(unquote(key))
        own = [name for name in metadata if name.startswith("x-goog-meta-")]
        blob.metadata = {name.removeprefix("x-goog-meta-"): metadata[name] for name in own}
        blob.upload_from_string(content)
