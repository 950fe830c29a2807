"""Benchmarks: their items, read once, and the index that every shard is searched with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Stage
from corpusmill.ledger import Check, Outcome, Receipt

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.decontamination.files import Benchmark
    from corpusmill.decontamination.seeds import Entry, Seeds
    from corpusmill.engine.build import Build
    from corpusmill.storage import StoredFile

UNIT = "index"
ROUNDING = 1e-3  # tolerance of a sequence's weight: the search sums it in another order


def benchmarks_of(config: DatasetConfig) -> list[Benchmark]:
    """The configured benchmarks; none without decontamination."""
    from corpusmill.decontamination.files import Benchmark
    from corpusmill.decontamination.items import Fields

    wanted = config.decontamination
    return [
        Benchmark(
            benchmark.name,
            benchmark.path,
            Fields(**benchmark.fields.model_dump()),
            benchmark.endpoint_url,
            benchmark.sha256,
        )
        for benchmark in (wanted.benchmarks if wanted else [])
    ]


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """The facts of a benchmark; `undecidable`: names of the items that are too short or too common."""

    name: str
    sha256: str
    items: int
    undecidable: tuple[str, ...]


def index_benchmarks(
    config: DatasetConfig, files: list[list[StoredFile]]
) -> tuple[Seeds, list[Entry], list[BenchmarkFacts]]:
    """Read the configured benchmarks from their files, and index them all."""
    from corpusmill.decontamination.decide import threshold_of, undecidable_items
    from corpusmill.decontamination.files import read_benchmark
    from corpusmill.decontamination.seeds import build_seeds

    assert config.decontamination is not None
    items, read = [], []
    for benchmark, benchmark_files in zip(benchmarks_of(config), files, strict=True):
        of_files, sha256 = read_benchmark(benchmark, benchmark_files)
        items += of_files
        read.append((benchmark.name, sha256, len(of_files)))
    seeds, entries = build_seeds(items, config.decontamination.seed_words)
    undecidable = undecidable_items(seeds, entries, threshold_of(config.decontamination.threshold))
    facts = [BenchmarkFacts(name, sha256, count, tuple(undecidable.get(name, ()))) for name, sha256, count in read]
    return seeds, entries, facts


def _units(build: Build) -> list[str]:
    return [UNIT] if build.config.decontamination else []


def _settings(build: Build, _unit: str) -> dict[str, Any]:
    from unicodedata import unidata_version

    wanted = build.config.decontamination
    assert wanted is not None
    files = [[[file.name, file.size_bytes, file.identity] for file in files] for files in build.plan.benchmarks or []]
    benchmarks = [benchmark.model_dump(exclude={"path", "endpoint_url"}) for benchmark in wanted.benchmarks]
    settings = {"seed_words": wanted.seed_words, "threshold": wanted.threshold, "unicode": unidata_version}
    return {"benchmarks": benchmarks, "files": files, **settings}


def _run(build: Build, _unit: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.decontamination.decide import too_little
    from corpusmill.decontamination.search import Searcher
    from corpusmill.decontamination.seeds import write_seeds

    planned = build.plan.benchmarks or []
    files = [[file.stored() for file in benchmark_files] for benchmark_files in planned]
    seeds, entries, facts = index_benchmarks(build.config, files)
    write_seeds(folder, seeds, entries)
    met, seeds_met = Searcher(seeds).met_alone()
    little = ~met & too_little(seeds, margin=ROUNDING)
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
    after=("filter", "decided"),
    unit_word="index",
    units=_units,
    inputs=lambda _build, _unit: [],
    settings=_settings,
    run=_run,
    checks=_checks,
    stores=True,
    on_trunk=False,
)
