"""Translates errors of google-cloud-storage: transient, permanent, or a checksum that does not match."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corpusmill.errors import CorpusmillError, PermanentError, StoreUnavailableError
from corpusmill.storage.addresses import without_queries
from corpusmill.storage.locations import MALFORMED, malformed_answer
from corpusmill.storage.retries import ChecksumMismatchError, busy


@contextmanager
def explained(verb: str, where: str) -> Iterator[None]:
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
            next_step="run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
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
