"""The list of documents that no build may deliver any more, and the log of when each was gone.

    list   a JSON line for each document: its key, and of those added here `asked_by` and `asked_at`
    log    a JSON line for each document and the first version without it: the list's row, `version` and `gone_at`

Both hold ids, or files and lines, never a text. Times are UTC, to the second.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from corpusmill.config import ForgetConfig, absolute, absolute_here
from corpusmill.engine.ledger import locked
from corpusmill.engine.work_folder.small import refresh, write
from corpusmill.errors import ConfigError, CorruptDataError
from corpusmill.steps.decisions import DECISION_ENDINGS, read_keys
from corpusmill.storage import StoredFile, list_sources
from corpusmill.storage.local import write_whole

LOG = "forgotten.jsonl"
LIST_ENDING = ".jsonl"
Key = tuple[str | int, ...]


def add_requests(
    forget: ForgetConfig, wanted: Sequence[Key], asked_by: str, now: Callable[[], float] = time.time
) -> int:
    """Add documents to the list of a configuration; returns how many of them are new.

    The list is rewritten beside itself and renamed. ConfigError if it is not one JSON lines file of this machine.
    """
    path, columns = _own_list(forget), _columns(forget)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock"), wait=True):
        known = set(read_requests(forget, str(path))) if path.exists() else set()
        new = [key for key in dict.fromkeys(wanted) if key not in known]
        if not new:
            return 0
        request = {"asked_by": asked_by, "asked_at": _written(now())}
        before = path.read_bytes() if path.exists() else b""
        before += b"\n" if before and not before.endswith(b"\n") else b""
        write_whole(path, before + _lines([{**dict(zip(columns, key, strict=True)), **request} for key in new]))
    return len(new)


def read_requests(forget: ForgetConfig, path: str) -> list[Key]:
    """The keys of a file of the list's kind, or of plain text (.txt) with an id a line.

    DecisionError for a row without key, ConfigError for plain text where a key is a file and a line.
    """
    columns = _columns(forget)
    if path.endswith(".txt"):
        try:
            return id_lines(forget, Path(absolute_here(path)).read_text("utf-8-sig"), where=path)
        except (OSError, UnicodeDecodeError) as error:
            got = type(error).__name__
            raise ConfigError(
                "forget.list_not_readable: a list of ids cannot be read", where=path, expected="text in UTF-8", got=got
            ) from None
    files = list_sources([absolute_here(path)], DECISION_ENDINGS)
    with tempfile.TemporaryDirectory() as folder:
        return [tuple(values) for _, values in read_keys(files, None, columns, Path(folder), keys=len(columns))]


def id_lines(forget: ForgetConfig, text: str, *, where: str) -> list[Key]:
    """The ids of a text that has one on every line, as they are; empty lines are skipped.

    ConfigError where a key is a file and a line, and for white space around an id: it may be part of the id, or not.
    """
    if len(columns := _columns(forget)) > 1:
        raise ConfigError(
            "forget.lines_in_plain_text: a list of files and lines cannot be plain text",
            where=where,
            expected=", ".join(columns),
        )
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    for number, line in enumerate(lines, 1):
        if line != line.strip():
            raise ConfigError(
                "forget.white_space: a line of a list of ids begins or ends with white space",
                where=f"{where}, line {number:,}",
                expected="an id alone",
                got=f"{len(line):,} characters, {len(line) - len(line.strip()):,} of them white space at an end",
                next_step='remove it, or if it belongs to the id, give the list as JSON lines such as {"id": "a "}',
            )
    return [(line,) for line in lines if line]


def note_gone(
    forget: ForgetConfig,
    files: list[StoredFile],
    log: Path,
    version: str,
    unmatched: Collection[tuple[str, int]] = (),
    now: Callable[[], float] = time.time,
) -> None:
    """Add to the log that a version was delivered without the documents of the list that the log does not have yet;
    raises as `read_log`.

    `unmatched`: (file, row) of keys that no document of the sources has; nothing can be said of them.
    """
    columns = _columns(forget)
    before = log.read_bytes() if refresh(log, again=True) else b""
    known = {tuple(row.get(column) for column in columns) for row in _logged(before, log)}
    rows = []
    for place, row in _rows(forget, files, log.parent):
        key = tuple(row[column] for column in columns)
        if key not in known:
            known.add(key)
            if place not in unmatched:
                rows.append({**row, "version": version, "gone_at": _written(now())})
    write(log, before + _lines(rows))


def read_log(log: Path) -> list[dict[str, Any]]:
    """The rows of a log, in order; empty if it does not exist. CorruptDataError for a line that no build wrote."""
    return _logged(log.read_bytes(), log) if refresh(log) else []


def _logged(content: bytes, log: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not {"version", "gone_at"} <= row.keys():
            raise CorruptDataError(
                "forget.log_damaged: the log of forgotten documents is damaged",
                where=f"{log}, line {number:,}",
                expected="a JSON object with a document's key, version and gone_at",
                got=f"{len(line):,} bytes of something else",
                next_step="restore the file from a backup, or delete the line: the next build logs its document again,"
                " with that build's version and time",
            )
        rows.append(row)
    return rows


def keys_in_log(forget: ForgetConfig, log: Path) -> set[Key]:
    """The documents that the log says are gone, by the list's key; rows with another key are left out."""
    columns = _columns(forget)
    return {tuple(row[column] for column in columns) for row in read_log(log) if row.keys() >= set(columns)}


def _columns(forget: ForgetConfig) -> tuple[str, ...]:
    return forget.decisions().columns


def _rows(
    forget: ForgetConfig, files: list[StoredFile], folder: Path
) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    """The documents of the list: (file, row), and their keys, and who asked and when, where JSON lines say so."""
    columns = (*_columns(forget), "asked_by", "asked_at")
    for file in files:
        own = columns if ".jsonl" in file.name else _columns(forget)
        for row, values in read_keys([file], forget.endpoint, own, folder, keys=len(_columns(forget))):
            cells = zip(own, values, strict=True)
            yield (file.name, row), {column: value for column, value in cells if isinstance(value, str | int)}


def require_own_list(forget: ForgetConfig | None) -> ForgetConfig:
    """The section, if documents can be added to its list; ConfigError if there is none, or it is kept elsewhere."""
    if forget is None:
        raise ConfigError(
            "forget.not_configured: the configuration has no list of documents to forget",
            next_step="add `forget: {path: takedowns/web.jsonl, copies: also}` to it (docs/forget.md)",
        )
    _own_list(forget)
    return forget


def _own_list(forget: ForgetConfig) -> Path:
    """The file to which documents are added; ConfigError if it is not one local JSON lines file."""
    path = Path(absolute(forget.path))
    if "://" in forget.path or not forget.path.endswith(LIST_ENDING) or any(sign in forget.path for sign in "*?["):
        raise ConfigError(
            "forget.list_not_extendable: documents cannot be added to the list of the configuration",
            where="forget.path",
            expected=f"one file of this machine whose name ends in {LIST_ENDING}",
            got=forget.path,
            next_step="add them to the list where it is stored; builds read it anywhere",
        )
    return path


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode(errors="surrogatepass") + b"\n" for row in rows)


def _written(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
