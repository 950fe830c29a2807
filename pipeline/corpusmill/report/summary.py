"""The facts of one finished or partly finished build, from its receipts; stored as JSON.

Every model is frozen and refuses unknown keys. Counts are whole and not negative; sizes are bytes; times are seconds.
Nothing derivable is stored: shares, totals and verdicts are properties, so that they cannot disagree with the counts.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.report.budget import BudgetSummary
from corpusmill.report.contamination import ContaminationSummary
from corpusmill.report.content import DuplicateSummary, LengthSummary, PackingSummary, ShuffleSummary
from corpusmill.report.delivered import (
    DecodedSummary,
    DestinationSummary,
    EncodedSummary,
    EstimatedFigure,
    ExportSummary,
    VocabularySummary,
)
from corpusmill.report.facts import Count, Facts, Flow, StageSummary, read_facts
from corpusmill.report.filtering import FilterSummary


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
