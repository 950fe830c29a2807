"""Commands that inspect a build, and one that tries steps on a few documents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from corpusmill.api import planned
from corpusmill.commands import options
from corpusmill.commands.app import INSPECT, app, command
from corpusmill.commands.options import (
    EXIT_FAILED,
    SEED,
    AnyFormat,
    AsJson,
    ConfigFile,
    KnownConfig,
    Record,
    Seed,
    Workers,
    is_page,
    require_earlier,
    show,
    write_page,
)
from corpusmill.errors import visible
from corpusmill.lazy import lazily

with lazily:
    import pydantic

    from corpusmill import training
    from corpusmill.builds import local
    from corpusmill.config import reading, sections
    from corpusmill.inspect import lineage
    from corpusmill.inspect import verify as inspect_verify
    from corpusmill.inspect.datasets import peek as datasets_peek
    from corpusmill.inspect.datasets import repair as datasets_repair
    from corpusmill.report import tried as report_tried
    from corpusmill.steps import chain
    from corpusmill.upload.stages import description


@command(INSPECT, "verify web.yaml --version latest")
def verify(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="A configuration (YAML), or the folder of a finished dataset: a path, s3://, gs:// or hf://.",
        ),
    ],
    workers: Workers = None,
    sample: Annotated[
        int | None, typer.Option(help="Instead: rebuild this many random records from their sources.", min=1)
    ] = None,
    seed: Seed = SEED,
    version: Annotated[
        str | None,
        typer.Option(help="Instead: verify this delivered version (12 digits, or latest) at every destination."),
    ] = None,
    as_json: AsJson = False,
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
) -> None:
    """Read everything again: digests, accounts, exports, destinations. Exits 1 if anything is wrong."""
    if seed != SEED and not sample:
        raise typer.BadParameter("--seed draws the records of --sample")
    config = Path(place)
    if "://" in place or config.is_dir():
        if sample or version is not None:
            raise typer.BadParameter("--sample and --version need a configuration")
        store = datasets_repair.version_store(place, options.endpoint(endpoint_url, anonymous))
        verification = inspect_verify.verify_copy(store, workers=local.worker_count(workers))
        show(verification, as_json, inspect_verify.render_version)
    elif endpoint_url or anonymous:
        raise typer.BadParameter("--endpoint-url and --anonymous are for a folder: a configuration has its own")
    elif sample:
        if version is not None:
            raise typer.BadParameter("--sample rebuilds records of the newest build, and takes no --version")
        typer.echo(lineage.render_verified(lineage.verify_records(planned(config), sample, seed)))
        return
    elif version is None:
        build = planned(config)
        verification = inspect_verify.verify_build(
            build, workers=local.worker_count(workers, build.plan.source_bytes())
        )
        show(verification, as_json, inspect_verify.render)
    else:
        if version != "latest" and not description.VERSION.fullmatch(version):
            raise typer.BadParameter(f"{version!r} is neither 12 hex digits nor latest", param_hint="--version")
        verification = inspect_verify.verify_version(
            reading.load_config(config), version, workers=local.worker_count(workers)
        )
        show(verification, as_json, inspect_verify.render_version)
    if verification.findings:
        raise typer.Exit(EXIT_FAILED)


@command(INSPECT, "trace web.yaml --format megatron --file 0 --record 17")
def trace(
    config: ConfigFile,
    format: AnyFormat = None,
    file: Annotated[str | None, typer.Option(help="The export file's number or name.")] = None,
    record: Record = None,
    megatron_cache: Annotated[
        Path | None,
        typer.Option(help="Instead of a file: the --data-cache-path of the Megatron run."),
    ] = None,
    step: Annotated[int | None, typer.Option(help="The training step, from 1; with --batch.", min=1)] = None,
    batch: Annotated[int | None, typer.Option(help="Samples per step, over all ranks.", min=1)] = None,
    first_sample: Annotated[
        int | None,
        typer.Option(help="Instead of a step: this sample, from 0, or with --batch that many from it on.", min=0),
    ] = None,
    run_sequence_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens the model saw at once: required for a Nanoset; checked against a cache.", min=1),
    ] = None,
    run_seed: Annotated[
        int | None,
        typer.Option(
            help="The run's seed: for a Nanoset (without it, datatrove's order); checked against a cache.",
            min=0,
            max=2**32 - 1,
        ),
    ] = None,
    run_split: Annotated[
        str | None, typer.Option(help="The run's --split, such as 969,30,1: checked against a cache.")
    ] = None,
    mixture: Annotated[
        Path | None,
        typer.Option(help="For a Nanoset of several folders: mixture.json of `corpusmill mix`, with seed and tokens."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the documents in one record of an export, or in one step of a training run on it: file, line, id.

    Each with its spans of tokens and bytes. For a step of Megatron: --megatron-cache FOLDER --step N --batch SAMPLES.
    For nanotron: --format nanoset --run-seed SEED --run-sequence-tokens TOKENS --step N --batch SAMPLES; with several
    folders --format nanoset --mixture FILE --step N --batch SAMPLES.
    """

    if step is not None or first_sample is not None:
        first, count = samples_of(step, batch, first_sample)
        if file is not None or record is not None or format != (None if megatron_cache else "nanoset"):
            raise typer.BadParameter(
                "a step or sample takes --megatron-cache FOLDER or --format nanoset, and no --file or --record"
            )
        samples = training.open_samples(
            planned(config),
            megatron_cache=megatron_cache,
            sequence_tokens=run_sequence_tokens,
            seed=run_seed,
            split=run_split,
            mixture=mixture,
        )
        if as_json:
            show(list(training.trace_samples(samples, first, count)), as_json, str)
            return
        typer.echo(visible(samples.title))
        for sample in training.trace_samples(samples, first, count):
            typer.echo(f"\n{training.render_sample(sample)}")
        return
    run_options = (megatron_cache, batch, run_sequence_tokens, run_seed, run_split, mixture)
    if format is None or file is None or any(option is not None for option in run_options):
        raise typer.BadParameter("give --format and --file, or --step and --batch, or --first-sample")
    number_or_name = int(file) if file.isdigit() else file
    show(lineage.trace(planned(config), format, number_or_name, record or 0), as_json, lineage.render_trace)


def samples_of(step: int | None, batch: int | None, first_sample: int | None) -> tuple[int, int]:
    """(first sample, how many) of a step or from a sample on; BadParameter unless given in one of the two ways."""
    if (step is None) == (first_sample is None) or (step is not None and batch is None):
        raise typer.BadParameter("give --step and --batch, or --first-sample")
    if step is not None and batch is not None:
        return (step - 1) * batch, batch
    return first_sample or 0, batch or 1


@command(INSPECT, "locate web.yaml --source news.jsonl --line 17")
def locate(
    config: ConfigFile,
    source: Annotated[str | None, typer.Option(help="A source file's name.")] = None,
    line: Annotated[int | None, typer.Option(help="The line in --source, from 1.", min=1)] = None,
    document_id: Annotated[
        str | None, typer.Option("--id", help="Instead of --source and --line: a document's id.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print where a document ended up: its records, or what was removed and which earlier text it repeats."""
    if document_id is not None and source is None and line is None:
        located = list(lineage.locate_id(planned(config), document_id))
        show(located, as_json, lambda located: "\n\n".join(map(lineage.render_located, located)))
    elif document_id is None and source is not None and line is not None:
        show(lineage.locate(planned(config), source, line), as_json, lineage.render_located)
    else:
        raise typer.BadParameter("give --source and --line, or --id")


@command(INSPECT, "peek outputs/web/latest/nanoset/00000_00000_doc_shuffled.ds --record 5")
def peek(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A .tar, .npy, .bin or .ds file of a finished dataset.")],
    record: Record = None,
    tokens: Annotated[int, typer.Option(help="Show at most this many tokens.", min=1)] = 512,
    config: KnownConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show one record of any export as ids and as text."""
    known = reading.load_config(config) if config else None
    show(datasets_peek.peek_record(path, record or 0, tokens, known), as_json, datasets_peek.render_peek)


step_app = typer.Typer(help="Try steps of your own (docs/steps.md).", no_args_is_help=True)
app.add_typer(step_app, name="step", rich_help_panel=INSPECT)


@command(INSPECT, "step try my_filters:long_enough data/news.jsonl --set words=100", name="try", to=step_app)
def try_step(
    use: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A function or class, as `use` names it.")],
    inputs: options.Inputs,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting, as in `with` (VALUE: JSON, or text); repeat for several."
        ),
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option(help="A field that the step asks for, as in `fields`; repeat for several.")
    ] = None,
    documents: Annotated[int, typer.Option(help="How many documents to read.", min=1, max=10_000)] = 100,
    show: Annotated[int, typer.Option(help="How many documents to show per outcome.", min=0)] = 5,
    page: options.Page = None,
    on_error: Annotated[str, typer.Option(help="fail, keep or drop, as in a configuration.")] = "fail",
    text_field: options.TextField = "text",
    id_field: Annotated[str, typer.Option(help="The JSON key that holds a document's id.")] = "id",
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
) -> None:
    """Show what a step would do to the first documents of some files, before and after side by side."""
    if page is not None:
        require_earlier(page, "--page", "a page", is_page)
    given = dict(map(_setting, settings or ()))
    wanted: dict[str, Any] = {"use": use, "with": given, "fields": field or None, "on_error": on_error}
    try:
        step = sections.StepConfig.model_validate(wanted)
    except pydantic.ValidationError as error:
        problems = [f"{problem['loc'][0]} {reading.explained(problem)}" for problem in error.errors()]
        raise typer.BadParameter("; ".join(problems)) from None
    tried = chain.try_steps(
        [step],
        inputs,
        documents=documents,
        text_field=text_field,
        id_field=id_field,
        endpoint_url=options.endpoint(endpoint_url, anonymous),
    )
    typer.echo(report_tried.render_tried(tried, show=show, width=shutil.get_terminal_size((100, 24)).columns))
    if page is not None:
        write_page(page, report_tried.render_tried_page(tried, use))


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
