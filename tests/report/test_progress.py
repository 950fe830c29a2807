"""The live view: right arithmetic, one line per change without a terminal, errors come out."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from corpusmill.report.progress import ProgressRows, StageProgress, new_lines, progress_view, watch

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


def test_watch_plain_console_prints_one_line_for_a_step_that_ends() -> None:
    console = Console(file=io.StringIO(), width=40)
    text = watched(console, [StageProgress("index", 0, 19, 0, 0.1)], [HALF], [HALF], [DONE], [DONE])
    assert text.splitlines() == ["index: 2 of 19 reused, 8.38 GiB, 200.0 MB/s, in 45.0 s"]


def test_watch_plain_console_speaks_of_a_long_step_once_a_minute() -> None:
    console = Console(file=io.StringIO(), width=40)
    states = [[StageProgress("index", 1, 4, 0, seconds, share=seconds / 300)] for seconds in range(0, 150, 10)]
    assert watched(console, *states).splitlines() == ["index: 20 %, 4 m 00 s left", "index: 40 %, 3 m 00 s left"]


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (StageProgress("plan", 1, 1, 0, 0.0, about="4 shards, 30.4 MiB"), "plan: 4 shards, 30.4 MiB"),
        (StageProgress("index", 8, 8, 0, 0.0, units_reused=8), "index: reused"),
        (StageProgress("report", 1, 1, 0, 0.0), "report: done"),
        (StageProgress("[red]x\x1b[31m", 1, 1, 0, 0.0), "[red]x\N{REPLACEMENT CHARACTER}[31m: done"),
        (StageProgress("index", 1, 4, 0, 61.0, share=0.3, about="compiling (once)"), "index: 30 %, compiling (once)"),
    ],
)
def test_new_lines_of_one_step_are_plain(step: StageProgress, line: str) -> None:
    assert new_lines({}, [step]) == [line]


def test_watch_terminal_shows_the_last_state() -> None:
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system=None)
    text = watched(console, [HALF], [DONE])
    assert "2 of 19 reused" in text
    assert text.rindex("in 45.0 s") > text.rindex("36 %")


def test_watch_told_to_stop_before_it_starts_reads_once() -> None:
    stop = Event()
    stop.set()
    console = Console(file=io.StringIO())
    watch(lambda: [DONE], stop, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith("index: 2 of 19 reused")


def test_progress_view_shows_state_at_the_end_of_the_body() -> None:
    console = Console(file=io.StringIO(), width=90)
    state = [HALF]
    with progress_view(lambda: state, console):
        state[0] = DONE
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[-1].startswith("index: 2 of 19 reused")


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
def test_progress_rows_fit_the_width(width: int) -> None:
    stages = [
        DONE,
        StageProgress("find_ranges", 900, 1000, 10**15, 40_000.0),
        StageProgress("tokenize", 0, 1000, 0, 0.0),
        StageProgress("plan", 0, 0, 0, 0.0),
        StageProgress("upload", 12, None, 10**9, 4.0),
    ]
    console = Console(file=io.StringIO(), width=width)
    console.print(ProgressRows(stages))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["index", "find_ranges", "tokenize", "plan", "upload"]
    assert all(cell_len(line) <= width for line in lines)
    assert "90 %" in lines[1]
    assert "1 h 14 m left" in lines[1]


@given(
    st.lists(
        st.builds(
            StageProgress,
            st.sampled_from(["index", "find_ranges", "[bold]中文\x1b[31m"]),
            st.integers(0, 1000),
            st.none() | st.integers(0, 1000),
            st.integers(0, 10**15),
            st.floats(0, 1e6),
            share=st.none() | st.floats(0, 1),
            about=st.sampled_from(["", "compiling (once)", "4 shards, 30.4 MiB"]),
        )
    ),
    st.integers(1, 120),
    st.booleans(),
)
def test_progress_rows_take_a_line_each_at_any_width(steps: list[StageProgress], width: int, coloured: bool) -> None:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=coloured, color_system="truecolor" if coloured else None
    )
    lines = console.render_lines(ProgressRows(steps), console.options)
    assert len(lines) == len(steps)
    assert all(sum(segment.cell_length for segment in line) == width for line in lines)
    for step, line in zip(steps, lines, strict=True):
        done = sum(segment.text.count("━") for segment in line if segment.style == console.get_style("cyan"))
        assert done <= width * (step.share_done or 0)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.floats(0, 1e6))
def test_step_of_units_has_a_share_between_those_reused_and_all(done: int, reused: int, left: int, took: float) -> None:
    step = StageProgress("index", done + reused, done + reused + left, 1, took, units_reused=reused)
    assert step.share_done is not None
    assert 0 <= step.share_done <= 1
    assert (step.share_done == 1) == (left == 0)
    assert step.seconds_left is None or step.seconds_left >= 0
    assert left or not step.seconds_left
