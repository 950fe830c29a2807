"""The terminal report: tables fit, no row is broken, nothing important is left out, names cannot act."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from corpusmill.report.facts import step_rows
from corpusmill.report.summary import BuildSummary
from corpusmill.report.terminal import from_here, print_summary
from tests.report import example_summaries as examples

HTML = Path("work/web-en/report/report-0123456789abcdef/report.html")

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
    print_summary(summary, HTML, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [80, 100, 160])
def test_print_summary_any_build_at_any_width_keeps_every_row_of_a_table_whole(name: str, width: int) -> None:
    summary = EXAMPLES[name]
    lines = printed(summary, width).splitlines()
    tables = [table_below(lines, "Step "), table_below(lines, "Format ")]
    assert all(cell_len(line) <= width for table in tables for line in table)
    named = [[line for line in table if not line.startswith(" ")] for table in tables]
    wanted = [[step.stage for step, _ in step_rows(summary.stages)], [export.format for export in summary.exports]]
    for rows, names in zip(named, wanted, strict=True):
        assert [row[:3] for row in rows] == [name[:3] for name in names]
        assert all(row.strip()[-1] in "0123456789\N{EN DASH}BKMT" for row in rows)


def table_below(lines: list[str], head: str) -> list[str]:
    """The rows of the table whose first column is `head`: as wide as its head, or nearly."""
    first = next((number for number, line in enumerate(lines) if line.startswith(head)), None)
    rows = [] if first is None else lines[first + 1 :]
    ends = (number for number, line in enumerate(rows) if line.startswith(("✓", "✗", "Where a cell", "report")))
    return rows[: next(ends, 0)]


@pytest.mark.parametrize("name", ["usual", "huge", "empty", "planned", "broken"])
def test_print_summary_at_eighty_columns_shortens_no_figure(name: str) -> None:
    assert "…" not in printed(EXAMPLES[name], 80)


def test_print_summary_step_shows_what_went_in_above_what_came_out() -> None:
    into, out = table_below(printed(examples.usual(), 80).splitlines(), "Step ")[1:3]
    assert into.split() == ["index", "19", "17", "1,234,567", "4.30", "GiB", "38.8", "s", "119.0", "393", "MiB"]
    assert out.split() == ["1,233,364", "4.25", "GiB"]


def test_print_summary_says_how_much_was_reused_right_below_the_verdict() -> None:
    usual = examples.usual()
    reused, done = (sum(getattr(stage, name) for stage in usual.stages) for name in ("units_reused", "units_done"))
    assert printed(usual, 80).splitlines()[1] == f"reused {reused} of {done} units of work; {done - reused} ran"
    fresh = [stage.model_copy(update={"units_reused": 0}) for stage in usual.stages]
    assert "reused" not in printed(usual.model_copy(update={"stages": tuple(fresh)}), 80).partition("Step ")[0]


def test_place_below_the_current_folder_is_printed_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert from_here(str(tmp_path / "outputs" / "web")) == "outputs/web"
    for elsewhere in (str(tmp_path.parent / "outputs"), "s3://corpora/web", "outputs/web", ""):
        assert from_here(elsewhere) == elsewhere


def test_print_summary_usual_build_says_the_facts() -> None:
    text = printed(examples.usual(), 80)
    for fact in (
        "web-en  complete  plan 64879f7d6b960a01  Corpusmill 0.1.0",
        "1,229,953 of 1,234,567",
        "579 MiB  removed, 13.3 % of the text",
        "< 0.01 % padding",
        "megatron       2 3.83 GiB 1,229,953 1.02 B",
        "✓ 7.65 GiB, 64 of 64 files verified: s3://corpora/web-en",
        "✓ 11 checks passed: nothing lost or added",
        "engine: gigatoken for 1,229,912 of 1,229,953 documents, the reference library for the others;"
        " 7 documents with the string of a",
        "ids: 1,229,000 documents decoded to the exact text, 940 to its normalized form",
        "warning: 1,203 documents in quarantine, in 2 files",
    ):
        assert fact in text, fact
    assert text.endswith(f"report  {HTML}\n")


def test_print_summary_latest_that_stays_and_an_improbable_order_are_warnings() -> None:
    usual = examples.usual()
    assert usual.shuffle is not None
    assert "try another seed" not in printed(usual, 80)
    wrong = usual.shuffle.quality[0].model_copy(update={"measured": 9.0, "ideal": 0.0, "tolerance": 1.0})
    shuffle = usual.shuffle.model_copy(update={"quality": (wrong,)})
    text = printed(usual.model_copy(update={"shuffle": shuffle, "latest_stays": "the run had another seed"}), 80)
    assert "warning: improbable order (p < 0.001): try another seed" in text
    assert "warning: latest was not moved: the run had another seed" in text


def test_print_summary_failed_content_says_both_sums_shortened() -> None:
    wrong = examples.usual().content_checks[0].model_copy(update={"right": (("read again", "f" * 32),)})
    text = printed(examples.usual().model_copy(update={"checks": (wrong,)}), 80)
    assert "indexed 3dd45f29186b ≠ read again ffffffffffff" in text


def test_print_summary_many_failed_accounts_shows_the_first_and_counts_the_rest() -> None:
    (wrong,) = examples.broken().failed_checks
    text = printed(examples.broken().model_copy(update={"checks": (wrong,) * 30}), 80)
    assert text.count("3 missing") == 12
    assert "and 18 more checks failed" in text


def test_print_summary_counts_files_without_a_checksum_of_the_store() -> None:
    build = examples.usual()
    (first, *others) = build.stages
    for count, answer in ((0, "0 of them retries"), (1, "1 file or part without"), (3, "3 files or parts without")):
        stage = first.model_copy(update={"requests": 12, "wire_bytes": 9_000, "without_checksum": count})
        text = printed(build.model_copy(update={"stages": (stage, *others)}), 200)
        assert answer in text
        assert ("two reads compared" in text) is (count > 0)


def test_print_summary_failed_check_says_both_sides_and_what_is_missing() -> None:
    text = printed(examples.broken(), 80)
    assert "does not balance" in text
    assert "in 41,233 ≠ out 41,190 + rejected 40  (3 missing)" in text
    assert "checks passed" not in text


def test_print_summary_hostile_names_are_neither_markup_nor_escapes() -> None:
    text = printed(EXAMPLES["hostile"], 120, colour=True)
    assert "\x1b[31m\r" not in text
    assert "\r" not in text
    assert "[bold]<script>" in text


def test_print_summary_long_path_is_printed_in_one_line() -> None:
    where = "s3://corpora/" + "a-folder/" * 30
    place = examples.usual().destinations[0].model_copy(update={"where": where})
    assert where in printed(examples.usual().model_copy(update={"destinations": (place,)}), 80)
