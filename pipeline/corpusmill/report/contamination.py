"""Benchmark items found in a dataset's text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from corpusmill.report.facts import Count, Facts


class BenchmarkFound(Facts):
    """One benchmark: its items, how many are too short or too common to decide, how many were found, and how often."""

    name: str
    sha256: str
    items: Count
    undecidable: Count
    items_met: Count
    hits: Count


class ItemFound(Facts):
    """One of the items that were found most often."""

    benchmark: str
    item: str
    hits: Count


class HitExample(Facts):
    """A hit: its passage in pieces, each with whether the item has the same words."""

    benchmark: str
    item: str
    source_file: str
    line: Count
    id: str
    share: Annotated[float, Field(ge=0, le=1)]
    pieces: tuple[tuple[str, bool], ...]


class ContaminationSummary(Facts):
    """What decontamination found, and the action taken; `borderline`: the hits with the smallest shares."""

    action: Literal["remove", "cut", "annotate", "report"]
    documents: Count
    documents_hit: Count
    benchmarks: tuple[BenchmarkFound, ...]
    most_met: tuple[ItemFound, ...] = ()
    borderline: tuple[HitExample, ...] = ()
