"""Benchmarks: their items, read once, and the index that every shard is searched with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import unidata_version

from corpusmill.config import BenchmarkConfig
from corpusmill.config.sections import InStore
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Schedule, Shown, Stage
from corpusmill.engine.work import Identity, Inputs, Resources, Sources, Work
from corpusmill.lazy import lazily

with lazily:
    import numpy as np

    from corpusmill.decontamination import decide, search
    from corpusmill.decontamination import items as decontamination_items
    from corpusmill.decontamination import seeds as decontamination_seeds


if TYPE_CHECKING:
    from corpusmill.decontamination.items import Benchmark
    from corpusmill.decontamination.seeds import Entry, Seeds
    from corpusmill.engine.build import Build
    from corpusmill.storage import StoredFile

UNIT = "index"
ROUNDING = 1e-3  # tolerance of a sequence's weight: the search sums it in another order


def benchmark_of(wanted: BenchmarkConfig) -> Benchmark:
    """A configured benchmark."""
    fields = decontamination_items.Fields(**wanted.fields.model_dump())
    return decontamination_items.Benchmark(wanted.name, wanted.path, fields, wanted.endpoint, wanted.sha256)


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """The facts of a benchmark; `undecidable`: names of the items that are too short or too common."""

    name: str
    sha256: str
    items: int
    undecidable: tuple[str, ...]


def index_benchmarks(
    benchmarks: list[Benchmark], files: list[list[StoredFile]], seed_words: int, threshold: str
) -> tuple[Seeds, list[Entry], list[BenchmarkFacts]]:
    """Read benchmarks from their files, and index them all."""
    items, read = [], []
    for benchmark, benchmark_files in zip(benchmarks, files, strict=True):
        of_files, sha256 = decontamination_items.read_benchmark(benchmark, benchmark_files)
        items += of_files
        read.append((benchmark.name, sha256, len(of_files)))
    seeds, entries = decontamination_seeds.build_seeds(items, seed_words)
    undecidable = decide.undecidable_items(seeds, entries, decide.threshold_of(threshold))
    facts = [BenchmarkFacts(name, sha256, count, tuple(undecidable.get(name, ()))) for name, sha256, count in read]
    return seeds, entries, facts


class Settings(Identity, frozen=True, kw_only=True):
    """`benchmarks`: as they are configured, but for their places; `files`: name, size and identity of each one's."""

    benchmarks: list[dict[str, Any]]
    files: list[list[tuple[str, int, str]]]
    seed_words: int
    threshold: str
    unicode: str


def _identity(build: Build, _unit: str) -> Settings:
    wanted = build.config.decontamination
    assert wanted is not None
    planned = build.plan.benchmarks or []
    return Settings(
        benchmarks=[benchmark.model_dump(exclude={"path", *InStore.model_fields}) for benchmark in wanted.benchmarks],
        files=[[(file.name, file.size_bytes, file.identity) for file in files] for files in planned],
        seed_words=wanted.seed_words,
        threshold=wanted.threshold,
        unicode=unidata_version,
    )


def _sources(build: Build, _unit: str) -> list[Sources]:
    assert build.config.decontamination is not None
    each = zip(build.config.decontamination.benchmarks, build.plan.benchmarks or [], strict=True)
    return [Sources(files, benchmark.endpoint, benchmark.path) for benchmark, files in each]


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:

    each = zip(settings.benchmarks, inputs.sources, strict=True)
    benchmarks = [
        replace(benchmark_of(BenchmarkConfig.model_validate({**stated, "path": of.path})), endpoint_url=of.endpoint_url)
        for stated, of in each
    ]
    files = [[file.stored() for file in of.files] for of in inputs.sources]
    seeds, entries, facts = index_benchmarks(benchmarks, files, settings.seed_words, settings.threshold)
    decontamination_seeds.write_seeds(folder, seeds, entries)
    met, seeds_met = search.Searcher(seeds).met_alone()
    little = ~met & decide.too_little(seeds, margin=ROUNDING)
    counts = {
        "items": sum(fact.items for fact in facts),
        "items_indexed": sum(entry.part == "item" for entry in entries),
        "sequences": seeds.sequences,
        "sequences_met": int(np.count_nonzero(met)),
        "sequences_undecidable": int(np.count_nonzero(little)),
        "seeds": len(seeds.postings),
        "seeds_met": seeds_met,
        "bytes_read": sum(file.size_bytes for benchmark_files in files for file in benchmark_files),
    }
    rows = [
        {"name": fact.name, "sha256": fact.sha256, "items": fact.items, "undecidable": len(fact.undecidable)}
        for fact in facts
    ]
    return Outcome(counts=counts, details={"benchmarks": rows})


def _checks(_build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    """Every item is indexed, and a search finds each sequence in itself, unless it is undecidable."""
    counts = receipt.counts
    met = ("met by their own words", counts["sequences_met"]), ("undecidable", counts["sequences_undecidable"])
    return [
        Check("items", (("read", counts["items"]),), (("indexed", counts["items_indexed"]),)),
        Check("sequences", (("indexed", counts["sequences"]),), met),
        Check("seeds", (("indexed", counts["seeds"]),), (("met by their own words", counts["seeds_met"]),)),
    ]


STAGE = Stage(
    "benchmarks",
    version=2,
    after=(),
    wanted=lambda config: config.decontamination is not None,
    units=lambda _build: [UNIT],
    work=Work(Settings, _identity, lambda _build, _unit: {}, _run, _sources),
    checks=_checks,
    schedule=Schedule(stores=True),
    shown=Shown(unit_word="index", on_trunk=False),
)
