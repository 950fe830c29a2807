"""Translates errors of boto3: transient, permanent, or a checksum that does not match."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corpusmill.errors import CorpusmillError, PermanentError, StoreUnavailableError, TransientError
from corpusmill.storage.locations import MALFORMED, malformed_answer
from corpusmill.storage.retries import ChecksumMismatchError, busy

DIGEST_KEY = "sha256"  # user metadata of every object we write: hex sha256 of the whole content
ABSENT = {"404", "NoSuchKey", "NotFound"}
BUSY = {
    "RequestTimeout",
    "RequestTimeTooSkewed",  # a clock that is being set, or a delayed request
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "Throttling",
    "IncompleteBody",
}
NOT_THERE = 501  # the server does not implement the request
MISMATCHES = {"BadDigest", "XAmzContentSHA256Mismatch", "InvalidDigest"}
NEXT_STEPS = {
    "NoSuchBucket": "create the bucket, or fix its name in the configuration",
    "AccessDenied": "these credentials lack the permission: allow s3:ListBucket and s3:GetObject, and to write "
    "s3:PutObject and s3:DeleteObject",
    "403": "these credentials lack the permission, or are wrong: check AWS_PROFILE or AWS_ACCESS_KEY_ID",
    "401": "the store rejects these credentials: check AWS_PROFILE or AWS_ACCESS_KEY_ID, and endpoint_url",
    "404": "there is no such bucket at this address: check its name and endpoint_url",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key: check AWS_SECRET_ACCESS_KEY",
    "InvalidAccessKeyId": "the store does not know this access key: check AWS_ACCESS_KEY_ID and endpoint_url",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "ExpiredToken": "get new temporary credentials, then run again",
}


class UploadGoneError(TransientError):
    """An upload in parts was completed or aborted elsewhere: the whole upload must restart, not the request."""


def is_absent(error: Any) -> bool:
    """Whether a ClientError states that the object, not the bucket, does not exist."""
    return error.response["Error"]["Code"] in ABSENT


def recorded_sha256(head: Any) -> str | None:
    """The digest that the writer of an object recorded; S3 lowers keys of metadata, some servers capitalise them."""
    recorded: str | None = {key.lower(): value for key, value in head["Metadata"].items()}.get(DIGEST_KEY)
    return recorded


@contextmanager
def explained(verb: str, where: str) -> Iterator[None]:
    """Turn SDK errors into ours: transient, a checksum that does not match, or permanent with a next step."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        CredentialRetrievalError,
        HTTPClientError,
        IncompleteReadError,
        NoCredentialsError,
        PartialCredentialsError,
        ResponseStreamingError,
    )
    from botocore.exceptions import ConnectionError as NoConnectionError
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except CorpusmillError:
        raise
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise PermanentError(
            f"s3.no_credentials: no credentials to {verb} an S3 location",
            where=where,
            next_step="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run with a role",
        ) from error
    except ClientError as error:
        raise _of_answer(verb, where, error) from error
    except (
        HTTPClientError,
        NoConnectionError,
        IncompleteReadError,
        ResponseStreamingError,
        ResponseParserError,
        CredentialRetrievalError,
        HTTPError,
        ConnectionError,
        TimeoutError,
    ) as error:
        raise StoreUnavailableError(f"s3.unavailable: cannot {verb} an S3 location", where=where, got=error) from error
    except BotoCoreError as error:
        raise PermanentError(f"s3.refused: cannot {verb} an S3 location", where=where, got=error) from error
    except MALFORMED as error:
        raise malformed_answer(where, error) from error


def _of_answer(verb: str, where: str, error: Any) -> CorpusmillError:
    code = error.response["Error"]["Code"]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    got = f"{code}: {error}"
    if code in MISMATCHES:
        return ChecksumMismatchError("store.upload_changed: an upload arrived changed", where=where, got=got)
    if code == "NoSuchUpload":
        return UploadGoneError(
            "s3.upload_gone: a multipart upload is gone: another upload of the same file ended it", where=where
        )
    next_step = NEXT_STEPS.get(code)
    if code in BUSY or status in {408, 429} or (status >= 500 and status != NOT_THERE):
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders")
        return busy(
            f"s3.unavailable: cannot {verb} an S3 location", headers=headers, where=where, got=got, next_step=next_step
        )
    return PermanentError(f"s3.refused: cannot {verb} an S3 location", where=where, got=got, next_step=next_step)
