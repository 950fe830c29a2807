"""The sample of an estimate: lines drawn at random, and what it says of the whole.

    files   source files, or the parts the plan cuts them into, drawn systematically in an order that the dataset's seed
            decides; the chance p of a file grows with its size, up to 1
    lines   every line of the drawn files on its own, with chance f / p: every line of the dataset has the chance f

Both draws are without replacement. Reading the beginning of each file instead would bias the sample, as it biased
BigScience's one-gigabyte samples.

A total is that of the sample, times the bytes of all lines per byte of a drawn line (the ratio estimator: lines differ
in length far more than in tokens per byte). Its variance is that of a draw in two stages (Särndal, Swensson and Wretman
1992, 4.3 and 5.6), of residuals e = tokens - ratio * bytes: within files sum (p - f) / f^2 * e^2; between files Hájek's
approximation n / (n - 1) * sum (1 - p) (z - mean)^2 over the n files with p < 1, where z is a file's estimated total
divided by p and the mean has weights 1 - p. It holds for counts that add up over lines; duplicates do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corpusmill.documents.lines import BYTE_ORDER_MARK, read_line_blocks
from corpusmill.fingerprint import random_words
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.sources import copies


if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.plan import SourceFile

READ_FACTOR = 4  # the drawn files hold about this many times the sample
FILES = 16  # drawn with a chance below 1: the variance between files needs several
DEVIATIONS = 2.2  # on either side: 95 % of Student's t with ten degrees of freedom


@dataclass
class DrawnFile:
    """A file, or part of one, that is read for the sample, and the chance it had. Once it is read: the bytes of all its
    lines, and of those that were drawn the 0-based numbers in it, int64, and the bytes, int64, without newlines.
    """

    file: SourceFile
    chance: float
    line_bytes: int
    numbers: NDArray[np.int64]
    bytes: NDArray[np.int64]


def draw_files(files: Sequence[SourceFile], sample_bytes: int, seed: int) -> tuple[list[DrawnFile], float]:
    """(the files to read, in their order; the chance f of every line). `sample_bytes` and sizes: as stored."""
    sizes = np.array([file.size_bytes for file in files], np.float64)
    total = max(1.0, float(sizes.sum()))
    share = min(1.0, sample_bytes / total)
    wanted = max(FILES, READ_FACTOR * share * total**2 / max(1.0, float((sizes**2).sum())))
    chances = np.clip(wanted * sizes / total, share, 1.0)
    words = random_words({"estimate": "files", "seed": seed, "bytes": int(total), "files": len(files)})
    order = np.argsort(words.random_raw(len(files)), kind="stable")
    marks = np.floor(np.cumsum([uniforms(words, 1)[0], *chances[order]]))
    nothing = np.empty(0, np.int64)
    return [
        DrawnFile(files[number], float(chances[number]), 0, nothing, nothing)
        for number in sorted(order[np.diff(marks) > 0].tolist())
    ], share


def uniforms(words: np.random.Philox, count: int) -> NDArray[np.float64]:
    """float64 (count,) in [0, 1), of 53 bits each."""
    raw: NDArray[np.uint64] = np.asarray(words.random_raw(count), np.uint64)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def write_sample(
    config: DatasetConfig, drawn: Sequence[DrawnFile], share: float, seed: int, folder: Path, fields: Sequence[str] = ()
) -> None:
    """Read the drawn files, and write the drawn lines of each to `folder`/00000.jsonl, 00001.jsonl ...

    `fields`: those that the build asks for (see Plan).
    """
    folder.mkdir(parents=True)
    words = random_words({"estimate": "lines", "seed": seed, "share": share})
    for number, document in enumerate(drawn):
        copy = copies.streamed_copy(document.file, config.source.endpoint)
        numbers, sizes, first = [document.numbers], [document.bytes], 0
        reading = copies.open_as_lines(copy, config.source, fields)
        with reading as lines, (folder / f"{number:05d}.jsonl").open("wb") as kept:
            for block in read_line_blocks(lines):
                data = block.data if first else block.data.removeprefix(BYTE_ORDER_MARK)
                split = data.removesuffix(b"\n").split(b"\n")
                chosen = np.flatnonzero(uniforms(words, len(split)) < share / document.chance)
                kept.writelines(split[line] + b"\n" for line in chosen)
                document.line_bytes += sum(map(len, split))
                numbers.append(first + chosen)
                sizes.append(np.array([len(split[line]) for line in chosen], np.int64))
                first += len(split)
        document.numbers, document.bytes = np.concatenate(numbers), np.concatenate(sizes)


@dataclass(frozen=True)
class Total:
    """An estimated total, its 95 % interval, and how many times the sample's it is."""

    estimate: float
    low: float
    high: float
    scale: float


def total_of(tokens: Sequence[NDArray[np.int64]], drawn: Sequence[DrawnFile], share: float) -> Total:
    """What the sample says of the whole: `tokens[i]`, int64, of every line that was drawn from `drawn[i]`."""
    sampled_bytes = max(1, sum(int(document.bytes.sum()) for document in drawn))
    scale = sum(document.line_bytes / document.chance for document in drawn) / sampled_bytes
    sampled = sum(int(counts.sum()) for counts in tokens)
    ratio = sampled / sampled_bytes
    within, totals, left_out = 0.0, [], []
    for counts, document in zip(tokens, drawn, strict=True):
        residuals = counts - ratio * document.bytes
        within += (document.chance - share) / share**2 * float((residuals**2).sum())
        if document.chance < 1:
            estimated = ratio * document.line_bytes + float(residuals.sum()) * document.chance / share
            totals.append(estimated / document.chance)
            left_out.append(1 - document.chance)
    reach = DEVIATIONS * math.sqrt(within + _between(np.array(totals), np.array(left_out)))
    estimate = scale * sampled
    return Total(estimate, max(0.0, estimate - reach), estimate + reach, scale)


def _between(totals: NDArray[np.float64], left_out: NDArray[np.float64]) -> float:
    """The variance that comes from files that were not drawn; see the beginning."""
    if len(totals) < 2:
        return float((left_out * totals**2).sum())
    mean = np.average(totals, weights=left_out)
    return len(totals) / (len(totals) - 1) * float((left_out * (totals - mean) ** 2).sum())
