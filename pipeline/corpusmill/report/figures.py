"""Numbers as text for people; rounded numbers have three significant digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.report.summary import EncodedSummary

BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
COUNT_UNITS = ("", "K", "M", "B", "T", "P")
LARGEST_EXACT = 10_000


def grouped(count: int) -> str:
    """1234567 -> 1,234,567."""
    return f"{count:,}"


def counted(count: int, word: str) -> str:
    """1 file, 2,000 files."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def sum_text(content: str) -> str:
    """The first 12 digits of a content sum."""
    return content[:12]


def decoded_text(exactly: int, normalized: int, unproven: int) -> str:
    """How many documents' ids decode to their text."""
    rest = ((normalized, "to its normalized form"), (unproven, "not proven"))
    others = "".join(f", {count:,} {how}" for count, how in rest if count)
    return f"ids: {counted(exactly, 'document')} decoded to the exact text{others}"


def encoded_text(encoded: EncodedSummary) -> str:
    """Which engine made the ids, how many documents went to the reference, how many hold a special string."""
    why = f" ({', '.join(encoded.reasons)})" if encoded.reasons else ""
    documents = counted(encoded.documents, "document")
    fast = f" for {encoded.documents - encoded.by_reference:,} of {documents}, the reference library for the others"
    slow = fast if encoded.by_reference else f" for all of {documents}"
    special = f"; {counted(encoded.special, 'document')} with the string of a special token"
    kept = ", which stays text" if encoded.special_is_text else ", which became its id"
    return f"engine: {', '.join(encoded.engines)}{why}{slow}{special}{kept if encoded.special else ''}"


def requests_text(requests: int, retries: int, without_checksum: int) -> str:
    """Requests to stores, and the files or parts of files that have no checksum in their store, if any."""
    unproved = f"{without_checksum:,} {'file or part' if without_checksum == 1 else 'files or parts'}"
    compared = f"; {unproved} without a checksum of the store: two reads compared" if without_checksum else ""
    return f"{counted(requests, 'request')}, {retries:,} of them retries{compared}"


def largest_first(amounts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The reasons with a count above 0, largest first; equal counts by name."""
    return sorted(((reason, count) for reason, count in amounts.items() if count), key=lambda row: (-row[1], row[0]))


def bytes_text(count: float) -> str:
    """1536 -> 1.50 KiB; below 1 KiB exact."""
    return _scaled(count, 1024, BYTE_UNITS)


def count_text(count: float) -> str:
    """Below 10,000 exact, then 12.3 K, 4.56 M, 7.89 B (10**9), 1.23 T."""
    return grouped(round(count)) if count < LARGEST_EXACT else _scaled(count, 1000, COUNT_UNITS)


def documents_text(count: float) -> str:
    """Exact up to nine digits, so that a column holds eleven characters."""
    return grouped(round(count)) if count < 10**9 else count_text(count)


def seconds_text(seconds: float) -> str:
    """0.42 s, 12.3 s, 3 m 12 s, 2 h 05 m, 3 d 04 h."""
    if seconds < 1:
        return f"{seconds:.2f} s" if seconds else "0 s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} m"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def share_text(part: float, whole: float) -> str:
    """12.3 %; a share that is not zero never reads as zero, one that is not all never reads as all."""
    if not part or not whole:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.01:
        return "< 0.01 %"
    if percent != 100 and round(percent, 2) == 100:
        return "> 99.99 %" if percent < 100 else "> 100 %"
    digits = 2 if percent < 1 or 99 < percent < 100 else 1
    return f"{percent:.{digits}f} %"


def rate_text(bytes_per_second: float | None) -> str:
    """123.4 for 123.4 MB/s (10**6 bytes); a dash when unknown."""
    return "\N{EN DASH}" if bytes_per_second is None else f"{bytes_per_second / 1e6:,.1f}"


def _scaled(count: float, base: int, units: tuple[str, ...]) -> str:
    number, unit = float(count), 0
    # 999.5 would read 1000 in three digits, so it belongs to the next unit.
    while number >= (base if unit == 0 else base - 0.5) and unit < len(units) - 1:
        number, unit = number / base, unit + 1
    if unit == 0:
        return f"{round(number):,} {units[0]}".rstrip()
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:,.{digits}f} {units[unit]}"
