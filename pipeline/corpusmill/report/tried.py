"""What steps would do to sample documents: on the terminal, texts side by side, and as a page."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import Field

from corpusmill.errors import visible
from corpusmill.lazy import lazily
from corpusmill.report.facts import Count, Facts

with lazily:
    from corpusmill.report import html


SHOWN_ROWS = 4  # of a text, on the terminal
COMPARED_WORDS = 4000  # longer texts are shown without marks
BETWEEN = " | "

Pieces = list[tuple[str, bool]]
"""A text in pieces, each with whether the other text lacks it."""


class TriedDocument(Facts):
    """A document, why it would be dropped ("" if kept), its attributes by step as JSON, its text before and, if
    changed, after.
    """

    source_file: str
    line: Count
    id: str
    dropped: str = ""
    attributes: dict[str, str] = Field(default_factory=dict)
    before: str
    after: str | None = None

    @property
    def fate(self) -> str:
        """The outcome in a few words."""
        if self.dropped:
            return f"dropped: {self.dropped}"
        return "kept as it is" if self.after is None else "changed"


def render_tried(tried: Sequence[TriedDocument], *, show: int, width: int) -> str:
    """For the terminal, `width` columns wide: at most `show` documents of each fate, then the totals."""
    lines: list[str] = []
    seen: Counter[str] = Counter()
    for document in tried:
        seen[document.fate] += 1
        if seen[document.fate] <= show and (document.dropped or document.after is not None or document.attributes):
            lines += [*_lines(document, width), ""]
    return "\n".join([*lines, *totals_of_tried(tried)])


def totals_of_tried(tried: Sequence[TriedDocument]) -> list[str]:
    """A line for each fate, the most frequent first."""
    fates = Counter(document.fate for document in tried)
    ordered = sorted(fates.items(), key=lambda item: (-item[1], item[0]))
    return [f"{count:>7,} of {len(tried):,}  {visible(fate)}" for fate, count in ordered]


def _lines(tried: TriedDocument, width: int) -> Iterator[str]:
    yield f"{visible(tried.source_file)}, line {tried.line:,}, id {visible(tried.id) or 'none'}: {visible(tried.fate)}"
    for step, attributes in tried.attributes.items():
        yield f"  {step}: {visible(attributes)[: width - len(step) - 4]}"
    if tried.after is None:
        yield from (f"  {row}" for row in _rows(tried.before, width - 2))
        return
    half = (width - 2 - len(BETWEEN)) // 2
    common = next(
        (place for place, pair in enumerate(zip(tried.before, tried.after, strict=False)) if pair[0] != pair[1]),
        min(len(tried.before), len(tried.after)),
    )
    start = max(0, common - half)
    sides = [_rows(text[start:], half) for text in (tried.before, tried.after)]
    yield f"  {'before':<{half}}{BETWEEN}after{f', from character {start:,} on' if start else ''}"
    for number in range(max(map(len, sides))):
        left, right = (rows[number] if number < len(rows) else "" for rows in sides)
        yield f"  {left:<{half}}{BETWEEN}{right}".rstrip()


def _rows(text: str, width: int) -> list[str]:
    """The beginning of a text in rows of `width` columns; line breaks are shown as signs."""
    shown = visible(text[: width * SHOWN_ROWS]).replace("\n", "⏎").replace("\t", " ")
    return [shown[at : at + width] for at in range(0, min(len(shown), width * SHOWN_ROWS), width)] or ["(empty)"]


def compared(before: str, after: str) -> tuple[Pieces, Pieces]:
    """Both texts as pieces of words and separators, marked where they differ."""
    left, right = (re.findall(r"\w+|\W", text) for text in (before, after))
    if max(len(left), len(right)) > COMPARED_WORDS:
        return [(before, False)], [(after, False)]
    sides: tuple[Pieces, Pieces] = ([], [])
    for kind, *places in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for side, words, (first, last) in zip(sides, (left, right), (places[:2], places[2:]), strict=True):
            if first < last:
                side.append(("".join(words[first:last]), kind != "equal"))
    return sides


def render_tried_page(tried: Sequence[TriedDocument], title: str) -> str:
    """One HTML file: every document, dropped and changed ones first."""
    rows = [
        (document, compared(document.before, document.after) if document.after is not None else None)
        for document in tried
    ]
    rows.sort(key=lambda row: (row[0].after is None and not row[0].dropped, not row[0].dropped))
    template = html.report_environment().get_template("tried.html")
    return template.render(title=title, rows=rows, totals=totals_of_tried(tried))
