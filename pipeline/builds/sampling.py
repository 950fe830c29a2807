"""The sample of an estimate: its files and lines, and what their tokens imply for the whole.

Both draws are ordered pivotal sampling (Deville and Tillé, Biometrika 1998): without replacement, every unit with
exactly the chance it was given, the number drawn within one of the sum of the chances, neighbours seldom together.

    files   source files, or the parts the plan cuts them into, taken in an order that the dataset's seed decides; the
            chance p of a file grows with its size, up to 1
    lines   of the drawn files in their order, each with chance f / p: every line of the dataset has the chance f

The total is the Horvitz-Thompson estimator, (tokens of the sample) / f, which is unbiased. Its variance is that of a
draw in two stages (Särndal, Swensson and Wretman 1992, 4.3): between files Hájek's approximation
n / (n - 1) * sum (1 - p) (z - mean)^2 over the n files with p < 1, where z = tokens / f and the mean has weights 1 - p;
within files sum (p - f) / f^2 * (difference of neighbouring documents)^2 / 2. The interval is Student's, 95 %, with
Satterthwaite's degrees of freedom. It holds for counts that add up over lines; duplicates do not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from operator import itemgetter
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from corpusmill.fingerprint import random_words
from corpusmill.sources.sampled import Sampled, SampledFile, write_sampled

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.sources.plan import SourceFile

READ_FACTOR = 4  # the drawn files hold about this many times the sample
FILES = 16  # drawn with a chance below 1: the variance between files needs several
SCALE_STEP = 1.1
CONFIDENCE = 0.95

Unit = TypeVar("Unit")

DrawnLine = tuple[int, int, bytes]
"""(index of a drawn file, 0-based line in it, the line without its newline)."""


@dataclass(frozen=True)
class DrawnFile:
    """A file, or part of a file, that is read for the sample, and the chance it had."""

    file: SourceFile
    chance: float


class PivotalDraw(Generic[Unit]):
    """Draws from a stream of units; at any time one unit waits with the chance that it has gathered from others."""

    def __init__(self, identity: dict[str, Any]) -> None:
        self._words = random_words(identity)
        self._waiting: list[Unit] = []
        self._gathered = 0.0

    def take(self, units: Sequence[Unit], chances: Iterable[float]) -> list[Unit]:
        """The units drawn by deciding on these: some of them, or the one that waited. A chance lies in (0, 1]."""
        taken: list[Unit] = []
        for unit, chance, uniform in zip(units, chances, self._uniforms(len(units)), strict=False):
            both = self._gathered + chance
            if both < 1:  # one of the two goes on with the chance of both
                if uniform * both < chance:
                    self._waiting = [unit]
                self._gathered = both
            elif uniform * (2 - both) < 1 - self._gathered:  # this one is drawn, the other goes on with the rest
                taken.append(unit)
                self._gathered = both - 1
            else:
                taken += self._waiting
                self._waiting, self._gathered = [unit], both - 1
        return taken

    def rest(self) -> list[Unit]:
        """The unit that waits at the end of the stream, if it is drawn."""
        return self._waiting if next(self._uniforms(1)) < self._gathered else []

    def _uniforms(self, count: int) -> Iterator[float]:
        words = np.asarray(self._words.random_raw(count), np.uint64) >> np.uint64(
            11
        )  # 53 bits: below 1 as a float, too
        return iter((words * 2.0**-53).tolist())


def draw_files(files: Sequence[SourceFile], sample_bytes: int, seed: int) -> tuple[list[DrawnFile], float]:
    """(the files to read, in their order; the chance f of every line). `sample_bytes` and sizes: as stored."""
    sizes = np.array([file.size_bytes for file in files], np.float64)
    share = min(1.0, sample_bytes / max(1.0, float(sizes.sum())))
    chances = file_chances(sizes, share)
    identity = {"estimate": "files", "seed": seed, "bytes": int(sizes.sum()), "files": len(files)}
    order = np.argsort(random_words({**identity, "of": "order"}).random_raw(len(files)), kind="stable")
    draw = PivotalDraw[int](identity)
    drawn = draw.take(order.tolist(), chances[order].tolist()) + draw.rest()
    return [DrawnFile(files[number], float(chances[number])) for number in sorted(drawn)], share


def file_chances(sizes: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """The chance of every file: proportional to its size, at least `share` (then all its lines are kept), at most 1.

    The smallest chances with which, on average, the files drawn hold READ_FACTOR samples and FILES of them had a chance
    below 1; all are 1 if there are none.
    """
    total = float(sizes.sum())
    read_bytes = READ_FACTOR * share * total
    scale = max(read_bytes / max(1.0, float((sizes**2).sum())), FILES / max(1.0, total))
    while True:
        chances = np.clip(scale * sizes, share, 1.0)
        partial = chances[(chances < 1) & (sizes > 0)]
        if not partial.size or (partial.sum() >= FILES and float((chances * sizes).sum()) >= read_bytes):
            return chances
        scale *= SCALE_STEP


def write_sample(
    config: DatasetConfig,
    drawn: Sequence[DrawnFile],
    share: float,
    seed: int,
    folder: Path,
    before: Mapping[str, int] | None = None,
) -> int:
    """Write the sampled lines of the drawn files to `folder`; returns their number. `before`: see `lines_before`."""
    from corpusmill.documents.lines import BYTE_ORDER_MARK, read_line_blocks
    from corpusmill.sources.copies import open_as_lines, streamed_copy

    draw = PivotalDraw[DrawnLine]({"estimate": "lines", "seed": seed, "share": share})
    names = [(file.name, file.part.of if file.part else file.name) for file in (document.file for document in drawn)]
    sample = SampleWriter(folder, [SampledFile(name, whole, (before or {}).get(name, 0)) for name, whole in names])
    for number, document in enumerate(drawn):
        copy = streamed_copy(document.file, config.source.endpoint_url)
        with open_as_lines(copy, config.source) as lines:
            mark, first = BYTE_ORDER_MARK, 0
            for block in read_line_blocks(lines):
                split = block.data.removeprefix(mark).removesuffix(b"\n").split(b"\n")
                units = [(number, line_number, line) for line_number, line in enumerate(split, first)]
                sample.write(draw.take(units, repeat(share / document.chance)))
                mark, first = b"", first + len(split)
    sample.write(draw.rest())
    return sample.finish()


class SampleWriter:
    """Writes lines to files that no plan cuts into parts; `finish` writes where they were drawn to `<folder>.json`."""

    def __init__(self, folder: Path, files: list[SampledFile]) -> None:
        folder.mkdir(parents=True)
        self._folder, self._sampled = folder, Sampled(files, {})
        self._name = ""
        self._number = self._room = 0

    def write(self, lines: Iterable[DrawnLine]) -> None:
        """Append lines; each drawn file begins another file of the sample."""
        for name, group in groupby(map(self._placed, lines), key=itemgetter(0)):
            with (self._folder / name).open("ab") as kept:
                kept.write(b"".join(line for _, line in group))

    def _placed(self, drawn: DrawnLine) -> tuple[str, bytes]:
        """(the file of the sample that gets a line, the line)."""
        from corpusmill.sources.plan import SMALLEST_PART_BYTES

        number, line_number, line = drawn
        self._room -= len(line) + 1
        if not self._name or number > self._number or self._room < 0:
            self._name = f"{len(self._sampled.lines):05d}.jsonl"
            self._sampled.lines[self._name] = []
            self._number, self._room = number, SMALLEST_PART_BYTES - len(line) - 1
        self._sampled.lines[self._name].append((number, line_number))
        return self._name, line + b"\n"

    def finish(self) -> int:
        """Write the table; returns the number of lines."""
        write_sampled(self._sampled, self._folder.with_suffix(".json"))
        return sum(map(len, self._sampled.lines.values()))


def read_sample(folder: Path, sampled: Sampled) -> Iterator[DrawnLine]:
    """The lines that a SampleWriter wrote, in its order."""
    for name, places in sampled.lines.items():
        with (folder / name).open("rb") as lines:
            for (number, line_number), line in zip(places, lines, strict=True):
                yield number, line_number, line.removesuffix(b"\n")


def lines_before(
    config: DatasetConfig, files: Iterable[SourceFile], drawn: Iterable[DrawnFile], *, tell: Callable[[str], object]
) -> dict[str, int]:
    """The lines that the file of a drawn part has before it, by the part's name; `files`: all of the plan, in order.

    Price: a pass over the parts before it, which `tell` announces; empty unless steps see lines or decisions name them.
    """
    if not config.steps and all(isinstance(decision.key, str) for decision in config.all_decisions()):
        return {}
    parts = [(document.file.name, document.file.part) for document in drawn if document.file.part]
    last = {part.of: part.number for _, part in sorted(parts, key=lambda item: item[1].number)}
    if last:
        tell("counting the lines before the drawn parts of files")
    counted: Counter[str] = Counter()
    before = {}
    for file in files:
        if file.part and file.part.number <= last.get(file.part.of, -1):
            before[file.name] = counted[file.part.of]
            if file.part.number < last[file.part.of]:
                counted[file.part.of] += _count_lines(config, file)
    return before


def _count_lines(config: DatasetConfig, file: SourceFile) -> int:
    from corpusmill.documents.lines import read_line_blocks
    from corpusmill.sources.copies import open_as_lines, streamed_copy

    with open_as_lines(streamed_copy(file, config.source.endpoint_url), config.source) as lines:
        return sum(block.lines for block in read_line_blocks(lines))


@dataclass(frozen=True)
class Total:
    """An estimated total, and its 95 % interval."""

    estimate: float
    low: float
    high: float


def total_of(tokens: Sequence[NDArray[np.int64]], chances: Sequence[float], share: float) -> Total:
    """What the sample says of the whole: `tokens[i]`, int64, of the sampled documents of a file drawn with chance i."""
    every = np.concatenate([np.empty(0, np.int64), *tokens]).astype(np.float64)
    estimate = float(every.sum()) / share
    files, between = _between_files(tokens, chances, share)
    within = _within_files(every, np.repeat(chances, [len(counts) for counts in tokens]), share)
    variance = between + within
    if not variance:
        return Total(estimate, estimate, estimate)
    freedom = variance**2 / (between**2 / max(1, files - 1) + within**2 / max(1, len(every) - 1))
    reach = student_quantile((1 + CONFIDENCE) / 2, freedom) * math.sqrt(variance)
    return Total(estimate, max(0.0, estimate - reach), estimate + reach)


def _between_files(tokens: Sequence[NDArray[np.int64]], chances: Sequence[float], share: float) -> tuple[int, float]:
    """(files that could have been left out, the variance that comes from leaving others out)."""
    partial = [
        (float(counts.sum()) / share, 1 - chance) for counts, chance in zip(tokens, chances, strict=True) if chance < 1
    ]
    if len(partial) < 2:
        return len(partial), sum(left_out * total**2 for total, left_out in partial)
    totals, weights = np.array(partial).T
    mean = float((weights * totals).sum() / weights.sum())
    files = len(partial)
    return files, files / (files - 1) * float((weights * (totals - mean) ** 2).sum())


def _within_files(tokens: NDArray[np.float64], chances: NDArray[np.float64], share: float) -> float:
    """The variance that comes from leaving lines of the drawn files out."""
    factors = (chances - share) / share**2
    if len(tokens) < 2:
        return float((factors * tokens**2).sum())
    squares = np.diff(tokens) ** 2 / 2 * (factors[1:] + factors[:-1]) / 2
    return float(squares.sum()) * len(tokens) / (len(tokens) - 1)


def student_quantile(probability: float, freedom: float) -> float:
    """Student's t: the expansion about the normal quantile (Abramowitz and Stegun 26.7.5); within 1 % from 3 on."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
