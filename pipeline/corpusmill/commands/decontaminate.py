"""Commands that find benchmark items in text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.commands import options
from corpusmill.commands.app import INSPECT, STEPS, command
from corpusmill.commands.options import require_earlier
from corpusmill.errors import ConfigError, visible
from corpusmill.lazy import lazily
from corpusmill.report.figures import counted

with lazily:
    from corpusmill.builds import overlap
    from corpusmill.config import dataset as config_dataset
    from corpusmill.config import reading
    from corpusmill.decontamination import decide, search
    from corpusmill.decontamination import items as decontamination_items
    from corpusmill.decontamination import seeds as decontamination_seeds
    from corpusmill.decontamination.stages import benchmarks as stages_benchmarks
    from corpusmill.direct.in_order import source as in_order_source


if TYPE_CHECKING:
    from corpusmill.decontamination.items import Benchmark, Fields

SHOWN = 10


@command(STEPS, "decontaminate data --benchmark items.jsonl --hits hits.jsonl")
def decontaminate(
    inputs: options.Inputs,
    benchmark: Annotated[
        list[str], typer.Option(metavar="[NAME=]PATH", help="A benchmark, one row per item; repeat for several.")
    ],
    hits: Annotated[
        Path, typer.Option(help="The JSON lines to write: benchmark, item, file, line, id, begin, end, share.")
    ],
    question_field: Annotated[str, typer.Option(help="The benchmark's key for the question.")] = "question",
    answer_field: Annotated[str, typer.Option(help="The benchmark's key for the answer; '' for none.")] = "answer",
    passage_field: Annotated[
        str, typer.Option(help="The benchmark's key for a passage, searched on its own; '' for none.")
    ] = "",
    seed_words: Annotated[
        int, typer.Option(help="How many consecutive shared words start a comparison.", min=3, max=64)
    ] = 5,
    threshold: Annotated[
        str, typer.Option(help="How much of an item must match: default, strict, or a share of its words.")
    ] = "default",
    text_field: options.TextField = "text",
    id_field: Annotated[str, typer.Option(help="The JSON key that holds a document's id.")] = "id",
    max_rejected_share: options.RejectedShare = 0.001,
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
) -> None:
    """Find benchmark items in JSON lines, whole or in part, slightly reworded or re-wrapped."""
    fields = decontamination_items.Fields(question_field, answer_field, passage_field)
    benchmarks = [_benchmark(argument, fields, options.endpoint(endpoint_url, anonymous)) for argument in benchmark]
    read = [*inputs, *(benchmark.path for benchmark in benchmarks)]
    overlap.require_no_overlap(
        [config_dataset.absolute_here(path) for path in read], [("--hits", str(hits.absolute()))], files=True
    )
    require_earlier(hits, "--hits", "the hits", search.is_hits)
    rejected = in_order_source.RejectedLines(in_order_source.rejected_beside(hits.with_suffix("")), max_rejected_share)
    rejected.require_own(read, "--hits")
    _require_names_of_their_own(benchmarks)
    items = [
        item
        for benchmark in benchmarks
        for item in decontamination_items.read_benchmark(benchmark, benchmark.files())[0]
    ]
    wanted = decide.threshold_of(threshold)
    seeds, entries = decontamination_seeds.build_seeds(items, seed_words)
    undecidable = decide.undecidable_items(seeds, entries, wanted)
    searched = search.search_files(
        inputs,
        hits,
        search.Searcher(seeds, wanted),
        entries,
        rejected.collect(),
        text_field=text_field,
        id_field=id_field,
        endpoint_url=options.endpoint(endpoint_url, anonymous),
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
    dataset = reading.load_config(config)
    wanted = dataset.decontamination
    if wanted is None:
        typer.echo(f"{dataset.name} has no decontamination")
        return
    configured = [stages_benchmarks.benchmark_of(benchmark) for benchmark in wanted.benchmarks]
    files = [benchmark.files() for benchmark in configured]
    _, _, facts = stages_benchmarks.index_benchmarks(configured, files, wanted.seed_words, wanted.threshold)
    for benchmark, benchmark_files, fact in zip(configured, files, facts, strict=True):
        pinned = "pinned" if benchmark.sha256 else "not pinned"
        commit = decontamination_items.hub_commit(benchmark_files)
        commit_text = f"commit {commit}, " if commit else ""
        typer.echo(
            f"{fact.name}: {fact.items:,} items of {benchmark.path}, {pinned}, {commit_text}sha256: {fact.sha256}"
        )
        for item in fact.undecidable:
            typer.echo(f"  cannot be decided: {visible(item)}")
        if save:
            decontamination_items.save_files(benchmark_files, save / fact.name, benchmark.endpoint_url)
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
                f"benchmark.name_twice: two benchmarks are called {benchmark.name}",
                where=f"{first.path} and {benchmark.path}",
                next_step="give each a name: --benchmark NAME=PATH",
            )


def _benchmark(argument: str, fields: Fields, endpoint_url: str | None) -> Benchmark:
    name, equals, path = argument.partition("=")
    if not equals or not name or "/" in name:
        name, path = argument.rstrip("/").rpartition("/")[2].partition(".")[0] or argument, argument
    return decontamination_items.Benchmark(name, config_dataset.absolute_here(path), fields, endpoint_url)
