"""A build shard by shard: what each one holds, and the digests by which two builds are compared.

`shards.json` beside a report is a `ShardTable`: a row per shard, and the digest of every step's receipt by stage and
unit. A view of a running build makes the same rows from the receipts that exist so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

from corpusmill.report.facts import Count, Facts, Seconds, read_facts

SHARDS = "shards.json"
SHOWN_DIGEST = "tokenize"  # the last stage of a shard that depends only on this shard and its duplicates elsewhere


class ShardRow(Facts):
    """One shard; None: not known yet. `digests` are those of its stages that have finished."""

    shard: str
    source_bytes: Count | None = None
    documents: Count | None = None
    rejected_documents: Count | None = None
    dropped_documents: Count | None = None
    text_bytes: Count | None = None
    removed_bytes: Count | None = None
    tokens: Count | None = None
    seconds: Seconds = 0.0
    digests: dict[str, str] = Field(default_factory=dict)

    @property
    def digest(self) -> str | None:
        """Of its token shard."""
        return self.digests.get(SHOWN_DIGEST)


class ShardTable(Facts):
    """All shards, in order, and the digest of every step: stage -> unit -> digest."""

    rows: tuple[ShardRow, ...] = ()
    digests: dict[str, dict[str, str]] = Field(default_factory=dict)


@dataclass(frozen=True)
class StepFacts:
    """The facts of a step from its receipt.

    For the report step: the dataset's `version`, the digest of its `settings`, and whether `latest` moved to it.
    """

    counts: Mapping[str, int]
    digest: str
    seconds: float
    finished_at: float = 0.0
    version: str = ""
    settings: str = ""
    moved_latest: bool = True


def step_name(stage: str, unit: str) -> tuple[str, str]:
    """(shard, name of the step in its row): `tokenize` for 00017, `scatter contexts` for contexts-00017."""
    kind, _, shard = unit.rpartition("-")
    return shard, f"{stage} {kind}" if kind else stage


def shard_row(shard: str, steps: Mapping[str, StepFacts], source_bytes: int | None = None) -> ShardRow:
    """The row of one shard from its finished steps by name (see `step_name`)."""
    index, union, tokenize = (steps[stage].counts if stage in steps else {} for stage in ("index", "union", "tokenize"))
    lines, documents = index.get("lines"), index.get("documents_out")
    by_steps = [steps[stage].counts for stage in ("filter", "refine") if stage in steps]
    dropped = sum(count for counts in by_steps for name, count in counts.items() if name.startswith("dropped_"))
    return ShardRow(
        shard=shard,
        source_bytes=source_bytes,
        documents=documents,
        rejected_documents=None if lines is None or documents is None else lines - documents,
        dropped_documents=dropped if by_steps else None,
        text_bytes=index.get("text_bytes_out"),
        removed_bytes=union.get("removed_bytes"),
        tokens=tokenize.get("tokens"),
        seconds=sum(step.seconds for step in steps.values()),
        digests={stage: step.digest for stage, step in steps.items()},
    )


def shards_from_json(text: str | bytes) -> ShardTable:
    """Read what `to_json` wrote; CorruptDataError if it is something else."""
    return read_facts(ShardTable, text, "a table of shards")
