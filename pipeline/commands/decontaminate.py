"""Commands that find benchmark items in text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.commands import options
from corpusmill.commands.app import INSPECT, STEPS, command
from corpusmill.commands.earlier import require_earlier
from corpusmill.errors import ConfigError, visible

if TYPE_CHECKING:
    from corpusmill.decontamination.files import Benchmark
    from corpusmill.decontamination.items import Fields

SHOWN = 10


@command(STEPS, "decontaminate data --benchmark items.jsonl --hits hits.jsonl")
def decontaminate(
    inputs: options.Inputs,
    benchmark: Annotated[
        list[str], typer.Option(metavar="[NAME=]PATH", help="A benchmark, one row per item; repeat for several.")
    ],
    hits: Annotated[Path, typer.Option(help="JSON lines: benchmark, item, file, line, id, begin, end, share.")],
    question_field: Annotated[str, typer.Option(help="The benchmark's key of the question.")] = "question",
    answer_field: Annotated[str, typer.Option(help="The benchmark's key of the answer; empty: none.")] = "answer",
    passage_field: Annotated[
        str, typer.Option(help="The benchmark's key of a passage, searched by itself; empty: none.")
    ] = "",
    seed_words: Annotated[
        int, typer.Option(help="Consecutive shared words that start a comparison.", min=3, max=64)
    ] = 5,
    threshold: Annotated[str, typer.Option(help="default, strict, or a share of an item's words.")] = "default",
    text_field: options.TextField = "text",
    id_field: Annotated[str, typer.Option(help="The JSON key that holds a document's id.")] = "id",
    max_rejected_share: options.RejectedShare = 0.001,
    endpoint_url: options.EndpointUrl = None,
) -> None:
    """Find benchmark items in JSON lines, whole or in part, slightly reworded or re-wrapped."""
    from corpusmill.builds.apart import require_apart
    from corpusmill.config import absolute_here
    from corpusmill.decontamination.decide import threshold_of, undecidable_items
    from corpusmill.decontamination.files import is_hits, read_benchmark, search_files
    from corpusmill.decontamination.items import Fields
    from corpusmill.decontamination.search import Searcher
    from corpusmill.decontamination.seeds import build_seeds
    from corpusmill.in_order.rejected import RejectedLines, rejected_beside
    from corpusmill.report.figures import counted

    fields = Fields(question_field, answer_field, passage_field)
    benchmarks = [_benchmark(argument, fields, endpoint_url) for argument in benchmark]
    read = [*inputs, *(benchmark.path for benchmark in benchmarks)]
    require_apart([absolute_here(path) for path in read], [("--hits", str(hits.absolute()))], files=True)
    require_earlier(hits, "--hits", "the hits", is_hits)
    rejected = RejectedLines(rejected_beside(hits.with_suffix("")), max_rejected_share)
    rejected.require_own(read, "--hits")
    _require_names_of_their_own(benchmarks)
    items = [item for benchmark in benchmarks for item in read_benchmark(benchmark, benchmark.files())[0]]
    wanted = threshold_of(threshold)
    seeds, entries = build_seeds(items, seed_words)
    undecidable = undecidable_items(seeds, entries, wanted)
    searched = search_files(
        inputs,
        hits,
        Searcher(seeds, wanted),
        entries,
        rejected.collect(),
        text_field=text_field,
        id_field=id_field,
        endpoint_url=endpoint_url,
    )
    for name in (benchmark.name for benchmark in benchmarks):
        hits_of_item = {item: count for (hit, item), count in searched.hits.items() if hit == name}
        searchable = sum(item.benchmark == name for item in items) - len(undecidable.get(name, ()))
        of_items = f"{len(hits_of_item):,} found of {searchable:,} that can be searched"
        hit_count = counted(sum(hits_of_item.values()), "hit")
        typer.echo(f"{name}: {of_items}{_not_searched(undecidable.get(name, []))}; {hit_count}")
    typer.echo(f"{searched.documents_hit:,} of {searched.documents:,} documents contain items; {hits}")
    options.print_rejected(rejected)


@command(INSPECT, "benchmarks web.yaml --save items")
def benchmarks(
    config: options.ConfigFile,
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Download each benchmark into FOLDER/NAME.")
    ] = None,
) -> None:
    """Read the configured benchmarks: items, sha256 and commit to pin, what is too short or too common to decide."""
    from corpusmill.config import load_config
    from corpusmill.decontamination.files import hub_commit, save_files
    from corpusmill.stages.benchmarks import benchmarks_of, index_benchmarks

    dataset = load_config(config)
    configured = benchmarks_of(dataset)
    if not configured:
        typer.echo(f"{dataset.name} has no decontamination")
        return
    files = [benchmark.files() for benchmark in configured]
    _, _, facts = index_benchmarks(dataset, files)
    for benchmark, benchmark_files, fact in zip(configured, files, facts, strict=True):
        pinned = "pinned" if benchmark.sha256 else "not pinned"
        commit = hub_commit(benchmark_files)
        commit_text = f"commit {commit}, " if commit else ""
        typer.echo(
            f"{fact.name}: {fact.items:,} items of {benchmark.path}, {pinned}, {commit_text}sha256: {fact.sha256}"
        )
        for item in fact.undecidable:
            typer.echo(f"  cannot be decided: {visible(item)}")
        if save:
            save_files(benchmark_files, save / fact.name, benchmark.endpoint_url)
            typer.echo(f"  saved as {save / fact.name}")


def _not_searched(items: list[str]) -> str:
    """`; 3 cannot: 4, 17, 20 (too short or too common)`; empty for no items."""
    more = ", ..." if len(items) > SHOWN else ""
    names = visible(", ".join(items[:SHOWN]))
    return f"; {len(items):,} cannot: {names}{more} (too short or too common)" if items else ""


def _require_names_of_their_own(benchmarks: list[Benchmark]) -> None:
    """ConfigError for two benchmarks of one name, as in a configuration: hits and counts go by name."""
    named: dict[str, Benchmark] = {}
    for benchmark in benchmarks:
        first = named.setdefault(benchmark.name, benchmark)
        if first is not benchmark:
            raise ConfigError(
                f"two benchmarks are called {benchmark.name}",
                where=f"{first.path} and {benchmark.path}",
                next_step="give each a name: --benchmark NAME=PATH",
            )


def _benchmark(argument: str, fields: Fields, endpoint_url: str | None) -> Benchmark:
    from corpusmill.config import absolute_here
    from corpusmill.decontamination.files import Benchmark

    name, equals, path = argument.partition("=")
    if not equals or not name or "/" in name:
        name, path = argument.rstrip("/").rpartition("/")[2].partition(".")[0] or argument, argument
    return Benchmark(name, absolute_here(path), fields, endpoint_url)
