"""What deduplication would remove, in words, once the ranges are known and before anything is cut."""

from __future__ import annotations

import re

from pipeline.errors import visible
from pipeline.ledger import Receipt
from pipeline.stages.build import Build

SHOWN_FILES = 10  # source files that lose most


def removal_in_words(build: Build) -> str:
    """Markdown: how much of the text repeats and would be removed (or annotated), and from which source files most.

    "" if the dataset is not deduplicated. Read from receipts; StepMissingError before union has finished.
    """
    if build.config.dedup.mode == "none":
        return ""
    text_bytes, documents = build.total("index", "text_bytes_out"), build.total("index", "documents_out")
    counts = {
        name: build.total("union", name)
        for name in ("removed_bytes", "ranges_out", "documents_touched", "documents_emptied")
    }
    verb = "removed" if build.config.dedup.mode == "remove" else "annotated, and kept"
    rows = [
        f"**{counts['removed_bytes']:,} of {text_bytes:,} bytes of text"
        f" ({_share(counts['removed_bytes'], text_bytes)}) would be {verb}**, in {counts['ranges_out']:,} ranges.",
        "",
        f"* {counts['documents_touched']:,} of {documents:,} documents are touched,"
        f" {counts['documents_emptied']:,} of them wholly.",
        f"* A range is a repeat of at least {build.config.dedup.minimum_bytes:,} bytes.",
        "",
        "| source file | bytes of text | would go | share |",
        "|---|--:|--:|--:|",
        *(
            f"| {code_span(path)} | {whole:,} | {gone:,} | {_share(gone, whole)} |"
            for gone, whole, path in _files(build.receipts("union"))[:SHOWN_FILES]
        ),
    ]
    return "\n".join(rows)


def code_span(text: str) -> str:
    """Markdown that shows `text` as it is, in a table's cell too: its fence is longer than any backticks in it."""
    shown = visible(text).replace("\n", r"\n").replace("|", r"\|")  # tables split cells before spans are read
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if shown.startswith("`") or shown.endswith("`") else f"{fence}{shown}{fence}"


def _files(receipts: list[Receipt]) -> list[tuple[int, int, str]]:
    """(bytes that go, bytes of text, path) of every source file, those that lose most first."""
    listed = [one for receipt in receipts for one in receipt.details["by_source_file"]]
    found = [(one["duplicate_bytes"], one["text_bytes"], one["path"]) for one in listed]
    return sorted(found, key=lambda one: (-one[0], one[2]))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0 %"
