"""Benchmarks: their items, read once, and the index that every shard is searched with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Stage
from corpusmill.ledger import Outcome

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.decontamination.files import Benchmark
    from corpusmill.engine.build import Build

UNIT = "index"


def benchmarks_of(config: DatasetConfig) -> list[Benchmark]:
    """The configured benchmarks; none without decontamination."""
    from corpusmill.decontamination.files import Benchmark
    from corpusmill.decontamination.items import Fields

    wanted = config.decontamination
    return [
        Benchmark(one.name, one.path, Fields(**one.fields.model_dump()), one.endpoint_url)
        for one in (wanted.benchmarks if wanted else [])
    ]


def _units(build: Build) -> list[str]:
    return [UNIT] if build.config.decontamination else []


def _settings(build: Build, _unit: str) -> dict[str, Any]:
    from unicodedata import unidata_version

    wanted = build.config.decontamination
    assert wanted is not None
    files = [[[file.name, file.size_bytes, file.identity] for file in files] for files in build.plan.benchmarks or []]
    benchmarks = [one.model_dump(exclude={"path", "endpoint_url"}) for one in wanted.benchmarks]
    return {"benchmarks": benchmarks, "files": files, "seed_words": wanted.seed_words, "unicode": unidata_version}


def _run(build: Build, _unit: str, folder: Path) -> Outcome:
    from corpusmill.decontamination.decide import too_little
    from corpusmill.decontamination.files import read_benchmark
    from corpusmill.decontamination.seeds import build_seeds, write_seeds
    from corpusmill.storage import StoredFile

    wanted = build.config.decontamination
    assert wanted is not None
    items, facts = [], []
    for benchmark, files in zip(benchmarks_of(build.config), build.plan.benchmarks or [], strict=True):
        stored = [StoredFile(**file.model_dump(exclude={"part"})) for file in files]
        of_benchmark, sha256 = read_benchmark(benchmark, stored)
        facts.append({"name": benchmark.name, "items": len(of_benchmark), "sha256": sha256})
        items += of_benchmark
    seeds, entries = build_seeds(items, wanted.seed_words)
    write_seeds(folder, seeds, entries)
    undecided = too_little(seeds)
    for fact in facts:
        of_fact = [one for one in entries if one.benchmark == fact["name"] and one.part == "item"]
        fact["undecidable"] = sum(bool(undecided[one.sequence]) for one in of_fact)
    counts = {"items": len(items), "sequences": seeds.sequences, "seeds": len(seeds.postings)}
    return Outcome(
        counts={
            **counts,
            "bytes_read": sum(file.size_bytes for files in build.plan.benchmarks or [] for file in files),
        },
        details={"benchmarks": facts},
    )


STAGE = Stage(
    "benchmarks",
    version=1,
    after=("index",),
    unit_word="index",
    units=_units,
    inputs=lambda _build, _unit: [],
    settings=_settings,
    run=_run,
    on_trunk=False,
)
