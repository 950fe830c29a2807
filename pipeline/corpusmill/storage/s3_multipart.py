"""Uploads in parts: parallel, each part checked, interrupted uploads completed or aborted.

The file is read once: every part is digested for the sha256 of the whole while earlier ones are sent, and for the
md5 that its ETag must be; at the end the ETag of the whole must be that of the parts. An upload that broke off (kill
-9, power) stays in the bucket, invisible and billed. The next upload of the same key searches for it: if its parts have
the right md5, they are kept and the rest is sent; any other upload is aborted. An error aborts, too. So two
simultaneous uploads of one file can abort each other: the one that lost its upload starts over, and finds the object or
the other's parts.

Memory: PARTS_IN_FLIGHT buffers of one part.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from corpusmill.errors import StoreUnavailableError
from corpusmill.storage.checksums import etag_value, multipart_etag
from corpusmill.storage.reading import changed_before_upload
from corpusmill.storage.retries import POLICY, ChecksumMismatchError
from corpusmill.storage.sdk_errors import DIGEST_KEY, UploadGoneError, is_absent, recorded_sha256

if TYPE_CHECKING:
    from corpusmill.storage.s3 import S3Store

PART_BYTES = 8 << 20
MOST_PARTS = 10_000  # S3's limit
THREADS = 4
PARTS_IN_FLIGHT = 6
UPLOADS_BEGUN = 6
LARGEST_COPY_BYTES = 5 << 30  # S3's limit for one request
COPY_PART_BYTES = 512 << 20

log = logging.getLogger(__name__)


def part_size(size_bytes: int) -> int:
    """Bytes of every part but the last: 8 MiB, or whole MiB more if there would be too many."""
    whole_mib = -(-size_bytes // (MOST_PARTS << 20))
    return max(PART_BYTES, whole_mib << 20)


def upload_in_parts(store: S3Store, source: Path, name: str, sha256: str) -> bool:
    """Send a local file as the parts of one upload; completes an interrupted upload of the same bytes.

    Returns whether the store's own checksum (the ETag) was compared with ours. UploadGoneError if others ended
    UPLOADS_BEGUN uploads.
    """
    for attempt in range(UPLOADS_BEGUN):
        try:
            return _upload_once(store, source, name, sha256)
        except UploadGoneError:
            if store.holds(name, source, sha256):
                return False
            if attempt + 1 == UPLOADS_BEGUN:
                raise
        store.traffic.add(retries=1)
        time.sleep(POLICY.pause_seconds(store.location(name), attempt))
    raise AssertionError("unreachable: the last attempt returns or raises")


def _upload_once(store: S3Store, source: Path, name: str, sha256: str) -> bool:
    size = source.stat().st_size
    part_bytes = part_size(size)
    where, key = store.location(name), store.key(name)
    names = {"Bucket": store.bucket, "Key": key}
    parts = range(1, -(-size // part_bytes) + 1)

    def content(number: int) -> bytes:
        with source.open("rb") as file:
            file.seek((number - 1) * part_bytes)
            return file.read(part_bytes)

    upload, there = _broken_off(store, names, content, parts)
    if upload is None:
        upload = _begun(store, names, "write", {DIGEST_KEY: sha256})
    named = {**names, "UploadId": upload}

    def send(number: int, data: bytearray) -> tuple[str, bytes]:
        """(ETag, md5) of a part."""
        md5 = hashlib.md5(data, usedforsecurity=False)
        if number in there:
            return there[number], md5.digest()

        def once() -> str:
            response = store.client.upload_part(
                **named, PartNumber=number, Body=data, **content_md5(store, data, md5.digest())
            )
            store.require_etag(response, md5.hexdigest(), where)
            return f'"{etag_value(response["ETag"])}"'

        etag = store.call("write", f"{where} part {number}", once)
        store.traffic.add(bytes_sent=len(data))
        return etag, md5.digest()

    try:
        sent, digest = _each_part(source, part_bytes, len(parts), send)
        _require_same(source, digest, sha256)
        listed = [{"PartNumber": number, "ETag": etag} for number, (etag, _) in zip(parts, sent, strict=True)]
        return _complete(store, named, listed, where, multipart_etag(md5 for _, md5 in sent), sha256)
    except BaseException:
        _abort(store, named)
        raise


def content_md5(store: S3Store, data: bytes | bytearray, md5: bytes | None = None) -> dict[str, str]:
    """The header that lets the store check the content. Without TLS the SDK signs its sha256, which has the same
    effect.
    """
    if not store.client.meta.endpoint_url.startswith("https"):
        return {}
    return {"ContentMD5": base64.b64encode(md5 or hashlib.md5(data, usedforsecurity=False).digest()).decode()}


def _each_part(source: Path, part_bytes: int, parts: int, send: Any) -> tuple[list[tuple[str, bytes]], str]:
    """(what `send(number, part)` returned, in order; the sha256 of all parts); each byte is read once."""
    digest = hashlib.sha256()
    sent: list[tuple[str, bytes]] = []
    waiting: deque[tuple[Future[tuple[str, bytes]], bytearray]] = deque()
    pool = ThreadPoolExecutor(THREADS)
    try:
        with source.open("rb", buffering=0) as file:
            for number in range(1, parts + 1):
                if len(waiting) < PARTS_IN_FLIGHT:
                    buffer = bytearray(part_bytes)
                else:
                    done, buffer = waiting.popleft()
                    sent.append(done.result())
                del buffer[file.readinto(buffer) :]  # only the last part is shorter
                waiting.append((pool.submit(send, number, buffer), buffer))
                digest.update(buffer)
        sent += [done.result() for done, _ in waiting]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return sent, digest.hexdigest()


def send_in_parts(store: S3Store, source: Path, name: str) -> None:
    """Send a local file under a name that no other process writes, and whose readers have digests of their own.

    So no digest is recorded here, and an interrupted upload is not resumed.
    """
    size = source.stat().st_size
    where, part_bytes = store.location(name), part_size(size)
    names = {"Bucket": store.bucket, "Key": store.key(name)}
    named = {**names, "UploadId": _begun(store, names, "write", {})}

    def send(number: int) -> dict[str, Any]:
        with source.open("rb", buffering=0) as file:
            file.seek((number - 1) * part_bytes)
            data = file.read(part_bytes)

        def once() -> str:
            headers = content_md5(store, data)
            return str(store.client.upload_part(**named, PartNumber=number, Body=data, **headers)["ETag"])

        etag = store.call("write", f"{where} part {number}", once)
        store.traffic.add(bytes_sent=len(data))
        return {"PartNumber": number, "ETag": f'"{etag_value(etag)}"'}

    _send_each(store, named, send, -(-size // part_bytes), None)


def copy_in_parts(store: S3Store, name: str, new_name: str, size_bytes: int) -> None:
    """Copy an object inside its bucket by ranges, up to S3's limit of 5 TiB; its recorded sha256 is copied, too."""
    where, sha256 = store.location(new_name), store.digest(name)
    names = {"Bucket": store.bucket, "Key": store.key(new_name)}
    metadata = {DIGEST_KEY: sha256} if sha256 else {}
    named = {**names, "UploadId": _begun(store, names, "copy", metadata)}
    source = {"Bucket": store.bucket, "Key": store.key(name)}

    def send(number: int) -> dict[str, Any]:
        first = (number - 1) * COPY_PART_BYTES
        span = f"bytes={first}-{min(first + COPY_PART_BYTES, size_bytes) - 1}"

        def once() -> str:
            done = store.client.upload_part_copy(**named, PartNumber=number, CopySource=source, CopySourceRange=span)
            return str(done["CopyPartResult"]["ETag"])

        return {"PartNumber": number, "ETag": store.call("copy", f"{where} part {number}", once)}

    _send_each(store, named, send, -(-size_bytes // COPY_PART_BYTES), sha256)


def _send_each(store: S3Store, named: dict[str, str], send: Any, parts: int, sha256: str | None) -> None:
    """Complete an upload with the results of `send(number)` for each part."""
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            sent = list(pool.map(send, range(1, parts + 1)))
        etag = multipart_etag(bytes.fromhex(etag_value(future["ETag"])) for future in sent)
        _complete(store, named, sent, f"s3://{named['Bucket']}/{named['Key']}", etag, sha256)
    except BaseException:
        _abort(store, named)
        raise


def _begun(store: S3Store, names: dict[str, str], verb: str, metadata: dict[str, str]) -> str:
    """The id of a new upload."""

    def begin() -> str:
        return str(store.client.create_multipart_upload(**names, Metadata=metadata)["UploadId"])

    return store.call(verb, f"s3://{names['Bucket']}/{names['Key']}", begin)


def _require_same(source: Path, got: str, sha256: str) -> None:
    """VerificationError, before the object becomes visible, if the file is not that of the receipt."""
    if got != sha256:
        raise changed_before_upload(source, sha256)


def _complete(
    store: S3Store, named: dict[str, Any], sent: list[dict[str, Any]], where: str, etag: str, sha256: str | None
) -> bool:
    """Complete an upload; returns whether the ETag is that of the parts (some servers return another kind)."""

    def complete() -> bool:
        try:
            done = store.client.complete_multipart_upload(**named, MultipartUpload={"Parts": sent})
        except store.client.exceptions.ClientError as error:
            # The answer may have been lost: then the upload is complete, and only the object shows it.
            if error.response["Error"]["Code"] != "NoSuchUpload" or not _is_there(store, named, etag, sha256):
                raise
            return False
        got = etag_value(done["ETag"])
        if "-" in got and got != etag and "ServerSideEncryption" not in done:
            raise ChecksumMismatchError(
                "store.upload_changed: an upload arrived changed", where=where, expected=etag, got=got
            )
        return got == etag

    return store.call("write", where, complete)


def _is_there(store: S3Store, named: dict[str, Any], etag: str, sha256: str | None) -> bool:
    """Whether the object is that of this upload. Another upload of the same file may have aborted it, or may not have
    set
    the object's metadata yet (rclone's server does so after the object becomes visible).
    """
    try:
        head = store.client.head_object(Bucket=named["Bucket"], Key=named["Key"])
    except store.client.exceptions.ClientError as error:
        if is_absent(error):
            return False
        raise
    got = etag_value(head["ETag"])
    return (got == etag or "-" not in got) and recorded_sha256(head) == sha256


class Unfinished(NamedTuple):
    """An upload in parts that is neither completed nor aborted. `begun_at`: seconds since 1970 by the store's clock."""

    key: str
    upload: str
    begun_at: float


def unfinished(store: S3Store, prefix: str) -> list[Unfinished]:
    """Every unfinished upload of keys that begin with `prefix`."""

    def page(behind: dict[str, str] | None) -> tuple[list[Unfinished], dict[str, str] | None]:
        try:
            answer = store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=prefix, **(behind or {}))
        except store.client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchUpload":  # rclone's answer if there are none
                return [], None
            raise
        rows = [
            Unfinished(row["Key"], row["UploadId"], row["Initiated"].timestamp()) for row in answer.get("Uploads") or []
        ]
        more = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        return rows, {key: answer[marker] for key, marker in more.items()} if answer.get("IsTruncated") else None

    rows = store.rows("list uploads of", f"s3://{store.bucket}/{prefix}", page)
    return [row for row in rows if row.key.startswith(prefix)]


def abort_unfinished(store: S3Store, prefix: str, *, keep: str) -> int:
    """Abort every unfinished upload of keys that begin with `prefix` and not with `keep`; returns how many."""
    uploads = [upload for upload in unfinished(store, prefix) if not upload.key.startswith(keep)]
    for upload in uploads:
        abort(store, upload)
    return len(uploads)


def abort(store: S3Store, upload: Unfinished) -> None:
    """Abort an unfinished upload."""
    _abort(store, {"Bucket": store.bucket, "Key": upload.key, "UploadId": upload.upload})


def _broken_off(store: S3Store, names: dict[str, str], content: Any, parts: range) -> tuple[str | None, dict[int, str]]:
    """(upload to resume or None, ETags of its good parts by number); all other uploads of this key are aborted."""
    chosen: tuple[str | None, dict[int, str]] = (None, {})
    for key, upload, _ in unfinished(store, names["Key"]):
        if key != names["Key"]:
            continue
        named = {**names, "UploadId": upload}
        good = _good_parts(store, named, content, parts) if chosen[0] is None else {}
        if good:
            chosen = (upload, good)
        else:
            _abort(store, named)
    return chosen


def _good_parts(store: S3Store, named: dict[str, Any], content: Any, parts: range) -> dict[int, str]:
    """ETags of an upload's parts by number if each is the md5 of ours; empty if one differs, or is beyond our parts."""
    where = f"s3://{named['Bucket']}/{named['Key']}"
    good: dict[int, str] = {}

    def page(behind: int | None) -> tuple[list[tuple[int, str]], int | None]:
        answer = store.client.list_parts(**named, **({"PartNumberMarker": behind} if behind else {}))
        rows = [(row["PartNumber"], row["ETag"]) for row in answer.get("Parts") or []]
        return rows, answer["NextPartNumberMarker"] if answer.get("IsTruncated") else None

    for number, etag in store.rows("list parts of", where, page):
        if number not in parts:
            return {}
        if hashlib.md5(content(number), usedforsecurity=False).hexdigest() != etag_value(etag):
            return {}
        good[number] = etag
    return good


def _abort(store: S3Store, named: dict[str, Any]) -> None:
    """Abort an upload, unless it is gone. One that cannot be aborted now is found by the next upload."""
    where = f"s3://{named['Bucket']}/{named['Key']}"
    try:
        store.call("abort an upload of", where, lambda: store.client.abort_multipart_upload(**named))
    except UploadGoneError:
        pass
    except StoreUnavailableError as error:
        log.warning("an unfinished upload of %s remains until the next one: %s", where, error)
