"""Commands on finished datasets, wherever they were built, and their transfers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from corpusmill.commands.app import DATASETS, TRANSFERS, command
from corpusmill.commands.options import (
    EXIT_FAILED,
    SEED,
    AnyShard,
    AsJson,
    ConfigFile,
    EndpointUrl,
    KnownConfig,
    Page,
    Seed,
    claimed_build,
    is_page,
    require_earlier,
    show,
    write_page,
)
from corpusmill.errors import InvalidValueError
from corpusmill.lazy import lazily
from corpusmill.report.figures import counted

with lazily:
    from corpusmill.config import reading
    from corpusmill.engine.work_folder import small
    from corpusmill.inspect import difference as inspect_difference
    from corpusmill.inspect.datasets import merge as datasets_merge
    from corpusmill.inspect.datasets import repair as datasets_repair
    from corpusmill.storage import mirrored
    from corpusmill.training.mixture import folders
    from corpusmill.upload.stages import upload as stages_upload


@command(DATASETS, "merge outputs/web/latest/megatron --output all_text_document")
def merge(
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="INPUT", help="Megatron prefixes or .ds files in order, or one folder of them."),
    ],
    output: Annotated[Path, typer.Option(help="The merged prefix, or the merged .ds file.")],
) -> None:
    """Merge Megatron parts, or Nanoset files, into one. Memory does not grow with the number of documents."""
    counts = datasets_merge.merge_exports(inputs, output)
    typer.echo(f"{output}: " + ", ".join(counted(count, name.removesuffix("s")) for name, count in counts.items()))


@command(DATASETS, "mix outputs/web/latest=0.7 outputs/books/latest=0.3 --budget-tokens 20B --output mixture")
def mix(
    datasets: Annotated[
        list[str], typer.Argument(metavar="FOLDER[=WEIGHT]", help="Finished datasets: .../<name>/<version>.")
    ],
    output: Annotated[Path, typer.Option(help="The folder for the trainers' files, mixture.html and mixture.json.")],
    budget_tokens: Annotated[str, typer.Option(help="Tokens to train on, such as 20B.")],
    sequence_tokens: Annotated[int, typer.Option(help="Tokens the model sees at once.", min=1)] = 2048,
    alpha: Annotated[
        float | None, typer.Option(help="Instead of weights: sizes to this power, from 0 (uniform) to 1 (by size).")
    ] = None,
    seed: Seed = SEED,
    split: Annotated[str, typer.Option(help="Megatron's --split: training, validation, test.")] = "969,30,1",
) -> None:
    """Mix finished datasets: compute epochs of each at a token budget, and write the trainers' files."""
    folders.mix_folders(
        datasets,
        output,
        budget=budget_tokens,
        sequence_tokens=sequence_tokens,
        alpha=alpha,
        seed=seed,
        split=split,
        say=typer.echo,
    )


@command(DATASETS, "repair outputs/web backup/web")
def repair(
    first: Annotated[str, typer.Argument(help="One copy: <destination>/<name>, or a version's folder below it.")],
    second: Annotated[str, typer.Argument(help="The other copy of the same version.")],
    check: Annotated[bool, typer.Option("--check", help="Only compare; exit 1 if anything is wrong.")] = False,
    first_endpoint_url: Annotated[str | None, typer.Option(help="For a copy on an S3-compatible store.")] = None,
    second_endpoint_url: Annotated[str | None, typer.Option(help="For a copy on an S3-compatible store.")] = None,
) -> None:
    """Compare two copies of a finished dataset file by file, and repair each from the other."""
    compared = datasets_repair.compare_copies(
        first, second, first_endpoint_url=first_endpoint_url, second_endpoint_url=second_endpoint_url
    )
    typer.echo(datasets_repair.render_compared(compared))
    if check:
        raise typer.Exit(EXIT_FAILED if compared.wrong_first or compared.wrong_second else 0)
    repaired = datasets_repair.repair_copies(compared)
    typer.echo(f"repaired: {repaired[0]:,} at the first, {repaired[1]:,} at the second")


@command(DATASETS, "diff backup/web/latest outputs/web/latest --config web.yaml")
def diff(
    old: Annotated[str, typer.Argument(help="A version's folder or address; with --config also its name, or latest.")],
    new: Annotated[str, typer.Argument(help="The version to compare with OLD.")],
    config: KnownConfig = None,
    as_json: AsJson = False,
    page: Page = None,
    old_endpoint_url: Annotated[str | None, typer.Option(help="For a version on an S3-compatible store.")] = None,
    new_endpoint_url: Annotated[str | None, typer.Option(help="For a version on an S3-compatible store.")] = None,
) -> None:
    """Show what differs between two versions: documents, tokens, duplicates, settings, program versions."""
    if page is not None:
        require_earlier(page, "--page", "a page", is_page)
    dataset = reading.load_config(config) if config else None
    difference = inspect_difference.compare_versions(old, new, dataset, (old_endpoint_url, new_endpoint_url))
    show(difference, as_json, inspect_difference.render_difference)
    if page is not None:
        write_page(page, inspect_difference.render_difference_page(difference))


@command(TRANSFERS, "download web.yaml")
def download(config: ConfigFile, shard: AnyShard = None) -> None:
    """Fetch a dataset's sources, verified, for a later build. Resumes an interrupted download."""
    with claimed_build(config) as build:
        for unit in build.units("download") if shard is None else [f"{shard:05d}"]:
            build.run("download", unit)
            receipt = build.receipt("download", unit)
            counts = receipt.counts
            typer.echo(f"shard {unit}  {_in_words(counts['files'], counts['source_bytes'])}{_wire(receipt.traffic)}")


@command(TRANSFERS, "upload web.yaml")
def upload(config: ConfigFile) -> None:
    """Deliver the finished dataset to all its destinations again, verified; skips what they already hold."""
    with claimed_build(config) as build:
        for unit in build.units("upload"):
            build.run("upload", unit)
            receipt = build.receipt("upload", unit)
            counts = receipt.counts
            sent = f"{receipt.traffic['files_sent']:,} sent of {_in_words(counts['files'], counts['dataset_bytes'])}"
            typer.echo(f"{stages_upload.destination_folder(build, unit)}  {sent}{_wire(receipt.traffic)}")


def _in_words(files: int, size_bytes: int) -> str:
    return f"{files:,} files, {size_bytes:,} bytes"


def _wire(traffic: dict[str, int]) -> str:
    if "requests" not in traffic:
        return ""
    moved = traffic["bytes_received"] + traffic["bytes_sent"]
    return f"; {moved:,} bytes over the wire in {traffic['requests']:,} requests, {traffic['retries']:,} retries"


@command(TRANSFERS, "check-store s3://bucket/work")
def check_store(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="A work folder: s3://bucket/prefix.")],
    races: Annotated[
        int, typer.Option(help="How often 16 writers race, for new objects and for existing ones.", min=1)
    ] = 20,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Race writers in a bucket to check that it can hold a work folder. Fails if the store ignores conditions."""
    if endpoint_url is not None:
        os.environ["AWS_ENDPOINT_URL"] = endpoint_url  # a work folder's comes from the environment, in every process
    try:
        bucket, folder = mirrored.place_of(place)
    except InvalidValueError as error:
        raise typer.BadParameter(f"{place}: {error}", param_hint="PLACE") from None
    small.require_conditions(bucket, folder)
    small.race_writers(bucket, folder, races)
    typer.echo(f"{place}: {races:,} races of {small.RACERS} writers for a new and for an old object: one winner each")
