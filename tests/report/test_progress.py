"""The live view: right arithmetic, one line per change without a terminal, errors come out."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from rich.cells import cell_len
from rich.console import Console

from corpusmill.report.progress import StageProgress, changed_lines, progress_table, progress_view, watch

HALF = StageProgress("index", 7, 19, 4_000_000_000, 20.0, units_reused=2)
DONE = StageProgress("index", 19, 19, 9_000_000_000, 45.0, units_reused=2)


def script(stop: Event, *states: list[StageProgress]) -> Callable[[], list[StageProgress]]:
    """Give one state per call; tell the view to stop with the last."""
    waiting = list(states)

    def read() -> list[StageProgress]:
        state = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if len(waiting) == 1:
            stop.set()
        return state

    return read


def watched(console: Console, *states: list[StageProgress]) -> str:
    stop = Event()
    watch(script(stop, *states), stop, console, refresh_seconds=0)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_stage_progress_time_left_counts_only_units_that_took_time() -> None:
    assert HALF.seconds_left == pytest.approx(20.0 / 5 * 12)
    assert HALF.bytes_per_second == pytest.approx(2e8)
    assert DONE.seconds_left == 0


@pytest.mark.parametrize(
    "item",
    [
        StageProgress("index", 0, 5, 0, 3.0),
        StageProgress("index", 3, None, 10, 3.0),
        StageProgress("index", 3, 5, 0, 0.0, units_reused=3),
    ],
)
def test_stage_progress_without_a_pace_has_no_time_left(item: StageProgress) -> None:
    assert item.seconds_left is None


def test_watch_plain_console_prints_one_line_per_change() -> None:
    console = Console(file=io.StringIO(), width=40)
    text = watched(console, [StageProgress("index", 0, 19, 0, 0.1)], [HALF], [HALF], [DONE], [DONE])
    assert text.splitlines() == [
        "index: 7/19 (2 reused), 3.73 GiB, 200.0 MB/s, 48.0 s left",
        "index: 19/19 (2 reused), 8.38 GiB, 200.0 MB/s, in 45.0 s",
    ]


def test_watch_plain_console_name_with_markup_and_escapes_stays_text() -> None:
    console = Console(file=io.StringIO(), width=40)
    text = watched(console, [StageProgress("[red]x\x1b[31m", 1, None, 0, 0.0)])
    assert text == "[red]x\N{REPLACEMENT CHARACTER}[31m: 1\n"


def test_watch_terminal_shows_the_last_state() -> None:
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system=None)
    text = watched(console, [HALF], [DONE])
    assert "19/19 (2 reused)" in text
    assert text.rindex("19/19") > text.rindex("7/19")


def test_watch_told_to_stop_before_it_starts_reads_once() -> None:
    stop = Event()
    stop.set()
    console = Console(file=io.StringIO())
    watch(lambda: [DONE], stop, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith("index: 19/19")


def test_progress_view_shows_state_at_the_end_of_the_body() -> None:
    console = Console(file=io.StringIO(), width=90)
    state = [HALF]
    with progress_view(lambda: state, console):
        state[0] = DONE
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[-1].startswith("index: 19/19")


def test_progress_view_error_of_the_reader_comes_out_after_the_body() -> None:
    def read() -> list[StageProgress]:
        raise OSError("receipts are gone")

    finished = []
    with pytest.raises(OSError, match="receipts are gone"), progress_view(read, Console(file=io.StringIO())):
        finished.append(True)
    assert finished


def test_progress_view_interrupted_while_its_thread_starts_ends(monkeypatch) -> None:
    submit = ThreadPoolExecutor.submit

    def interrupted(*arguments: object, **named: object) -> None:
        submit(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt), progress_view(lambda: []):
        pass


def test_progress_view_error_of_the_body_is_not_hidden() -> None:
    with pytest.raises(KeyError), progress_view(lambda: [HALF], Console(file=io.StringIO())):
        raise KeyError("body")


@pytest.mark.parametrize("width", [80, 100])
def test_progress_table_rows_fit_the_width(width: int) -> None:
    stages = [
        DONE,
        StageProgress("find_ranges", 900, 1000, 10**15, 40_000.0),
        StageProgress("tokenize", 0, 1000, 0, 0.0),
        StageProgress("plan", 0, 0, 0, 0.0),
        StageProgress("upload", 12, None, 10**9, 4.0),
    ]
    console = Console(file=io.StringIO(), width=width)
    console.print(progress_table(stages))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["index", "find_ranges", "tokenize", "plan", "upload"]
    assert all(cell_len(line) <= width for line in lines)
    assert "900/1,000" in lines[1]
    assert "1 h 14 m left" in lines[1]


def test_changed_lines_stage_without_a_finished_unit_says_nothing() -> None:
    shown: dict[str, str] = {}
    assert changed_lines(shown, [StageProgress("index", 0, 19, 10, 1.0)]) == []
    assert shown == {}
