"""Translates errors of the stores' SDKs: transient, permanent with a next step, or a checksum that does not match."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corpusmill.errors import ConfigError, CorpusmillError, PermanentError, StoreUnavailableError, TransientError
from corpusmill.storage.locations import MALFORMED, malformed_answer, without_queries
from corpusmill.storage.retries import ChecksumMismatchError, busy

DIGEST_KEY = "sha256"  # user metadata of every object we write: hex sha256 of the whole content
ABSENT = {"404", "NoSuchKey", "NotFound"}
S3_BUSY = {
    "RequestTimeout",
    "RequestTimeTooSkewed",  # a clock that is being set, or a delayed request
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "Throttling",
    "IncompleteBody",
}
_NOT_PUBLIC = "it is not public: leave out anonymous, and set credentials that may read it"
_PUBLIC = "a public bucket needs none: --anonymous, or anonymous: true beside its endpoint_url"
FORBIDDEN = {401, 403}
NOT_THERE = 501  # the server does not implement the request
MISMATCHES = {"BadDigest", "XAmzContentSHA256Mismatch", "InvalidDigest"}
S3_NEXT_STEPS = {
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
def s3_explained(verb: str, where: str, *, anonymous: bool = False) -> Iterator[None]:
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
            next_step="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run with a role; " + _PUBLIC,
        ) from error
    except ClientError as error:
        raise _of_answer(verb, where, error, anonymous=anonymous) from error
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


def _of_answer(verb: str, where: str, error: Any, *, anonymous: bool) -> CorpusmillError:
    code = error.response["Error"]["Code"]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    got = f"{code}: {error}"
    if code in MISMATCHES:
        return ChecksumMismatchError("store.upload_changed: an upload arrived changed", where=where, got=got)
    if code == "NoSuchUpload":
        return UploadGoneError(
            "s3.upload_gone: a multipart upload is gone: another upload of the same file ended it", where=where
        )
    next_step = _NOT_PUBLIC if anonymous and status in FORBIDDEN else S3_NEXT_STEPS.get(code)
    if code in S3_BUSY or status in {408, 429} or (status >= 500 and status != NOT_THERE):
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders")
        return busy(
            f"s3.unavailable: cannot {verb} an S3 location", headers=headers, where=where, got=got, next_step=next_step
        )
    return PermanentError(f"s3.refused: cannot {verb} an S3 location", where=where, got=got, next_step=next_step)


@contextmanager
def gcs_explained(verb: str, where: str, *, anonymous: bool = False) -> Iterator[None]:
    """Turn SDK errors into ours: transient, a checksum that does not match, or permanent with a next step."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import DefaultCredentialsError, TransportError
    from google.cloud.exceptions import GoogleCloudError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except CorpusmillError:
        raise
    except DefaultCredentialsError as error:
        raise PermanentError(
            f"gcs.no_credentials: no credentials to {verb} a GCS location",
            where=where,
            next_step=_NOT_PUBLIC
            if anonymous
            else "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS; " + _PUBLIC,
        ) from error
    except DataCorruption as error:
        raise ChecksumMismatchError(
            "store.transfer_changed: a transfer arrived changed", where=where, got=error
        ) from error
    except (GoogleAPICallError, GoogleCloudError, InvalidResponse) as error:
        words = without_queries(error)  # nor is it chained: a log would print its queries, which hold ids of uploads
        answer = getattr(error, "response", None)
        status = int(getattr(error, "code", None) or getattr(answer, "status_code", None) or 0)
        if "BadDigest" in str(getattr(answer, "text", "")):
            raise ChecksumMismatchError(
                "store.upload_changed: an upload arrived changed", where=where, got=words
            ) from None
        if status in {408, 429} or status >= 500:
            raise busy(
                f"gcs.unavailable: cannot {verb} a GCS location",
                headers=getattr(answer, "headers", None),
                where=where,
                got=words,
            ) from None
        next_step = {
            403: "these credentials lack the permission: grant roles/storage.objectUser, or use others",
            404: "create the bucket, or fix its name in the configuration",
        }.get(status)
        if anonymous and status in FORBIDDEN:
            next_step = _NOT_PUBLIC
        raise PermanentError(
            f"gcs.refused: cannot {verb} a GCS location", where=where, got=f"{status}: {words}", next_step=next_step
        ) from None
    # A raw download that breaks off raises urllib3's error: the SDK does not wrap it.
    except (RequestException, HTTPError, TransportError, ConnectionError, TimeoutError) as error:
        raise StoreUnavailableError(
            f"gcs.unavailable: cannot {verb} a GCS location", where=where, got=without_queries(error)
        ) from None
    except MALFORMED as error:
        raise malformed_answer(where, error) from error


# These log whole URLs, whose queries hold signatures.
for _name in ("httpx2", "huggingface_hub.utils._http"):
    logging.getLogger(_name).setLevel(logging.ERROR)

HUB_EXPECTED = "hf://datasets/owner/name@revision, optionally followed by a folder"
HUB_BUSY = {408, 409, 412, 429}  # 409 and 412: another commit came first, so the next attempt looks again
REFUSED_TO_XET = re.compile(r"HTTP status client error \((4[0-9]{2}) ")  # hf_xet states the status only in this text
HUB_NEXT_STEPS = {
    401: "set HF_TOKEN, or log in: hf auth login",
    403: "the token lacks the permission: check its permissions, and accept the terms of a gated dataset on its page",
    404: "check owner, name and revision, and whether HF_TOKEN may see the dataset",
}


@contextmanager
def hub_explained(verb: str, where: str, *, anonymous: bool = False) -> Iterator[None]:
    """Turn SDK errors into ours. SDK errors quote the URL with its query, so they are not chained: a log would print
    them.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        yield
    except CorpusmillError:
        raise
    except Exception as error:
        answer = error if isinstance(error, HfHubHTTPError) else error.__cause__  # uploads wrap what a request raised
        if isinstance(answer, HfHubHTTPError):
            got, status = without_queries(answer), answer.response.status_code
            if status in HUB_BUSY or status >= 500:
                headers = answer.response.headers
                raise busy(
                    f"hub.unavailable: cannot {verb} a dataset of a hub", headers=headers, where=where, got=got
                ) from None
        else:
            refused = REFUSED_TO_XET.search(str(error)) if isinstance(error, ConnectionError) else None
            got = without_queries(error)
            status = 403 if isinstance(error, PermissionError) else int(refused[1]) if refused else 0
        if status and status not in HUB_BUSY:  # or Xet's store refuses the token that the Hub gave, or it gives none
            next_step = HUB_NEXT_STEPS.get(status, "the hub refused the request: see its answer")
            raise PermanentError(
                f"hub.refused: cannot {verb} a dataset of a hub",
                where=where,
                got=got,
                next_step=_NOT_PUBLIC if anonymous and status in FORBIDDEN else next_step,
            ) from None
        if isinstance(error, HFValidationError):
            raise ConfigError(
                "hub.not_a_dataset: this is not a dataset of a hub", where=where, expected=HUB_EXPECTED, got=error
            ) from error
        network = (httpx2.RequestError, httpx2.InvalidURL, ConnectionError, TimeoutError, RuntimeError)
        if isinstance(error, network):
            raise StoreUnavailableError(
                f"hub.unavailable: cannot {verb} a dataset of a hub", where=where, got=without_queries(answer or error)
            ) from None
        if isinstance(error, MALFORMED):
            raise malformed_answer(where, error) from error
        raise
