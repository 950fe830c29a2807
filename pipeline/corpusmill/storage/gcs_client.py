"""Opens clients of Google Cloud Storage with credentials.

Credentials come from the SDK's own chain, unless CORPUSMILL_GOOGLE_KEY holds the JSON of a service account's key:
schedulers with a secret store pass it this way, without a file. STORAGE_EMULATOR_HOST, which the SDK reads, means an
emulator without credentials.
"""

from __future__ import annotations

import json
import os
from typing import Any

from corpusmill.errors import PermanentError
from corpusmill.storage.gcs_errors import explained

KEY = "CORPUSMILL_GOOGLE_KEY"
TIMEOUT_SECONDS = 60


def open_client(where: str) -> Any:
    """A client for the location `where`. PermanentError if there are no credentials, or malformed ones."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    with explained("open", where):
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
            return storage.Client(credentials=anonymous, project="emulator")
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
