"""Stored files, their identities, and names and addresses that are safe: to join to a folder, to write down."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from corpusmill.errors import ConfigError, InvalidValueError, SourceError, StoreUnavailableError


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store as a listing saw it.

    `name` is relative to the listed folder, `location` is complete. `identity` changes when the content may have
    changed: size, modification time and time of change for a local file (`rsync -t` and `cp -p` set the first of the
    times back), size and ETag for an S3 object, size and generation for a GCS object, size and blob id for a file of a
    Hub commit. Equal content may have several identities.
    """

    name: str
    location: str
    size_bytes: int
    identity: str


def safe_relative_name(name: str, *, where: str) -> str:
    """`name` itself if joining it to a folder stays inside that folder; SourceError otherwise."""
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or "\0" in name:  # an absolute name has an empty part
        raise SourceError(
            "source.name_leaves_folder: a source's name would leave its folder",
            where=where,
            expected="a relative name without empty parts, . or ..",
            got=repr(name),
            next_step="rename it, or list its folder as a separate source",
        )
    return name


def resolved_locations(locations: Iterable[str]) -> Iterator[str]:
    """Each location, local ones without links and `..`: equal results are one file."""
    folders: dict[str, str] = {}
    for location in locations:
        folder, _, name = location.rpartition("/")
        if "://" in location or os.path.islink(location):  # noqa: PTH114
            yield location if "://" in location else os.path.realpath(location)
            continue
        if folder not in folders:
            folders[folder] = os.path.realpath(folder or "/")
        yield f"{folders[folder].rstrip('/')}/{name}"


def file_keys(locations: Iterable[str]) -> Iterator[str]:
    """A key for each location: equal keys are one file, reached by another path, a link or a hard link.

    Inodes count only for files with several names, because some network file systems number files badly, and have no
    hard links.
    """
    locations = list(locations)
    for location, real in zip(locations, resolved_locations(locations), strict=True):
        status = None
        if "://" not in location:
            with suppress(OSError):  # gone since it was listed, which its reader reports
                status = os.stat(location)  # noqa: PTH116
        yield f"{status.st_dev}:{status.st_ino}" if status and status.st_nlink > 1 else real


def require_no_credentials(*addresses: str | None) -> None:
    """ConfigError, which does not quote it, for a URL with credentials."""
    try:
        for address in addresses:
            without_credentials(address or "")
    except InvalidValueError as error:
        raise ConfigError(f"{error.code}: {error}") from None


def size_of(identity: str) -> int:
    """The size in bytes that every identity begins with."""
    return int(identity.partition("-")[0])


def changed_since_planned(location: str, planned: str, now: str | None) -> SourceError:
    """The error for a file whose identity is no longer the planned one; `now` is None if it is gone."""
    return SourceError(
        "source.changed_since_planned: a source file changed after it was planned",
        where=location,
        expected=planned,
        got="it is gone" if now is None else now,
        next_step="start the build again: it plans with the current files",
    )


# Raised by our code, or by an SDK, when it reads a malformed answer.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, SyntaxError)


def malformed_answer(location: str, error: Exception) -> StoreUnavailableError:
    """The error for a response with status 200 that does not fit the request: a proxy's page, a truncated body."""
    return StoreUnavailableError(
        "store.malformed_answer: a store's answer is malformed", where=location, got=type(error).__name__
    )


def require_identity(location: str, planned: str, there: StoredFile | None) -> None:
    """SourceError unless the file exists with the planned identity."""
    if there is None or there.identity != planned:
        raise changed_since_planned(location, planned, there.identity if there else None)


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


def without_file_scheme(location: str) -> str:
    """The path of a `file:///path` or `file://localhost/path`; other locations are returned unchanged."""
    scheme, separator, path = location.partition("://")
    if not separator or scheme.lower() != "file" or not path.removeprefix("localhost").startswith("/"):
        return location
    return path.removeprefix("localhost")


class Endpoint(str):
    """The URL of a store's endpoint, "" for the usual one, and how requests to it are made.

    `anonymous`: without credentials, unsigned. `requester_pays`: whoever asks pays for the answer.
    """

    anonymous: bool
    requester_pays: bool

    def __new__(cls, url: str, *, anonymous: bool = False, requester_pays: bool = False) -> Endpoint:
        made = super().__new__(cls, url)
        made.anonymous, made.requester_pays = anonymous, requester_pays
        return made


def asked_as(endpoint_url: str | None) -> Endpoint:
    """How requests to an endpoint are made: signed and free of charge unless it says otherwise."""
    return endpoint_url if isinstance(endpoint_url, Endpoint) else Endpoint(endpoint_url or "")


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
