"""Commands that move files: `corpusmill download`, `corpusmill upload` and `corpusmill repair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="A dataset configuration (YAML).")]


def download(
    config: ConfigFile,
    shard: Annotated[int | None, typer.Option(help="Only this shard's number.", min=0)] = None,
) -> None:
    """Fetch a dataset's sources, verified, for a later build. Goes on where an earlier download broke off."""
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.config import load_config, work_of
    from corpusmill.engine.claim import claimed
    from corpusmill.stages.graph import open_build

    dataset = load_config(config)
    with claimed(work_of(dataset)):
        planned = open_build(plan_dataset(dataset))
        for unit in planned.units("download") if shard is None else [f"{shard:05d}"]:
            planned.run("download", unit)
            receipt = planned.receipt("download", unit)
            counts = receipt.counts
            typer.echo(f"shard {unit}  {_in_words(counts['files'], counts['source_bytes'])}{_wire(receipt.traffic)}")


def upload(config: ConfigFile) -> None:
    """Deliver the finished dataset to all its destinations again, verified; what they hold already is not sent."""
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.config import load_config, work_of
    from corpusmill.engine.claim import claimed
    from corpusmill.stages.graph import open_build
    from corpusmill.stages.upload import destination_folder

    dataset = load_config(config)
    with claimed(work_of(dataset)):
        planned = open_build(plan_dataset(dataset))
        for unit in planned.units("upload"):
            planned.run("upload", unit)
            receipt = planned.receipt("upload", unit)
            counts = receipt.counts
            sent = f"{receipt.traffic['files_sent']:,} sent of {_in_words(counts['files'], counts['dataset_bytes'])}"
            typer.echo(f"{destination_folder(planned, unit)}  {sent}{_wire(receipt.traffic)}")


def repair(
    first: Annotated[str, typer.Argument(help="One copy: <destination>/<name>, or a version's folder below it.")],
    second: Annotated[str, typer.Argument(help="The other copy of the same version.")],
    check: Annotated[bool, typer.Option("--check", help="Only compare; exit 1 when something is wrong.")] = False,
    first_endpoint_url: Annotated[str | None, typer.Option(help="For S3-compatible stores.")] = None,
    second_endpoint_url: Annotated[str | None, typer.Option(help="For S3-compatible stores.")] = None,
) -> None:
    """Compare two copies of a finished dataset file by file, and put right at each what the other has right."""
    from corpusmill.verify.repair import compare_copies, render_compared, repair_copies

    compared = compare_copies(
        first, second, first_endpoint_url=first_endpoint_url, second_endpoint_url=second_endpoint_url
    )
    typer.echo(render_compared(compared))
    if check:
        raise typer.Exit(1 if compared.wrong_first or compared.wrong_second else 0)
    repaired = repair_copies(compared)
    typer.echo(f"repaired: {repaired[0]:,} at the first, {repaired[1]:,} at the second")


def _in_words(files: int, size_bytes: int) -> str:
    return f"{files:,} files, {size_bytes:,} bytes"


def _wire(traffic: dict[str, int]) -> str:
    if "requests" not in traffic:
        return ""
    moved = traffic["bytes_received"] + traffic["bytes_sent"]
    return f"; {moved:,} bytes over the wire in {traffic['requests']:,} requests, {traffic['retries']:,} retries"
