"""The building blocks of a summary: frozen models, flows that balance, histograms by powers of two, stages and steps.

A stage's row has its counts; a step's, which is what people know, is the sum of its stages'.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corpusmill.errors import CorruptDataError

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Facts(BaseModel):
    """Base of every model here."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Read = TypeVar("Read", bound=Facts)


def to_json(facts: Facts) -> str:
    """Indented JSON with sorted keys and a final newline; equal facts give equal text."""
    return json.dumps(facts.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_facts(kind: type[Read], text: str | bytes, name: str) -> Read:
    """Read what `to_json` wrote of a `kind`; CorruptDataError, which names it `name`, if it is malformed."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise CorruptDataError(
            f"report.not_readable: {name} cannot be read",
            expected="the JSON that the report stage of this version wrote",
            got=f"{error.error_count()} problems, first: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            next_step="run the build again: only the report is rebuilt",
        ) from error


class Flow(Facts):
    """One quantity through one stage: into + gained = out + lost, unless something is missing.

    Where a quantity first appears (documents in index, tokens in tokenize), `into` is what the stage created.
    """

    into: Count
    out: Count
    lost: dict[str, Count] = {}
    gained: dict[str, Count] = {}

    @property
    def lost_total(self) -> int:
        """Sum of `lost` over all reasons."""
        return sum(self.lost.values())

    @property
    def gained_total(self) -> int:
        """Sum of `gained` over all reasons."""
        return sum(self.gained.values())


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
        return sum(bin_.count for bin_ in self.bins)

    @property
    def total(self) -> int:
        """Sum of the values."""
        return sum(bin_.total for bin_ in self.bins)


class StageSummary(Facts):
    """One stage, summed over its units.

    `documents.lost` are rejected documents by reason; `text_bytes.lost` are removed bytes by reason ("duplicates").
    `units_reused` of the `units_done` had finished before. `seconds` and `timed_bytes` (the bytes processed in them)
    are sums over the units' receipts, whenever they ran; `wall_seconds` is from the first start to the last end, of
    those that this run has run, and `wall_began` when that was, after the run began. `step` is the step that people
    know, "" in reports that were written before stages had one.
    `on_trunk` is False for a stage beside the main line, such as writeback. `requests` to stores, `retries` of them
    repeated, moved `wire_bytes` in both directions. `without_checksum` files and parts of files have no checksum in
    their store: two reads of each were compared.
    """

    stage: str
    step: str = ""
    unit: str
    units_total: Count
    units_done: Count
    units_reused: Count
    documents: Flow | None = None
    text_bytes: Flow | None = None
    tokens: Flow | None = None
    seconds: Seconds
    wall_seconds: Seconds | None = None
    wall_began: Seconds | None = None
    timed_bytes: Count
    peak_rss_bytes: Count
    on_trunk: bool = True
    requests: Count = 0
    retries: Count = 0
    wire_bytes: Count = 0
    without_checksum: Count = 0

    @property
    def is_finished(self) -> bool:
        """Every unit is done."""
        return self.units_done == self.units_total

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes per second of one worker; None if nothing was timed."""
        return self.timed_bytes / self.seconds if self.seconds and self.timed_bytes else None


UNITS = "unit"  # of a step, whose stages have shards, partitions, cells, ...
SUMS = (
    *("units_total", "units_done", "units_reused", "seconds", "timed_bytes"),
    *("requests", "retries", "wire_bytes", "without_checksum"),
)


def step_rows(stages: Iterable[StageSummary]) -> list[tuple[StageSummary, tuple[StageSummary, ...]]]:
    """(the row of a step, its stages), in order. A stage without a step has a row of its own."""
    of_steps: dict[str, list[StageSummary]] = {}
    for stage in stages:
        of_steps.setdefault(stage.step or stage.stage, []).append(stage)
    return [(_together(name, of_step), tuple(of_step)) for name, of_step in of_steps.items()]


def _together(name: str, stages: list[StageSummary]) -> StageSummary:
    """Counts are sums, memory is the largest, the wall time is from the first start to the last end."""
    ran = [(stage.wall_began, stage.wall_seconds) for stage in stages]
    spans = [(began, began + seconds) for began, seconds in ran if began is not None and seconds is not None]
    counting = [stage for stage in stages if stage.documents or stage.text_bytes or stage.tokens]
    only = stages[0] if len(stages) == 1 else None
    return StageSummary(
        stage=name,
        step=name,
        unit=only.unit if only else UNITS,
        documents=_through([(stage.on_trunk, stage.documents) for stage in stages]),
        text_bytes=_through([(stage.on_trunk, stage.text_bytes) for stage in stages]),
        tokens=_through([(stage.on_trunk, stage.tokens) for stage in stages]),
        wall_seconds=max(end for _, end in spans) - min(began for began, _ in spans) if spans else None,
        wall_began=min(began for began, _ in spans) if spans else None,
        peak_rss_bytes=max(stage.peak_rss_bytes for stage in stages),
        on_trunk=any(stage.on_trunk for stage in counting or stages),
        **{name: sum(getattr(stage, name) for stage in stages) for name in SUMS},
    )


def _through(flows: Sequence[tuple[bool, Flow | None]]) -> Flow | None:
    """What comes into the first stage and leaves the last, and all that is lost and gained between; of stages beside
    the trunk only where no other counts it, since they count the same again.
    """
    trunk = [flow for on_trunk, flow in flows if on_trunk and flow] or [flow for _, flow in flows if flow]
    if not trunk:
        return None
    lost: Counter[str] = Counter()
    gained: Counter[str] = Counter()
    for flow in trunk:
        lost.update(flow.lost)
        gained.update(flow.gained)
    return Flow(into=trunk[0].into, out=trunk[-1].out, lost=dict(lost), gained=dict(gained))
