"""Bars that move while a build runs; plain lines, one per change, where the output is not a terminal.

The caller gives a function that says how far each stage is. One thread calls it every REFRESH_SECONDS (LINES_SECONDS
where lines are printed), and once more after the view was told to stop, so that the last state is what stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from corpusmill.report.figures import bytes_text, grouped, rate_text, seconds_text
from corpusmill.report.terminal import plain

REFRESH_SECONDS = 0.5
LINES_SECONDS = 2.0  # where each change is one more line of a log


@dataclass(frozen=True)
class StageProgress:
    """The progress of one stage.

    `units_total` is None while it is unknown. `units_reused` of the `units_done` took no time. `bytes_done` are the
    bytes that this run's steps worked on, and `seconds` the time since the first of them began.
    """

    stage: str
    units_done: int
    units_total: int | None
    bytes_done: int
    seconds: float
    units_reused: int = 0

    @property
    def is_finished(self) -> bool:
        """Every unit is done."""
        return self.units_done == self.units_total

    @property
    def bytes_per_second(self) -> float | None:
        """Of all workers together; None before the first byte."""
        return self.bytes_done / self.seconds if self.bytes_done and self.seconds else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the units that ran; None before the first of them."""
        worked = self.units_done - self.units_reused
        if self.units_total is None or worked <= 0:
            return None
        return self.seconds / worked * (self.units_total - self.units_done)


@contextmanager
def progress_view(read: Callable[[], Sequence[StageProgress]], console: Console | None = None) -> Iterator[None]:
    """Show progress during the `with`.

    An error in `read` ends the view, not the body; it is raised after the body, unless the body raises its own.
    """
    stop = Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        console = console or Console(stderr=True)
        seconds = REFRESH_SECONDS if console.is_terminal else LINES_SECONDS
        try:  # an interrupt may come while the thread starts
            watching = pool.submit(watch, read, stop, console, refresh_seconds=seconds)
            yield
        finally:
            stop.set()
        watching.result()


def watch(
    read: Callable[[], Sequence[StageProgress]],
    stop: Event,
    console: Console,
    *,
    refresh_seconds: float = REFRESH_SECONDS,
) -> None:
    """Show what `read` returns until `stop` is set, then once more."""
    if not console.is_terminal:
        shown: dict[str, str] = {}
        for stages in _readings(read, stop, refresh_seconds):
            for line in changed_lines(shown, stages):
                console.print(Text(line), soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        for stages in _readings(read, stop, refresh_seconds):
            live.update(progress_table(stages), refresh=True)


def progress_table(stages: Sequence[StageProgress]) -> Table:
    """One row per stage: name, bar, units, bytes, speed of all workers, time left (or taken, when finished)."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=1, min_width=8)
    for _ in range(4):
        table.add_column(justify="right", no_wrap=True)
    for stage in stages:
        name = Text(plain(stage.stage), style="green" if stage.is_finished else "bold" if stage.units_done else "dim")
        table.add_row(name, _bar(stage), *_facts(stage))
    return table


def changed_lines(shown: dict[str, str], stages: Sequence[StageProgress]) -> list[str]:
    """A line for every stage whose units differ from those in `shown`, which is updated."""
    lines = []
    for stage in stages:
        units = _units(stage)
        if stage.units_done and shown.get(stage.stage) != units:
            shown[stage.stage] = units
            lines.append(f"{plain(stage.stage)}: " + ", ".join(filter(None, _facts(stage))))
    return lines


def _readings(
    read: Callable[[], Sequence[StageProgress]], stop: Event, refresh_seconds: float
) -> Iterator[Sequence[StageProgress]]:
    while True:
        last = stop.is_set()
        yield read()
        if last:
            return
        stop.wait(refresh_seconds)


def _bar(stage: StageProgress) -> RenderableType:
    if stage.units_total is None:
        return Text("total not known yet", style="dim", no_wrap=True, overflow="ellipsis")
    # A stage without units is finished: 1 of 1.
    total = max(1, stage.units_total)
    completed = total if stage.is_finished else stage.units_done
    return ProgressBar(total=total, completed=completed, complete_style="cyan", finished_style="green")


def _facts(stage: StageProgress) -> tuple[str, str, str, str]:
    """Units, bytes, speed and time; "" where nothing is known."""
    done = bytes_text(stage.bytes_done) if stage.bytes_done else ""
    speed = f"{rate_text(stage.bytes_per_second)} MB/s" if stage.bytes_per_second else ""
    return _units(stage), done, speed, _time(stage)


def _units(stage: StageProgress) -> str:
    units = grouped(stage.units_done) if stage.units_total is None else f"{stage.units_done:,}/{stage.units_total:,}"
    return f"{units} ({stage.units_reused:,} reused)" if stage.units_reused else units


def _time(stage: StageProgress) -> str:
    if stage.is_finished:
        return f"in {seconds_text(stage.seconds)}" if stage.seconds else ""
    left = stage.seconds_left
    return "" if left is None else f"{seconds_text(left)} left"
