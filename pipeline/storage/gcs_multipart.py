"""Uploads to GCS that broke off (kill -9, power): unseen, paid for, and kept until somebody aborts them.

The SDK neither lists nor finishes them. The next upload in parts of the same key aborts them by the XML API
(https://cloud.google.com/storage/docs/xml-api/get-bucket-uploads, delete-multipart), and sends the whole file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote
from xml.etree import ElementTree

T = TypeVar("T")

Call = Callable[[str, Callable[[], T]], T]


def abort_unfinished(client: Any, bucket: str, key: str, call: Call[Any], *, timeout_seconds: float) -> None:
    """Abort every unfinished upload of exactly this key.

    `call(verb, request)` makes one request by the policy of retries and explains its errors. A listing is in order of
    key, so that uploads of `key` come before those of longer ones: its first page, of 1,000, is enough.
    """
    place = f"{client.api_endpoint}/{quote(bucket)}"

    def request(method: str, address: str) -> Any:
        from google.api_core import exceptions

        answer = client._http.request(method, address, timeout=timeout_seconds)
        if answer.status_code == 404 and method == "DELETE":
            return answer  # aborted already: an answer that was lost, or somebody else
        if not answer.ok:
            raise exceptions.from_http_response(answer)  # type: ignore[no-untyped-call]
        return answer

    listing = f"{place}?uploads&prefix={quote(key, safe='')}"

    def uploads() -> list[str]:
        answer = ElementTree.fromstring(request("GET", listing).content)  # noqa: S314 - the store is trusted with the data
        found = [upload for upload in answer.iterfind("{*}Upload") if upload.findtext("{*}Key") == key]
        return [upload.findtext("{*}UploadId") or "" for upload in found]

    for upload in call("list uploads of", uploads):
        one = f"{place}/{quote(key, safe='~')}?uploadId={quote(upload, safe='')}"
        call("abort an upload of", partial(request, "DELETE", one))
