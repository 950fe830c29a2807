"""Takedowns and opt-outs: documents put on the list, the log, and their text removed from older versions and files."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from corpusmill.commands.app import BUILD, command
from corpusmill.commands.options import EXIT_FAILED, ConfigFile, Remove, claimed_dataset
from corpusmill.lazy import lazily
from corpusmill.report.figures import counted

with lazily:
    from corpusmill.builds import graph, plan
    from corpusmill.builds.forgetting import purge as forgetting_purge
    from corpusmill.builds.forgetting import remains
    from corpusmill.config import dataset as config_dataset
    from corpusmill.steps import takedowns


@command(BUILD, "forget web.yaml --ids takedown.txt --by legal@example.org")
def forget(
    config: ConfigFile,
    ids: Annotated[
        str | None,
        typer.Option(help="Documents to put on the list: one id per line (.txt), or rows like the list's."),
    ] = None,
    by: Annotated[str, typer.Option(help="Who asked; recorded in the list and in the log.")] = "",
    purge: Annotated[
        bool,
        typer.Option("--purge", help="List what holds text of documents that the newest build has forgotten."),
    ] = False,
    remove: Remove = False,
) -> None:
    """Put documents on the list of `forget`, or purge their text; without options, print when each was removed.

    Exits 1 if none of the ids matches a document of the last build.
    """
    if by and not ids:
        raise typer.BadParameter("--by needs --ids")
    if remove and not purge:
        raise typer.BadParameter("--remove needs --purge")
    failed = False
    with claimed_dataset(config, remove_empty=True) as dataset:
        if ids:
            listed = takedowns.require_own_list(dataset.forget)
            wanted = takedowns.read_requests(listed, ids)
            new = takedowns.add_requests(listed, wanted, by)
            rows = f"{counted(len(wanted), 'row')}, {new:,} of them new on {listed.path}"
            typer.echo(f"{rows}; the next build drops these documents")
            requested = remains.match_requests(dataset, listed, wanted)
            typer.echo(str(requested))
            failed = requested.is_failure
        if purge and not remove:
            typer.echo(forgetting_purge.render_preview(graph.open_build(plan.plan_dataset(dataset))))
        elif purge:
            purged = forgetting_purge.purge(graph.open_build(plan.plan_dataset(dataset)))
            typer.echo(forgetting_purge.render_purge(purged))
            failed = failed or bool(purged.remains or purged.unsearched)
        if not ids and not purge:
            for row in takedowns.read_log(config_dataset.work_of(dataset) / takedowns.LOG):
                typer.echo(json.dumps(row))
    if failed:
        raise typer.Exit(EXIT_FAILED)
