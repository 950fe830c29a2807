"""The stages, in order. A stage of your own is a file that exports STAGE, and its module's name in
CORPUSMILL_STAGES (separated by commas), the same for everything that plans, builds or shows datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from corpusmill.decontamination.stages import benchmarks, decontaminate
from corpusmill.dedup.stages import (
    anchor,
    context,
    partitions,
    reference,
    union,
    writeback,
)
from corpusmill.engine import running
from corpusmill.engine.stage import Graph, Stage
from corpusmill.errors import ConfigError
from corpusmill.export.stages import export
from corpusmill.near_duplicates.stages import decide, near_duplicates, rounds
from corpusmill.shuffle.stages import budget, gather, scatter
from corpusmill.sources.stages import download, index, quarantine
from corpusmill.steps.stages import decisions, refine
from corpusmill.steps.stages import filter as filter_
from corpusmill.tokens.stages import audit, tokenize
from corpusmill.upload.stages import manifest, report, upload

OWN_STAGES = "CORPUSMILL_STAGES"

STAGES = (
    download.STAGE,
    index.STAGE,
    quarantine.STAGE,
    decisions.STAGE,
    decisions.JOIN,
    decisions.DECIDED,
    filter_.COPIES,
    filter_.STAGE,
    benchmarks.STAGE,
    decontaminate.STAGE,
    rounds.REFERENCE_SIGN,
    rounds.SIGN,
    rounds.PROPOSE,
    rounds.REFERENCE_SETS,
    rounds.SETS,
    rounds.COMPARE,
    decide.STAGE,
    near_duplicates.STAGE,
    reference.STAGE,
    anchor.REFERENCE_STAGE,
    anchor.STAGE,
    partitions.SHARED,
    context.REFERENCE_CONTEXT,
    context.CONTEXT,
    partitions.SETTLE,
    context.REFERENCE_BORDER,
    context.BORDER,
    partitions.MATCH,
    union.STAGE,
    refine.STAGE,
    refine.LOST,
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
        "stage.not_importable: a stage cannot be imported",
        where=f"{OWN_STAGES}: {module}",
        expected="an importable module with a Stage (corpusmill.engine.stage) named STAGE",
        got=got,
        next_step="install its package on every worker, or remove it from the variable",
    )


GRAPH = Graph((*STAGES, *_own_stages()))


def open_build(plan_receipt: str | Path) -> running.RunnableBuild:
    """The build that a plan's receipt belongs to; PlanGoneError if the receipt is not there."""
    return running.open_build(plan_receipt, GRAPH)
