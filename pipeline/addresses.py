"""Addresses of stores that may be written down: without name, password or token, and on which way they lead; and the
order of the names below them."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

# Also read by browsers. Not the @ of hf://datasets/owner/name@revision or of a key, nor the ? of a glob in a bucket.
CREDENTIALS = r"([hH][tT][tT][pP][sS]?://.*[@?#]|://[^/]*@|://[^/]*:.*@)"
"""A name before the host, a password with whatever in it, and every query: it may hold a token or a signature."""

_QUERY = re.compile(r"((?:://|url: )[^\s?#'\"<>]*)[?#][^\s'\"<>]*")
_PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".svc")


def natural_order(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Sort key: digits compare as numbers (part2 before part10), ties by the plain name; the same in every locale."""
    pieces = re.split(r"([0-9]+)", name)
    return tuple((1, int(piece), "") if piece[0] in "0123456789" else (0, 0, piece) for piece in pieces if piece), name


def without_credentials(location: str) -> str:
    """The location itself; ValueError, which does not repeat it, if it holds credentials."""
    if re.search(CREDENTIALS, location):
        raise ValueError(
            "an address may not hold credentials: leave them to the store's SDK (AWS_PROFILE, AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, HF_TOKEN)"
        )
    return location


def without_queries(text: object) -> str:
    """What an SDK says of a request, without the queries of its URLs: signatures stand in them."""
    return _QUERY.sub(r"\1", str(text))


def is_hub(location: str) -> bool:
    """Whether a location is a repository of a hub, or in one."""
    return location.startswith("hf://")


def is_open_to_others(endpoint_url: str) -> bool:
    """Whether requests go unencrypted to a host that is neither this one nor of a private network, by its name."""
    address = urlsplit(endpoint_url)
    host = address.hostname or ""
    if address.scheme != "http":
        return False
    try:
        return not ipaddress.ip_address(host).is_private
    except ValueError:
        return "." in host and not host.endswith(_PRIVATE_ENDINGS)
