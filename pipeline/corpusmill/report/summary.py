"""The facts of one finished or partly finished build, from its receipts; stored as JSON.

Every model is frozen and refuses unknown keys. Counts are whole and not negative; sizes are bytes; times are seconds.
Nothing derivable is stored: shares, totals and verdicts are properties, so that they cannot disagree with the counts.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, NonNegativeFloat

from corpusmill.report.content import (
    BudgetSummary,
    ContaminationSummary,
    DuplicateSummary,
    FilterSummary,
    LengthSummary,
    NearDuplicateSummary,
    PackingSummary,
    ShuffleSummary,
)
from corpusmill.report.facts import Count, Facts, Flow, StageSummary, read_facts
from corpusmill.report.figures import bytes_text, count_text, counted, grouped, requests_text, seconds_text, share_text


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
    """One training format and its files, in the order a reader meets them.

    `layout` of shards of the stream, `group_rows` of texts in parquet.
    """

    format: str
    files: tuple[OutputFile, ...]
    sequence_tokens: Count | None = None
    layout: str | None = None
    group_rows: Count | None = None

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


class QuarantineExample(Facts):
    """One rejected document: its reason and its place in its source."""

    reason: str
    source_file: str
    line: Count
    excerpt: str = ""


class QuarantineFile(Facts):
    """A file of rejected documents, how many it holds, and the first few."""

    path: str
    documents: Count
    examples: tuple[QuarantineExample, ...] = ()


class BalanceCheck(Facts):
    """One identity that was checked: two sums of labelled counts, or two content sums, that must be equal."""

    name: str
    left: tuple[tuple[str, int | str], ...]
    right: tuple[tuple[str, int | str], ...]

    @property
    def ok(self) -> bool:
        """Both sides are equal."""
        return _side(self.left) == _side(self.right)

    @property
    def of_content(self) -> bool:
        """Whether content sums (hex digits) are compared, not counts."""
        return any(isinstance(value, str) for _, value in (*self.left, *self.right))

    @property
    def difference(self) -> int | None:
        """left - right of counts; None when content is compared."""
        left, right = _side(self.left), _side(self.right)
        return left - right if isinstance(left, int) and isinstance(right, int) else None


def _side(terms: tuple[tuple[str, int | str], ...]) -> int | tuple[str, ...]:
    values = [value for _, value in terms]
    counts = [value for value in values if isinstance(value, int)]
    return sum(counts) if len(counts) == len(values) else tuple(str(value) for value in values)


class BuildSummary(Facts):
    """Everything the report says. `plan` is the plan's fingerprint; `configuration` is YAML, without secrets.

    `latest_stays` states why `latest` does not point to this version; "" if it does. `other_files` states which files
    beside the sources were skipped, if any. `titles` say what happens in each step. Content checks are in order of the
    chain from source to files.
    """

    dataset: str
    plan: str
    code_version: str
    configuration: str
    source_files: Count
    other_files: str = ""
    source_bytes: Count
    stages: tuple[StageSummary, ...] = ()
    titles: dict[str, str] = Field(default_factory=dict)
    filtered: FilterSummary | None = None
    contamination: ContaminationSummary | None = None
    near_duplicates: NearDuplicateSummary | None = None
    duplicates: DuplicateSummary | None = None
    lengths: LengthSummary | None = None
    packing: PackingSummary | None = None
    budget: BudgetSummary | None = None
    shuffle: ShuffleSummary | None = None
    exports: tuple[ExportSummary, ...] = ()
    destinations: tuple[DestinationSummary, ...] = ()
    quarantine: tuple[QuarantineFile, ...] = ()
    checks: tuple[BalanceCheck, ...] = ()
    vocabulary: VocabularySummary | None = None
    decoded: DecodedSummary | None = None
    encoded: EncodedSummary | None = None
    estimate: tuple[EstimatedFigure, ...] = ()
    latest_stays: str = ""

    @property
    def failed_checks(self) -> tuple[BalanceCheck, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    @property
    def content_checks(self) -> tuple[BalanceCheck, ...]:
        """The accounts of content, in order of the chain."""
        return tuple(check for check in self.checks if check.of_content)

    @property
    def verdict(self) -> Literal["does not balance", "in progress", "complete"]:
        """The worst state that applies to the build."""
        if self.failed_checks:
            return "does not balance"
        finished = bool(self.stages) and all(stage.is_finished for stage in self.stages)
        return "complete" if finished else "in progress"

    def first_into(self, quantity: Literal["documents", "text_bytes", "tokens"]) -> int | None:
        """What entered the first stage on the trunk that counts `quantity`; None if none does."""
        flows = self._flows(quantity)
        return flows[0].into if flows else None

    def last_out(self, quantity: Literal["documents", "text_bytes", "tokens"]) -> int | None:
        """What left the last stage on the trunk that counts `quantity`; None if none does."""
        flows = self._flows(quantity)
        return flows[-1].out if flows else None

    def _flows(self, quantity: Literal["documents", "text_bytes", "tokens"]) -> list[Flow]:
        flows: list[Flow | None] = [getattr(stage, quantity) for stage in self.stages if stage.on_trunk]
        return [flow for flow in flows if flow is not None]


def from_json(text: str | bytes) -> BuildSummary:
    """Read what `to_json` wrote; CorruptDataError if it is something else."""
    return read_facts(BuildSummary, text, "a build summary")


class Total(NamedTuple):
    """A figure as people read it, the exact figure, and one more fact."""

    name: str
    figure: str
    exact: str
    more: str


def totals(summary: BuildSummary) -> list[Total]:
    """The totals that `summary` knows, from the sources to the outputs; then the work."""
    more = "; ".join(filter(None, (f"{bytes_text(summary.source_bytes)} as delivered", summary.other_files)))
    known = [Total("Source files", grouped(summary.source_files), f"{summary.source_bytes:,} bytes", more)]
    documents_in, documents = summary.first_into("documents"), summary.last_out("documents")
    if documents is not None and documents_in is not None:
        more = f"{grouped(documents)} of {grouped(documents_in)}"
        known.append(Total("Documents", count_text(documents), grouped(documents), more))
    text_in, text = summary.first_into("text_bytes"), summary.last_out("text_bytes")
    if text is not None and text_in is not None:
        more = f"{share_text(text, text_in)} of {bytes_text(text_in)}"
        known.append(Total("Text kept", bytes_text(text), f"{text:,} bytes", more))
    tokens = summary.first_into("tokens")
    if tokens is not None:
        padding = f"{share_text(summary.packing.pad_tokens, summary.packing.slots)} padding" if summary.packing else ""
        known.append(Total("Tokens", count_text(tokens), grouped(tokens), padding or "without special tokens"))
    if summary.exports:
        size_bytes = sum(export.size_bytes for export in summary.exports)
        files = sum(len(export.files) for export in summary.exports)
        more = f"{counted(files, 'file')}, {counted(len(summary.exports), 'format')}"
        known.append(Total("Outputs", bytes_text(size_bytes), f"{size_bytes:,} bytes", more))
    if summary.stages:
        seconds = sum(stage.seconds for stage in summary.stages)
        peak = max(stage.peak_rss_bytes for stage in summary.stages)
        known.append(Total("Work", seconds_text(seconds), f"{seconds:,.3f} s", f"at most {bytes_text(peak)} memory"))
    moved = sum(stage.wire_bytes for stage in summary.stages)
    if moved:
        requests = sum(stage.requests for stage in summary.stages)
        retries = sum(stage.retries for stage in summary.stages)
        more = requests_text(requests, retries, sum(stage.without_checksum for stage in summary.stages))
        known.append(Total("Over the wire", bytes_text(moved), f"{moved:,} bytes", more))
    return known
