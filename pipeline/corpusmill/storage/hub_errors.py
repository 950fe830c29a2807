"""Translates errors of huggingface_hub: transient, or permanent with a next step."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from corpusmill.errors import ConfigError, CorpusmillError, PermanentError, StoreUnavailableError
from corpusmill.storage.addresses import without_queries
from corpusmill.storage.locations import MALFORMED, malformed_answer
from corpusmill.storage.retries import busy

# They log whole URLs, whose queries hold signatures.
for _name in ("httpx2", "huggingface_hub.utils._http"):
    logging.getLogger(_name).setLevel(logging.ERROR)

EXPECTED = "hf://datasets/owner/name@revision, optionally followed by a folder"
BUSY = {408, 409, 412, 429}  # 409 and 412: another commit came first, so the next attempt looks again
REFUSED_TO_XET = re.compile(r"HTTP status client error \((4[0-9]{2}) ")  # hf_xet states the status only in this text
UNKNOWN = "the hub refused the request: see its answer"
NEXT_STEPS = {
    401: "set HF_TOKEN, or log in: hf auth login",
    403: "the token lacks the permission: check its permissions, and accept the terms of a gated dataset on its page",
    404: "check owner, name and revision, and whether HF_TOKEN may see the dataset",
}


@contextmanager
def explained(verb: str, where: str) -> Iterator[None]:
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
            status, headers = answer.response.status_code, answer.response.headers
            if status in BUSY or status >= 500:
                raise busy(
                    f"hub.unavailable: cannot {verb} a dataset of a hub",
                    headers=headers,
                    where=where,
                    got=without_queries(answer),
                ) from None
            next_step = NEXT_STEPS.get(status, UNKNOWN)
            raise PermanentError(
                f"hub.refused: cannot {verb} a dataset of a hub",
                where=where,
                got=without_queries(answer),
                next_step=next_step,
            ) from None
        refused = REFUSED_TO_XET.search(str(error)) if isinstance(error, ConnectionError) else None
        status = 403 if isinstance(error, PermissionError) else int(refused[1]) if refused else 0
        if status and status not in BUSY:  # Xet's store refuses the token that the Hub gave, or the Hub gives none
            next_step = NEXT_STEPS.get(status, UNKNOWN)
            raise PermanentError(
                f"hub.refused: cannot {verb} a dataset of a hub",
                where=where,
                got=without_queries(error),
                next_step=next_step,
            ) from None
        if isinstance(error, HFValidationError):
            raise ConfigError(
                "hub.not_a_dataset: this is not a dataset of a hub", where=where, expected=EXPECTED, got=error
            ) from error
        network = (httpx2.RequestError, httpx2.InvalidURL, ConnectionError, TimeoutError, RuntimeError)
        if isinstance(error, network):
            raise StoreUnavailableError(
                f"hub.unavailable: cannot {verb} a dataset of a hub", where=where, got=without_queries(answer or error)
            ) from None
        if isinstance(error, MALFORMED):
            raise malformed_answer(where, error) from error
        raise
