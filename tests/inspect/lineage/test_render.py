"""What lineage prints: names and ids from outside move no cursor."""

from __future__ import annotations

from pathlib import Path

from corpusmill.inspect.lineage.facts import (
    Located,
    Piece,
    RecordTrace,
    RejectedLine,
    SourceDocument,
    render_located,
    render_trace,
)

CLIPBOARD = "\x1b]52;c;eA==\x07"
SHOWN = r"\x1b]52;c;eA==\x07"
DOCUMENT = SourceDocument(f"a{CLIPBOARD}", 1, f"id\n{CLIPBOARD}", 0, 0)


def test_trace_makes_escapes_in_ids_and_names_visible() -> None:
    piece = Piece(DOCUMENT, (0, 2), (0, 2), ((0, 9),), "text")
    printed = render_trace(RecordTrace("numpy", f"b{CLIPBOARD}", 0, (0, 2), (piece,)))
    assert printed.splitlines()[0].startswith(f"b{SHOWN}, record 0")
    assert f"a{SHOWN}:1" in printed
    assert rf"id\n{SHOWN}" in printed
    assert "\x1b" not in printed


def test_locate_makes_escapes_in_ids_and_names_visible() -> None:
    printed = render_located(Located(DOCUMENT, 9, 0, 2, (), ()))
    assert printed.splitlines()[0] == rf"a{SHOWN}:1  id id\n{SHOWN}"
    rejected = render_located(RejectedLine(f"a{CLIPBOARD}", 1, "no_text", CLIPBOARD, Path(f"q{CLIPBOARD}")))
    assert "\x1b" not in rejected
    assert rejected.count(SHOWN) == 3
