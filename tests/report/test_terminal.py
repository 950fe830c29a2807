"""The terminal page: every line fits, no row is broken, names cannot act."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from corpusmill.report.summary import BuildSummary, PowerBin, PowerHistogram
from corpusmill.report.terminal import print_summary
from corpusmill.report.terminal_marks import sparkline
from tests.report import example_summaries as examples

EXAMPLES = {
    "usual": examples.usual(),
    "huge": examples.huge(),
    "empty": examples.empty(),
    "planned": examples.planned(),
    "broken": examples.broken(),
    "hostile": examples.hostile("[bold]<script>\x1b[31m\r\n中文"),
}


def printed(summary: BuildSummary, width: int, *, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    print_summary(summary, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_print_summary_any_build_at_any_width_keeps_lines_and_rows_whole(name: str, width: int) -> None:
    summary = EXAMPLES[name]
    lines = printed(summary, width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    if summary.stages:
        first = next(number for number, line in enumerate(lines) if line.startswith("Stage "))
        rows = lines[first + 1 : first + 1 + len(summary.stages)]
        for row, stage in zip(rows, summary.stages, strict=True):
            assert row[:3] == stage.stage[:3]
            assert row.strip()[-1] in "0123456789\N{EN DASH}B"


@pytest.mark.parametrize("name", ["usual", "huge", "empty", "planned", "broken"])
def test_print_summary_at_eighty_columns_shortens_no_number(name: str) -> None:
    for line in printed(EXAMPLES[name], 80).splitlines():
        assert "…" not in line or "/" in line, line


def test_print_summary_memory_appears_when_there_is_room() -> None:
    assert "Memory" not in printed(examples.usual(), 80)
    assert "1.11 GiB" in printed(examples.usual(), 100)


def test_print_summary_usual_build_says_the_facts() -> None:
    text = printed(examples.usual(), 80)
    for fact in (
        "1,229,953",
        "579 MiB removed, 13.3 % of the text",
        "349,901 ranges of at least 500 bytes",
        "\N{MINUS SIGN}3,411 documents",
        "499,001 contexts of 2,049 tokens",
        "64 of 64 files verified",
        "11 of 11 accounts in balance",
        "ids: 1,229,000 documents decoded to the exact text, 940 to its normalized form",
    ):
        assert fact in text, fact


def test_print_summary_sums_of_content_stand_together_in_order_of_the_chain() -> None:
    lines = [line.rstrip() for line in printed(examples.usual(), 100).splitlines()]
    first = next(number for number, line in enumerate(lines) if "11 of 11 accounts" in line) + 1
    for line, check in zip(lines[first:], examples.usual().content_checks, strict=False):
        (left, content), (right, _) = check.left[0], check.right[0]
        assert line.split() == ["✓", *check.name.split(), content[:12], *f"{left} = {right}".split()]


def test_print_summary_failed_content_says_both_sums_shortened() -> None:
    wrong = examples.usual().content_checks[0].model_copy(update={"right": (("read again", "f" * 32),)})
    text = printed(examples.usual().model_copy(update={"checks": (wrong,)}), 80)
    assert "indexed 3dd45f29186b ≠ read again ffffffffffff" in text


def test_print_summary_counts_files_without_a_checksum_of_the_store() -> None:
    build = examples.usual()
    (first, *others) = build.stages
    for count, said in ((0, "0 of them retries"), (1, "1 file or part without"), (3, "3 files or parts without")):
        stage = first.model_copy(update={"requests": 12, "without_checksum": count})
        text = printed(build.model_copy(update={"stages": (stage, *others)}), 200)
        assert said in text
        assert ("two reads compared" in text) is (count > 0)


def test_print_summary_failed_check_says_both_sides_and_what_is_missing() -> None:
    text = printed(examples.broken(), 80)
    assert "does not balance" in text
    assert "in 41,233 ≠ out 41,190 + rejected 40  (3 missing)" in text


def test_print_summary_hostile_names_are_neither_markup_nor_escapes() -> None:
    text = printed(EXAMPLES["hostile"], 120, colour=True)
    assert "\x1b[31m\r" not in text
    assert "\r" not in text
    assert "[bold]<script>" in text


def test_print_summary_long_path_keeps_its_end() -> None:
    assert "/part-00899.jsonl.zst" in printed(examples.huge(), 60)


def test_print_summary_twice_gives_the_same_text() -> None:
    assert printed(examples.usual(), 80) == printed(examples.usual(), 80)


def test_sparkline_heights_follow_counts_and_gaps_stay_blank() -> None:
    shape = PowerHistogram(
        bins=tuple(PowerBin(power=p, count=n, total=t) for p, n, t in ((2, 1, 900), (3, 400, 5), (5, 800, 0)))
    )
    assert sparkline(shape) == "▁▄ █"
    assert sparkline(shape, totals=True) == "█▁  "
    assert sparkline(PowerHistogram()) == ""
