"""Store addresses that are safe to write down (no user, password or token), and the natural order of names."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from corpusmill.errors import InvalidValueError

# Browsers evaluate this too. The @ of hf://datasets/owner/name@revision or of a key, and the ? of a glob, must not
# match.
CREDENTIALS = r"([hH][tT][tT][pP][sS]?://.*[@?#]|://[^/]*@|://[^/]*:.*@)"
"""Matches a user before the host, any password, and every query, since a query may hold a token or a signature."""

ENDPOINT_MARK = " | "  # between a path and the endpoint of its store, in one line of a form

_QUERY = re.compile(r"((?:://|url: )[^\s?#'\"<>]*)[?#][^\s'\"<>]*")
_PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".svc")


def natural_order(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Sort key: digits compare as numbers (part2 before part10), ties by the plain name; the same in every locale."""
    pieces = re.split(r"([0-9]+)", name)
    return tuple((1, int(piece), "") if piece[0] in "0123456789" else (0, 0, piece) for piece in pieces if piece), name


def without_credentials(location: str) -> str:
    """The location itself; ValueError, which does not repeat it, if it holds credentials."""
    if re.search(CREDENTIALS, location):
        raise InvalidValueError(
            "config.credentials: an address may not hold credentials: leave them to the store's SDK (AWS_PROFILE,"
            " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, HF_TOKEN)"
        )
    return location


def without_queries(text: object) -> str:
    """An SDK's message without the queries of its URLs, which may hold signatures."""
    return _QUERY.sub(r"\1", str(text))


def is_hub(location: str) -> bool:
    """Whether a location is a Hub repository or a file in one."""
    return location.startswith("hf://")


def is_open_to_others(endpoint_url: str) -> bool:
    """Whether requests go unencrypted to a host outside this machine and private networks, judged by its name."""
    address = urlsplit(endpoint_url)
    host = address.hostname or ""
    if address.scheme != "http":
        return False
    try:
        return not ipaddress.ip_address(host).is_private
    except ValueError:
        return "." in host and not host.endswith(_PRIVATE_ENDINGS)
