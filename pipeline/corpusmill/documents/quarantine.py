"""The quarantine file: every rejected line, its reason and its exact bytes, so that it can be inspected and repaired.

JSON lines, one per rejected line, in the order of the source:

    {"reason":"broken_json","source":"web/a.jsonl.gz","line":17,"preview":"{text: 1}","raw_base64":"e3RleHQ6IDF9"}

Blank lines, which are no malformed ones, are listed too: `locate` looks every line up that became no document.
`line` counts from 1, as editors and `sed -n 17p` do. `preview` is for eyes only: at most 200 printable characters.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import orjson

from corpusmill.documents.batch import DocumentBatch, Rejection, RejectionReason
from corpusmill.documents.jsonl import has_nan
from corpusmill.errors import CorruptDataError

PREVIEW_CHARACTERS = 200
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def append_rejections(sink: BinaryIO, batch: DocumentBatch) -> int:
    """Writes the batch's rejections to `sink` and returns how many there were."""
    for rejection in batch.rejections:
        record = {
            "reason": rejection.reason.value,
            "source": batch.source,
            "line": rejection.line_number + 1,
            "preview": _preview(rejection.raw),
            "raw_base64": base64.b64encode(rejection.raw).decode(),
        }
        sink.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    return len(batch.rejections)


def read_quarantine(stream: BinaryIO, *, name: str) -> Iterator[tuple[str, Rejection]]:
    """Yields (source, rejection) with the exact raw bytes. `name` is for messages.

    Raises CorruptDataError for a line that `append_rejections` did not write.
    """
    for number, line in enumerate(stream, start=1):
        try:
            record = orjson.loads(line)
            raw = base64.b64decode(record["raw_base64"], validate=True)
            yield record["source"], Rejection(RejectionReason(record["reason"]), record["line"] - 1, raw)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, binascii.Error) as error:
            raise CorruptDataError(
                f"quarantine.malformed: {name} is not a quarantine file",
                where=f"line {number}",
                expected="an object with reason, source, line, preview and raw_base64",
                got=f"{type(error).__name__}: {error}",
                next_step="delete the receipt of the step that wrote it and rerun the step",
            ) from error


def advice_on(path: Path) -> str:
    """What to do about the first rejected lines of a quarantine file, if their bytes show it; else ""."""
    with path.open("rb") as stream:
        for _, rejection in islice(read_quarantine(stream, name=str(path)), 100):
            if rejection.reason is RejectionReason.BROKEN_JSON and has_nan(rejection.raw):
                return "JSON has no NaN or Infinity: write null instead (in Python: json.dumps(..., allow_nan=False))"
    return ""


def _preview(raw: bytes) -> str:
    # A character has at most 4 bytes. Unprintable ones (controls, bidirectional marks) could forge a terminal's text.
    text = raw[: 4 * PREVIEW_CHARACTERS].decode(errors="replace")[:PREVIEW_CHARACTERS]
    return "".join(character if character.isprintable() else _REPLACEMENT for character in text)
