"""What a build moves between its machines and a work folder in a bucket: requests and bytes.

Counted from the receipts of a finished build, which may be a sample's, by what the code does for each step:

    a step      STEP_REQUESTS: its receipt is looked for before the work and at the commit, and is written; what was
                sent is listed, and so are marks of the plan
    an output   one request; of more than 8 MiB one per part, one to begin and one to complete. `.blocks` is an output
    an input    of a machine that has nothing yet: its receipt, its `.blocks`, one request per 8 MiB of each output
    a stage     STAGE_REQUESTS: the sums of its receipts

From a sample to the whole: shards are counted; of other stages there are as many units as before, or as many as hold
UNIT_BYTES each. Where a step reads little of an input, the count of all of it is too high; listings longer than a page,
retries, `reclaim: eager`, references and the lease are not counted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from corpusmill.storage.s3_multipart import PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.engine.build import Build
    from corpusmill.engine.ledger import Receipt

STEP_REQUESTS, STAGE_REQUESTS = 5, 3
UNIT_BYTES = 256 << 20


class Moved(NamedTuple):
    """Requests and bytes of all machines together."""

    requests: int
    bytes: int


def moved_by(build: Build, shards: int, times: Callable[[str], float] = lambda _: 1.0) -> tuple[Moved, Moved]:
    """What one machine that keeps its cache moves; and what machines move that each run one stage with an empty cache.

    build    a finished build
    shards   of the whole
    times    bytes of a stage in the whole for each byte of it here
    """
    grown = shards / max(1, len(build.plan.shards))
    stages = {stage.name: build.receipts(stage.name) for stage in build.graph}
    units = {name: _units(build, name, stages[name], grown, times(name)) for name in stages}
    receipts = {(receipt.stage, receipt.unit): receipt for of_stage in stages.values() for receipt in of_stage}
    written = read = written_bytes = read_bytes = 0.0
    for name, of_stage in stages.items():
        written += STAGE_REQUESTS
        read += STAGE_REQUESTS
        for receipt in of_stage:
            each = times(name) / units[name]
            written += units[name] * (STEP_REQUESTS + 1 + sum(_puts(size * each) for size in _sizes(receipt)))
            written_bytes += times(name) * sum(_sizes(receipt))
        for stage, unit in {step for receipt in of_stage for step in build.inputs(name, receipt.unit)}:
            if (origin := receipts.get((stage, unit))) is not None:  # the plan is not of a stage
                each = times(stage) / units[stage]
                read += units[stage] * (2 + sum(max(1, math.ceil(size * each / PART_BYTES)) for size in _sizes(origin)))
                read_bytes += times(stage) * sum(_sizes(origin))
    return (
        Moved(round(written), round(written_bytes)),
        Moved(round(written + read), round(written_bytes + read_bytes)),
    )


def _units(build: Build, stage: str, receipts: list[Receipt], grown: float, times: float) -> float:
    """Units of a stage in the whole for each of this build."""
    if build.graph[stage].per_shard:
        return grown
    size_bytes = sum(sum(_sizes(receipt)) for receipt in receipts) / max(1, len(receipts))
    return max(1.0, size_bytes * times / UNIT_BYTES)


def _sizes(receipt: Receipt) -> list[int]:
    return [output.size_bytes for output in receipt.outputs]


def _puts(size_bytes: float) -> int:
    return 1 if size_bytes <= PART_BYTES else math.ceil(size_bytes / PART_BYTES) + 2
