"""The stages of a summary as the steps that people know: a step's row is the sum of its stages'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from corpusmill.report.facts import Flow, StageSummary

UNITS = "unit"  # of a step, whose stages have shards, partitions, cells, ...


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
        units_total=sum(stage.units_total for stage in stages),
        units_done=sum(stage.units_done for stage in stages),
        units_reused=sum(stage.units_reused for stage in stages),
        seconds=sum(stage.seconds for stage in stages),
        timed_bytes=sum(stage.timed_bytes for stage in stages),
        requests=sum(stage.requests for stage in stages),
        retries=sum(stage.retries for stage in stages),
        wire_bytes=sum(stage.wire_bytes for stage in stages),
        without_checksum=sum(stage.without_checksum for stage in stages),
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
