"""Bars that move while a build runs; where the output is not a terminal, a plain line for each step that has ended.

The caller gives a function that says how far each step is. One thread calls it every REFRESH_SECONDS (LINES_SECONDS
where lines are printed), and once more after the view was told to stop, so that the last state is what stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from corpusmill.report.figures import bytes_text, rate_text, seconds_text
from corpusmill.report.terminal import plain

REFRESH_SECONDS = 0.5
LINES_SECONDS = 2.0  # where lines are printed
SAYS_EVERY = 60.0  # seconds between two lines about a step that still runs
BAR, HALF_BAR, GAP = "━", "╸", "  "
LEAST_SHARE = 0.01  # of a step, before its time is estimated from it


@dataclass(frozen=True)
class StageProgress:
    """The progress of one step, or of one of its `stages`.

    `units_total` is None while it is unknown. `units_reused` of the `units_done` took no time. `bytes_done` are the
    bytes that this run's units have read, and `seconds` the time since the first of them began. `share`: of all the
    work, with that of units that run; by default that of the units that are done, as is `share_reused`. `about`: what
    there is to say instead of the time left.
    """

    stage: str
    units_done: int
    units_total: int | None
    bytes_done: int
    seconds: float
    units_reused: int = 0
    share: float | None = None
    share_reused: float | None = None
    about: str = ""
    stages: tuple[StageProgress, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Every unit is done."""
        return self.units_done == self.units_total

    @property
    def is_reused(self) -> bool:
        """Every unit was reused."""
        return self.is_finished and 0 < self.units_done == self.units_reused

    @property
    def share_done(self) -> float | None:
        """0 to 1; None while nothing is known."""
        return 1.0 if self.is_finished else self._of_units(self.share, self.units_done)

    @property
    def bytes_per_second(self) -> float | None:
        """Of all workers together; None before the first byte."""
        return self.bytes_done / self.seconds if self.bytes_done and self.seconds else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the share that took time; None before there is enough of it."""
        done, reused = self.share_done, self._of_units(self.share_reused, self.units_reused)
        if done is None or reused is None or done - reused < LEAST_SHARE:
            return None
        return self.seconds / (done - reused) * (1 - done)

    def _of_units(self, known: float | None, units: int) -> float | None:
        return known if known is not None or not self.units_total else units / self.units_total


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
        for steps in _readings(read, stop, refresh_seconds):
            for line in new_lines(shown, steps):
                console.print(Text(line), soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        for steps in _readings(read, stop, refresh_seconds):
            live.update(ProgressRows(steps), refresh=True)


class ProgressRows:
    """One row per step: name, bar, share, bytes, speed of all workers, time left (or taken, when finished).

    Segments are made here, since a table of rich takes six times as long: 1 % of a core at two looks a second.
    """

    def __init__(self, steps: Sequence[StageProgress]) -> None:
        self._steps = steps

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        names = [plain(step.stage) for step in self._steps]
        facts = [("", "", "", "") if _shows_about(step) else _facts(step) for step in self._steps]
        widths = [max(map(len, column), default=0) for column in zip(*facts, strict=True)]
        name_width = max(map(cell_len, names), default=0)
        about_width = max((len(step.about) for step in self._steps if _shows_about(step)), default=0)
        facts_width = max(sum(widths) + len(GAP) * (len(widths) - 1), about_width)
        bar_width = max(0, options.max_width - name_width - facts_width - 2 * len(GAP))
        for step, name, of_step in zip(self._steps, names, facts, strict=True):
            fact = GAP.join(cell.rjust(width) for cell, width in zip(of_step, widths, strict=True))
            style = "green" if step.is_finished else "bold" if step.share_done else "dim"
            yield from Segment.adjust_line_length(
                [
                    Segment(set_cell_size(name, name_width) + GAP, console.get_style(style)),
                    *_bar(step, bar_width, console),
                    Segment(GAP + (step.about if _shows_about(step) else fact).rjust(facts_width)),
                ],
                options.max_width,
            )
            yield Segment.line()


def _shows_about(step: StageProgress) -> bool:
    """Whether there is something to say of a step that has ended, instead of its figures."""
    return step.is_finished and bool(step.about)


def _bar(step: StageProgress, width: int, console: Console) -> Iterator[Segment]:
    halves = math.floor(2 * width * (step.share_done or 0))
    done = console.get_style("green" if step.is_finished else "cyan")
    yield Segment(BAR * (halves // 2) + HALF_BAR * (halves % 2), done)
    # Without colours nothing would tell it from what is done.
    rest = " " if console.no_color or console.color_system is None else BAR
    yield Segment(rest * (width - (halves + 1) // 2), console.get_style("bar.back"))


def new_lines(shown: dict[str, str], steps: Sequence[StageProgress]) -> list[str]:
    """A line for every step that has ended since `shown`, which is updated, and for one that runs every minute."""
    lines = []
    for step in steps:
        minutes = "" if step.is_finished else f"{step.seconds // SAYS_EVERY:.0f}"
        if shown.get(step.stage, "0") != minutes:
            shown[step.stage] = minutes
            lines.append(f"{plain(step.stage)}: " + (", ".join(filter(None, _facts(step))) or "done"))
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


def _facts(step: StageProgress) -> tuple[str, str, str, str]:
    """Share, bytes, speed and time; "" where nothing is known."""
    done = bytes_text(step.bytes_done) if step.bytes_done else ""
    speed = f"{rate_text(step.bytes_per_second)} MB/s" if step.bytes_per_second else ""
    return _share(step), done, speed, _time(step)


def _share(step: StageProgress) -> str:
    if step.is_reused:
        return "reused"
    share = f"{math.floor(100 * step.share_done)} %" if step.share_done and not step.is_finished else ""
    reused = f"{step.units_reused:,} of {step.units_total:,} reused" if step.units_reused and step.units_total else ""
    return ", ".join(filter(None, (share, reused)))


def _time(step: StageProgress) -> str:
    if step.is_finished:
        return step.about or (f"in {seconds_text(step.seconds)}" if step.seconds else "")
    left = step.seconds_left
    return step.about or ("" if left is None else f"{seconds_text(left)} left")
