"""Commands that move files."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.commands.app import TRANSFERS, command
from corpusmill.commands.options import AnyShard, ConfigFile, claimed_build
from corpusmill.errors import ConfigError, InvalidValueError
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.engine.work_folder import small
    from corpusmill.storage import mirrored
    from corpusmill.upload.stages import upload as stages_upload


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
) -> None:
    """Race writers in a bucket to check that it can hold a work folder. Fails if the store ignores conditions."""
    try:
        bucket, folder = mirrored.place_of(place)
    except InvalidValueError as error:
        raise ConfigError(f"{error.code}: {error}", where=place) from None
    small.require_conditions(bucket, folder)
    small.race_writers(bucket, folder, races)
    typer.echo(f"{place}: {races:,} races of {small.RACERS} writers for a new and for an old object: one winner each")
