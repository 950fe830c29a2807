"""The stages, one file each. A stage of your own is a file that exports STAGE, and its module's name in
CORPUSMILL_STAGES (separated by commas), the same for everything that plans, builds or shows datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from corpusmill.engine import running
from corpusmill.engine.graph import Graph
from corpusmill.engine.stage import Stage
from corpusmill.errors import ConfigError
from corpusmill.stages import (
    anchor,
    audit,
    benchmarks,
    border,
    budget,
    context,
    copies,
    decided,
    decisions,
    decontaminate,
    download,
    export,
    filtering,
    gather,
    index,
    joined,
    lost,
    manifest,
    match,
    quarantine,
    reference,
    reference_border,
    reference_context,
    reference_index,
    refine,
    report,
    scatter,
    settle,
    shared,
    suffix_array,
    tokenize,
    union,
    upload,
    writeback,
)

OWN_STAGES = "CORPUSMILL_STAGES"

STAGES = (
    download.STAGE,
    index.STAGE,
    quarantine.STAGE,
    decisions.STAGE,
    joined.STAGE,
    decided.STAGE,
    copies.STAGE,
    filtering.STAGE,
    benchmarks.STAGE,
    decontaminate.STAGE,
    reference.STAGE,
    reference_index.STAGE,
    anchor.STAGE,
    suffix_array.STAGE,
    shared.STAGE,
    reference_context.STAGE,
    context.STAGE,
    settle.STAGE,
    reference_border.STAGE,
    border.STAGE,
    match.STAGE,
    union.STAGE,
    refine.STAGE,
    lost.STAGE,
    writeback.STAGE,
    tokenize.STAGE,
    audit.STAGE,
    budget.STAGE,
    scatter.STAGE,
    gather.STAGE,
    export.STAGE,
    manifest.STAGE,
    upload.STAGE,
    report.STAGE,
)

GROUPS = {
    "find_ranges": "Which bytes repeat, over the whole dataset",
    "shuffle": "Records in random order: scattered over cells, then each cell by itself",
    "exports": "The training formats: their parts, then one manifest each",
}


def _own_stages() -> Iterator[Stage]:
    for name in filter(None, (name.strip() for name in os.environ.get(OWN_STAGES, "").split(","))):
        try:
            stage = import_module(name).STAGE
        except Exception as error:
            raise _no_stage(name, f"{type(error).__name__}: {error}") from error
        if not isinstance(stage, Stage):
            raise _no_stage(name, f"STAGE is of type {type(stage).__name__}")
        yield stage


def _no_stage(module: str, got: str) -> ConfigError:
    return ConfigError(
        "a stage cannot be imported",
        where=f"{OWN_STAGES}: {module}",
        expected="an importable module with a Stage (corpusmill.engine.stage) named STAGE",
        got=got,
        next_step="install its package on every worker, or remove it from the variable",
    )


GRAPH = Graph((*STAGES, *_own_stages()))


def open_build(plan_receipt: str | Path) -> running.RunnableBuild:
    """The build that a plan's receipt belongs to; PlanGoneError if the receipt is not there."""
    return running.open_build(plan_receipt, GRAPH)
