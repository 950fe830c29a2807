"""The text of a shard that is tokenized: that of the last stage which made texts, less what is cut from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.dedup.stages.union import CUT_RANGES, cuts_stage
from corpusmill.lazy import lazily
from corpusmill.sources.stages.index import final_stage

with lazily:
    import numpy as np

    from corpusmill.dedup import ranges as dedup_ranges
    from corpusmill.documents import text_shard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build
    from corpusmill.engine.stage import StepName
    from corpusmill.engine.work import Inputs


def text_inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    """The steps that have the text of a shard and what was cut from it."""
    removing = build.config.dedup.mode == "remove"
    return {"text": [(final_stage(build, shard), shard)], "cuts": [(cuts_stage(build), shard)] if removing else []}


def text_and_cuts(inputs: Inputs) -> tuple[TextShard, NDArray[np.uint64]]:
    """The text shard of these inputs, and the ranges to remove from it: uint64 (n, 2), ascending, disjoint."""
    text = text_shard.open_text_shard(inputs["text"].folder())
    if "cuts" not in inputs:
        return text, np.empty((0, 2), np.uint64)
    return text, dedup_ranges.read_ranges(inputs["cuts"].folder() / CUT_RANGES)
