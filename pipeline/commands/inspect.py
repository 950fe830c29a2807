"""Commands that look into what was built."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from corpusmill.api import planned
from corpusmill.commands.app import INSPECT, command
from corpusmill.commands.options import EXIT_FAILED, ConfigFile, Format, KnownConfig, Record, Seed, Workers


@command(INSPECT, "verify web.yaml --version latest")
def verify(
    config: ConfigFile,
    workers: Workers = None,
    sample: Annotated[
        int | None, typer.Option(help="Instead: make this many random records again from their sources.", min=1)
    ] = None,
    seed: Seed = 1234,
    version: Annotated[
        str | None,
        typer.Option(help="Instead: verify this delivered version (12 digits, or latest) at every destination alone."),
    ] = None,
) -> None:
    """Read everything again: digests, accounts, exports, destinations. Exits 1 when something is wrong."""
    from corpusmill.builds.local import worker_count
    from corpusmill.config import load_config
    from corpusmill.lineage import render_verified, verify_records
    from corpusmill.stages.description import VERSION
    from corpusmill.verify import render, render_version, verify_build, verify_version

    if sample:
        typer.echo(render_verified(verify_records(planned(config), sample, seed)))
        return
    if version is None:
        build = planned(config)
        verification = verify_build(build, workers=worker_count(workers, build.plan.source_bytes()))
        typer.echo(render(verification))
    else:
        if version != "latest" and not VERSION.fullmatch(version):
            raise typer.BadParameter(f"{version!r} is neither 12 hex digits nor latest", param_hint="--version")
        verification = verify_version(load_config(config), version, workers=worker_count(workers))
        typer.echo(render_version(verification))
    if verification.findings:
        raise typer.Exit(EXIT_FAILED)


@command(INSPECT, "trace web.yaml --format megatron --file 0 --record 17")
def trace(
    config: ConfigFile,
    format: Format,
    file: Annotated[str, typer.Option(help="The export file's number or name.")],
    record: Record,
) -> None:
    """Say which documents are in one record of an export: file, line, id, and the spans of tokens and bytes."""
    from corpusmill.lineage import render_trace
    from corpusmill.lineage import trace as trace_record

    number_or_name = int(file) if file.isdigit() else file
    typer.echo(render_trace(trace_record(planned(config), format, number_or_name, record)))


@command(INSPECT, "locate web.yaml --source news.jsonl --line 17")
def locate(
    config: ConfigFile,
    source: Annotated[str | None, typer.Option(help="A source file's name.")] = None,
    line: Annotated[int | None, typer.Option(help="The line in it, from 1.", min=1)] = None,
    document_id: Annotated[str | None, typer.Option("--id", help="Or a document's id.")] = None,
) -> None:
    """Say where a document ended up: its records, or what was removed and which earlier text it repeats."""
    from corpusmill.lineage import locate as locate_line
    from corpusmill.lineage import locate_id, render_located

    build = planned(config)
    if document_id is not None:
        typer.echo("\n\n".join(render_located(located) for located in locate_id(build, document_id)))
    elif source is not None and line is not None:
        typer.echo(render_located(locate_line(build, source, line)))
    else:
        raise typer.BadParameter("give --source and --line, or --id")


@command(INSPECT, "peek outputs/web/latest/nanoset/00000_00000_doc_shuffled.ds --record 5")
def peek(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A .tar, .npy, .bin or .ds file of a finished dataset.")],
    record: Record = 0,
    tokens: Annotated[int, typer.Option(help="At most so many tokens of it.", min=1)] = 512,
    config: KnownConfig = None,
) -> None:
    """Show one record of any export as ids and as text."""
    from corpusmill.config import load_config
    from corpusmill.datasets.peek import peek_record, render_peek

    typer.echo(render_peek(peek_record(path, record, tokens, load_config(config) if config else None)))
