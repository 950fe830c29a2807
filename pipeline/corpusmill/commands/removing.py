"""What is removed: intermediate folders, old versions, and the text of takedowns and opt-outs; their log."""

from __future__ import annotations

import json
from pathlib import Path
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
    from corpusmill.config import reading
    from corpusmill.engine import garbage as engine_garbage
    from corpusmill.engine import runs
    from corpusmill.engine.work_folder import small
    from corpusmill.steps import takedowns
    from corpusmill.upload.stages import retention


@command(BUILD, "gc web.yaml --remove")
def gc(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="A dataset configuration or, if it is gone, the dataset's work folder."),
    ],
    remove: Remove = False,
    keep_plans: Annotated[
        int, typer.Option(help="How many of the last delivered plans keep their folders.", min=1)
    ] = 1,
    destinations: Annotated[
        bool, typer.Option("--destinations", help="Instead: old versions at the destinations, never latest.")
    ] = False,
    keep_versions: Annotated[
        int | None,
        typer.Option(
            help="With --destinations: how many of the newest to keep; default: keep_versions, else 3.", min=1
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Instead: the whole dataset, work folder and latest, too.")
    ] = False,
) -> None:
    """List (or remove) intermediate folders that the newest build no longer needs, or delivered versions."""
    if destinations and everything:
        raise typer.BadParameter("give --destinations or --everything, not both")
    if keep_versions is not None and not destinations:
        raise typer.BadParameter("--keep-versions needs --destinations")
    if config.is_dir():
        config = runs.last_configuration(config)
    work = config_dataset.work_of(reading.load_config(config))
    if not small.is_shared(work) and not work.is_dir():
        typer.echo(f"{work} does not exist: nothing to remove")
        return
    with claimed_dataset(config, remove_empty=everything) as dataset:
        if everything:
            typer.echo(retention.render_dataset(dataset, removed=remove))
            if remove:
                retention.remove_dataset(dataset)
            return
        if destinations:
            old = retention.find_old_versions(dataset, keep_versions or dataset.keep_versions or 3)
            for version in old if remove else ():
                retention.remove_old_version(version)
            typer.echo(retention.render_old_versions(old, removed=remove))
            return
        garbage = engine_garbage.find_garbage(work, graph.GRAPH, keep_plans=keep_plans, config=dataset)
        if remove:
            garbage = engine_garbage.remove_garbage(work, graph.GRAPH, garbage)
    typer.echo(engine_garbage.render_garbage(garbage, removed=remove))


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
