"""The facts of one finished or partly finished build, as receipts state them. JSON is their form on disk.

Every model is frozen and refuses unknown keys. Counts are whole and not negative; sizes are bytes; times are seconds.
Nothing derivable is stored: shares, totals and verdicts are properties, so that they cannot disagree with the counts.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import CorruptDataError

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Facts(BaseModel):
    """Base of every model here."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Flow(Facts):
    """One quantity through one stage: into + gained = out + lost, or something is missing.

    Where a quantity first appears (documents in index, tokens in tokenize), `into` is what was made there.
    """

    into: Count
    out: Count
    lost: dict[str, Count] = {}
    gained: dict[str, Count] = {}

    @property
    def lost_total(self) -> int:
        """All that left, whatever the reason."""
        return sum(self.lost.values())

    @property
    def gained_total(self) -> int:
        """All that was added, whatever the reason."""
        return sum(self.gained.values())


class StageSummary(Facts):
    """One stage, summed over its units.

    `documents.lost` are rejected documents by reason; `text_bytes.lost` are removed bytes by reason ("duplicates").
    `units_reused` of the `units_done` were found finished. `seconds` and `timed_bytes` (bytes that these seconds were
    spent on) are sums over the steps' receipts, whenever they ran; `wall_seconds` runs from first start to last end.
    `on_trunk` is False for a stage beside the main line, such as writeback. `requests` to stores, of which `retries`
    were made again, moved `wire_bytes` both ways.
    """

    stage: str
    unit: str
    units_total: Count
    units_done: Count
    units_reused: Count
    documents: Flow | None = None
    text_bytes: Flow | None = None
    tokens: Flow | None = None
    seconds: Seconds
    wall_seconds: Seconds | None = None
    timed_bytes: Count
    peak_rss_bytes: Count
    on_trunk: bool = True
    requests: Count = 0
    retries: Count = 0
    wire_bytes: Count = 0

    @property
    def is_finished(self) -> bool:
        """Every unit is done."""
        return self.units_done == self.units_total

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes per second of one worker; None when nothing was timed."""
        return self.timed_bytes / self.seconds if self.seconds and self.timed_bytes else None


class PowerBin(Facts):
    """Values v with 2**power <= v < 2**(power + 1); power -1 holds the zeros. `total` is the sum of the values."""

    power: Annotated[int, Field(ge=-1, le=63)]
    count: Count
    total: Count


class PowerHistogram(Facts):
    """Bins in ascending order of power; a power that is left out is empty. histograms.py makes them."""

    bins: tuple[PowerBin, ...] = ()

    @property
    def count(self) -> int:
        """How many values."""
        return sum(one.count for one in self.bins)

    @property
    def total(self) -> int:
        """Sum of the values."""
        return sum(one.total for one in self.bins)


class SourceFileDuplicates(Facts):
    """One source file: the bytes of its documents' text, and how many of them lie in duplicate ranges."""

    path: str
    text_bytes: Count
    duplicate_bytes: Count


class RepeatedString(Facts):
    """A string that occurs `count` times: where first (`line` from 1), and how it begins."""

    count: Count
    source_file: str
    line: Count
    excerpt: str


class DuplicateSummary(Facts):
    """What exact-substring deduplication found; `mode` says whether it was taken out or only written down.

    `kept_gaps` are the bytes that stay between two neighbouring ranges of one document. `most_repeated` are strings of
    `minimum_bytes` bytes; there are none where suffix arrays found the ranges.
    """

    mode: Literal["remove", "annotate"]
    minimum_bytes: Count
    ranges: PowerHistogram
    text_bytes: Count
    documents: Count
    documents_touched: Count
    documents_emptied: Count
    by_source_file: tuple[SourceFileDuplicates, ...] = ()
    kept_gaps: PowerHistogram = PowerHistogram()
    most_repeated: tuple[RepeatedString, ...] = ()

    @property
    def duplicate_bytes(self) -> int:
        """Bytes inside duplicate ranges."""
        return self.ranges.total


class LengthSummary(Facts):
    """How long documents are: bytes of text before and after deduplication, and tokens. None: not known yet."""

    text_bytes_before: PowerHistogram
    text_bytes_after: PowerHistogram | None = None
    tokens: PowerHistogram | None = None


class PackingSummary(Facts):
    """Records of fixed length: every token slot is real, special (begin and end of text), padding, or one of these
    again because contexts overlap."""

    context_tokens: Count
    contexts: Count
    real_tokens: Count
    special_tokens: Count
    pad_tokens: Count
    repeated_tokens: Count = 0

    @property
    def slots(self) -> int:
        """All token slots."""
        return self.real_tokens + self.special_tokens + self.pad_tokens + self.repeated_tokens


class QualityMeasure(Facts):
    """One number about the shuffle, what a perfect shuffle would give, and how far from it is still good."""

    name: str
    measured: Annotated[float, Field(allow_inf_nan=False)]
    ideal: Annotated[float, Field(allow_inf_nan=False)]
    tolerance: Seconds

    @property
    def is_good(self) -> bool:
        """Within the tolerance."""
        return abs(self.measured - self.ideal) <= self.tolerance


class MixingTable(Facts):
    """Where one format's records came from: records in each stretch of the source order (rows) and group of files."""

    format: str
    records: tuple[tuple[Count, ...], ...]


class ShuffleSummary(Facts):
    """The global permutation: records by kind ("document", "context"), and the cells they went through."""

    seed: Count
    cells: Count
    records_by_kind: dict[str, Count]
    quality: tuple[QualityMeasure, ...] = ()
    significance: Annotated[float, Field(gt=0, lt=1)] = 0.001
    mixing: tuple[MixingTable, ...] = ()

    @property
    def warnings(self) -> tuple[QualityMeasure, ...]:
        """The measures outside their bands."""
        return tuple(one for one in self.quality if not one.is_good)


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


class QuarantineExample(Facts):
    """One rejected document: why, and where it stands in its source."""

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
    """One identity that was checked: two sums of labelled counts (or two digests) that must be equal."""

    name: str
    left: tuple[tuple[str, int | str], ...]
    right: tuple[tuple[str, int | str], ...]

    @property
    def ok(self) -> bool:
        """Both sides are equal."""
        return _side(self.left) == _side(self.right)

    @property
    def difference(self) -> int | None:
        """left - right of counts; None when digests are compared."""
        left, right = _side(self.left), _side(self.right)
        return left - right if isinstance(left, int) and isinstance(right, int) else None


def _side(terms: tuple[tuple[str, int | str], ...]) -> int | tuple[str, ...]:
    values = [value for _, value in terms]
    counts = [value for value in values if isinstance(value, int)]
    return sum(counts) if len(counts) == len(values) else tuple(str(value) for value in values)


class BuildSummary(Facts):
    """Everything the report says. `plan` is the plan's fingerprint; `configuration` is YAML, without secrets."""

    dataset: str
    plan: str
    code_version: str
    configuration: str
    source_files: Count
    source_bytes: Count
    stages: tuple[StageSummary, ...] = ()
    duplicates: DuplicateSummary | None = None
    lengths: LengthSummary | None = None
    packing: PackingSummary | None = None
    shuffle: ShuffleSummary | None = None
    exports: tuple[ExportSummary, ...] = ()
    destinations: tuple[DestinationSummary, ...] = ()
    quarantine: tuple[QuarantineFile, ...] = ()
    checks: tuple[BalanceCheck, ...] = ()

    @property
    def failed_checks(self) -> tuple[BalanceCheck, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    @property
    def verdict(self) -> Literal["does not balance", "in progress", "complete"]:
        """The worst thing that can be said of the build."""
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


def to_json(summary: BuildSummary) -> str:
    """Indented JSON with sorted keys and a final newline; equal summaries give equal text."""
    return json.dumps(summary.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def from_json(text: str | bytes) -> BuildSummary:
    """Read what `to_json` wrote; CorruptDataError if it is something else."""
    try:
        return BuildSummary.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise CorruptDataError(
            "a build summary cannot be read",
            expected="the JSON that the report stage of this version wrote",
            got=f"{error.error_count()} problems, first: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            next_step="remove the report's receipt and run the build again: only the report is made anew",
        ) from error
