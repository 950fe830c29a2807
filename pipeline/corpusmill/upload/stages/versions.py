"""Finds the latest version of a dataset at a destination.

In a folder or a bucket latest.json names it; on the Hub it is the content of the branch's last commit.
"""

from __future__ import annotations

import hashlib
import json

from corpusmill.errors import SourceError
from corpusmill.storage import is_hub, open_store
from corpusmill.upload.stages.description import DATASET, VERSION, VERSION_DIGITS

LATEST = "latest.json"


def latest_version(folder: str, *, endpoint_url: str | None = None) -> str | None:
    """The latest version in a folder of all; None if nothing was delivered there. SourceError for a malformed
    latest.json.
    """
    store = open_store(folder, endpoint_url=endpoint_url)
    name = DATASET if is_hub(folder) else LATEST
    if store.stat(name) is None:
        return None
    with store.open(name) as file:
        text = file.read()
    if is_hub(folder):
        return hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]
    try:
        if VERSION.fullmatch(version := json.loads(text)["version"]):
            return str(version)
        got = "something else"
    except (ValueError, LookupError, TypeError) as error:
        got = type(error).__name__
    raise SourceError(
        "destination.latest_unknown: the latest version is unknown",
        where=f"{store.folder}/{LATEST}",
        expected=f'{{"version": ...}}, {VERSION_DIGITS} hex digits',
        got=got,
        next_step="upload the dataset again, which writes it; to read one version, name its folder",
    )
