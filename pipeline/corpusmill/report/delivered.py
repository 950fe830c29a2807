"""What was delivered: output files by training format, destinations, the vocabulary, and the estimate."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat

from corpusmill.report.facts import Count, Facts


class OutputFile(Facts):
    """One file of an export. `records` and `tokens` are None for files that hold none (an index, a manifest).

    `windows` and `dropped_tokens`: of a file that is read in windows of its export's `sequence_tokens` + 1.
    """

    path: str
    size_bytes: Count
    records: Count | None = None
    tokens: Count | None = None
    sha256: str | None = None
    windows: Count | None = None
    dropped_tokens: Count | None = None


class ExportSummary(Facts):
    """One training format and its files, in the order a reader meets them."""

    format: str
    files: tuple[OutputFile, ...]
    sequence_tokens: Count | None = None

    @property
    def size_bytes(self) -> int:
        """Sum over the files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def records(self) -> int:
        """Sum over the files that hold records."""
        return sum(file.records or 0 for file in self.files)

    @property
    def tokens(self) -> int:
        """Sum over the files that hold tokens."""
        return sum(file.tokens or 0 for file in self.files)

    @property
    def windows(self) -> int:
        """Sum over the files that are read in windows."""
        return sum(file.windows or 0 for file in self.files)

    @property
    def dropped_tokens(self) -> int:
        """Tokens behind the last whole window of each file, which its reader never shows."""
        return sum(file.dropped_tokens or 0 for file in self.files)


class DestinationSummary(Facts):
    """A place that received the dataset; verified files were read or checksummed there after they were written."""

    where: str
    files: Count
    verified_files: Count
    size_bytes: Count

    @property
    def is_verified(self) -> bool:
        """Every file was verified."""
        return self.files == self.verified_files


class VocabularySummary(Facts):
    """What a trainer must know of the tokenizer: its name, number of ids, the id that ends a document, bytes per id."""

    name: str
    ids: Count
    eot_id: Count | None
    token_bytes: Count


class DecodedSummary(Facts):
    """Documents whose ids decode to their text: exactly, or as the tokenizer normalizes it; and all others."""

    exactly: Count
    normalized: Count
    unproven: Count


class EncodedSummary(Facts):
    """Which engines made the ids, why a slower one was used, and how many documents the reference encoded.

    `by_reference`: documents that the reference library encoded; `special`: documents with a special token's string.
    """

    engines: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    documents: Count
    by_reference: Count
    special: Count
    special_is_text: bool = True


class EstimatedFigure(Facts):
    """One figure as estimated before the build, and its actual value.

    `low` to `high` is a 95 % interval, where there is one. A `lower_bound` may be exceeded: a sample repeats itself
    less than the whole. Shares are of 1, times are seconds.
    """

    name: str
    unit: Literal["tokens", "bytes", "share", "seconds"]
    estimated: NonNegativeFloat
    actual: NonNegativeFloat
    low: NonNegativeFloat | None = None
    high: NonNegativeFloat | None = None
    lower_bound: bool = False

    @property
    def is_inside(self) -> bool | None:
        """Whether the actual value is in the interval, or above the bound; None without either."""
        if self.lower_bound:
            return self.actual >= self.estimated
        if self.low is None or self.high is None:
            return None
        return self.low <= self.actual <= self.high
