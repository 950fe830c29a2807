"""Interrupted uploads to GCS (kill -9, power): invisible, billed, and kept until somebody aborts them.

The SDK neither lists nor finishes them. The next upload in parts of the same key aborts them by the XML API
(https://cloud.google.com/storage/docs/xml-api/get-bucket-uploads, delete-multipart), and sends the whole file; the next
upload of another version of the dataset aborts those of all its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

T = TypeVar("T")

Call = Callable[[str, Callable[[], T]], T]


def abort_unfinished(
    client: Any, bucket: str, prefix: str, is_left: Callable[[str], bool], call: Call[Any], *, timeout_seconds: float
) -> int:
    """Abort every unfinished upload of keys that begin with `prefix` and of which `is_left` holds; how many there were.

    `call(verb, request)` makes one request by the policy of retries and explains its errors.
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

    def page(behind: dict[str, str]) -> tuple[list[tuple[str, str]], dict[str, str] | None]:
        query = urlencode({"prefix": prefix, **behind}, quote_via=quote, safe="")
        answer = ElementTree.fromstring(request("GET", f"{place}?uploads&{query}").content)  # noqa: S314 - the store is trusted with the data
        rows = [(_text(upload, "Key"), _text(upload, "UploadId")) for upload in answer.iterfind("{*}Upload")]
        if (answer.findtext("{*}IsTruncated") or "false") == "false":
            return rows, None
        more = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}
        return rows, {key: _text(answer, marker) for key, marker in more.items()}

    uploads: list[tuple[str, str]] = []
    behind: dict[str, str] | None = {}
    while behind is not None:
        rows, behind = call("list uploads of", partial(page, behind))
        uploads += [(key, upload) for key, upload in rows if key.startswith(prefix) and is_left(key)]
    for key, upload in uploads:
        url = f"{place}/{quote(key, safe='~')}?uploadId={quote(upload, safe='')}"
        call("abort an upload of", partial(request, "DELETE", url))
    return len(uploads)


def _text(element: ElementTree.Element, tag: str) -> str:
    """What a child holds; LookupError without it: the answer has not the form that it must have."""
    text = element.findtext(f"{{*}}{tag}")
    if not text:
        raise LookupError(tag)
    return text
