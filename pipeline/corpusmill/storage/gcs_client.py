"""The client of Google Cloud Storage: its credentials, uploads, and the remains of interrupted uploads.

Credentials come from the SDK's own chain, unless CORPUSMILL_GOOGLE_KEY holds the JSON of a service account's key:
schedulers with a secret store pass it this way, without a file. STORAGE_EMULATOR_HOST, which the SDK reads, means an
emulator without credentials.

The SDK's transfer_manager sends parts, under our retry policy, and neither lists nor completes interrupted uploads
(kill -9, power), which are invisible, billed, and kept until aborted. The next upload in parts of the same key aborts
them by the XML API (https://cloud.google.com/storage/docs/xml-api/get-bucket-uploads, delete-multipart), and sends the
whole file; the next upload of another version of the dataset aborts those of all its keys.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from corpusmill.errors import PermanentError
from corpusmill.storage.s3_multipart import THREADS, Unfinished, part_size
from corpusmill.storage.sdk_errors import gcs_explained

if TYPE_CHECKING:
    from corpusmill.storage.gcs import GcsStore


KEY = "CORPUSMILL_GOOGLE_KEY"
TIMEOUT_SECONDS = (3, 60)  # for connecting, and for an answer; as s3.py


def open_client(where: str, *, anonymous: bool = False) -> Any:
    """A client for the location `where`. PermanentError if there are no credentials, or malformed ones."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    with gcs_explained("open", where):
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
            return storage.Client(credentials=nobody, project="emulator")
        if anonymous:
            return storage.Client.create_anonymous_client()
        key = os.environ.get(KEY)
        return _with_key(key) if key else storage.Client()


def _with_key(key: str) -> Any:
    from google.cloud import storage

    try:
        return storage.Client.from_service_account_info(json.loads(key))
    except (ValueError, LookupError, TypeError, AttributeError):  # whose messages would quote the key
        raise PermanentError(
            "gcs.not_a_key: this is not the key of a service account",
            where=KEY,
            expected="the JSON that Google issues, with client_email and private_key",
            next_step="fix the variable, or the connection that it comes from",
        ) from None


T = TypeVar("T")


def put(blob: Any, content: bytes) -> None:
    """Write a small object in one request, which carries its crc32c; `blob` then has the store's metadata of it."""
    blob.upload_from_file(
        io.BytesIO(content), size=len(content), checksum="crc32c", retry=None, timeout=TIMEOUT_SECONDS
    )


def send_in_parts(store: GcsStore, source: Path, blob: Any) -> None:
    """Write a large object from a file, in parts that carry their crc32c."""
    from google.cloud.storage import transfer_manager

    where = f"gs://{store.bucket}/{blob.name}"

    def by_our_policy(request: Callable[[], T]) -> Callable[[], T]:
        return lambda: store.call("write", where, request)

    size_bytes = source.stat().st_size
    with gcs_explained("write", where):
        transfer_manager.upload_chunks_concurrently(
            str(source),
            blob,
            chunk_size=part_size(size_bytes),
            worker_type=transfer_manager.THREAD,
            max_workers=THREADS,
            checksum="crc32c",
            timeout=TIMEOUT_SECONDS,
            retry=by_our_policy,
        )
    store.traffic.add(bytes_sent=size_bytes)


def unfinished(store: GcsStore, prefix: str) -> list[Unfinished]:
    """Every unfinished upload in parts of keys that begin with `prefix`."""

    def page(behind: dict[str, str] | None) -> tuple[list[Unfinished], dict[str, str] | None]:
        query = urlencode({"prefix": prefix, **(behind or {})}, quote_via=quote, safe="")
        answer = ElementTree.fromstring(_request(store, "GET", f"?uploads&{query}").content)  # noqa: S314 - the store is trusted with the data
        rows = [_unfinished(upload) for upload in answer.iterfind("{*}Upload")]
        if (answer.findtext("{*}IsTruncated") or "false") == "false":
            return rows, None
        more = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}
        return rows, {key: _text(answer, marker) for key, marker in more.items()}

    rows = store.rows("list uploads of", f"gs://{store.bucket}/{prefix}", page)
    return [upload for upload in rows if upload.key.startswith(prefix)]


def abort_unfinished(store: GcsStore, prefix: str, is_left: Callable[[str], bool]) -> int:
    """Abort every unfinished upload of keys that begin with `prefix` and are `is_left`; returns how many."""
    uploads = [upload for upload in unfinished(store, prefix) if is_left(upload.key)]
    for upload in uploads:
        abort(store, upload)
    return len(uploads)


def abort(store: GcsStore, upload: Unfinished) -> None:
    """Abort an unfinished upload; does nothing if it is already gone, such as after a lost answer."""
    path = f"/{quote(upload.key, safe='~')}?uploadId={quote(upload.upload, safe='')}"
    store.call("abort an upload of", f"gs://{store.bucket}/{upload.key}", partial(_request, store, "DELETE", path))


def _request(store: GcsStore, method: str, path: str) -> Any:
    from google.api_core import exceptions

    address = f"{store.client.api_endpoint}/{quote(store.bucket)}{path}"
    answer = store.client._http.request(method, address, timeout=TIMEOUT_SECONDS)
    if not answer.ok and not (answer.status_code == 404 and method == "DELETE"):
        raise exceptions.from_http_response(answer)  # type: ignore[no-untyped-call]
    return answer


def _unfinished(upload: ElementTree.Element) -> Unfinished:
    begun_at = datetime.fromisoformat(_text(upload, "Initiated")).timestamp()
    return Unfinished(_text(upload, "Key"), _text(upload, "UploadId"), begun_at)


def _text(element: ElementTree.Element, tag: str) -> str:
    """The text of a child element; LookupError without it, as for any malformed answer."""
    text = element.findtext(f"{{*}}{tag}")
    if not text:
        raise LookupError(tag)
    return text
