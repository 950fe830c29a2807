"""Commands that make a dataset: its configuration, what a build will do, and the build."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from corpusmill.api import planned
from corpusmill.commands.app import BUILD, command, config_app
from corpusmill.commands.options import (
    WORKERS,
    ConfigFile,
    Format,
    Shard,
    Verify,
    Workers,
    claimed_build,
    claimed_dataset,
)
from corpusmill.errors import ConfigError


@command(BUILD, "config example", name="example", to=config_app)
def config_example(
    short: Annotated[bool, typer.Option("--short", help="Only what a first build needs: 12 lines.")] = False,
) -> None:
    """Print a complete configuration with every key explained."""
    from corpusmill.config.starter import example_text, starter

    typer.echo(starter() if short else example_text(), nl=False)


@command(BUILD, "config check web.yaml", name="check", to=config_app)
def config_check(config: ConfigFile) -> None:
    """Check a configuration: its keys and values, its tokenizer, and that its sources exist."""
    from corpusmill.builds.plan import check_dataset
    from corpusmill.config import load_config

    typer.echo(check_dataset(load_config(config)))


@command(BUILD, "config lock web.yaml", name="lock", to=config_app)
def config_lock(config: ConfigFile) -> None:
    """Write the tokenizer's sha256 and revision into the file's lock section; another vocabulary is then refused."""
    from corpusmill.stages.tokenize import lock_file

    lock = lock_file(config)
    typer.echo(f"{config}: locked to sha256 {lock.tokenizer_sha256}, revision {lock.tokenizer_revision or 'none'}")


@command(BUILD, "estimate web.yaml")
def estimate(config: ConfigFile) -> None:
    """Estimate a build from an unbiased sample: tokens, duplicates, hours, memory, disk."""
    from corpusmill.builds.estimate import estimate_dataset, render_estimate
    from corpusmill.config import load_config

    typer.echo(render_estimate(estimate_dataset(load_config(config), tell=partial(typer.echo, err=True))))


@command(BUILD, "plan web.yaml")
def plan(config: ConfigFile) -> None:
    """Show what a build would reuse, what it would run, why, and what that costs. Runs nothing."""
    from corpusmill.builds.costs import stated_costs
    from corpusmill.builds.preflight import require_tokenizer
    from corpusmill.engine.preview import preview, render_preview

    build = planned(config)
    require_tokenizer(build)
    steps = preview(build)
    typer.echo(render_preview(steps))
    typer.echo(stated_costs(build, steps))
    for file in build.plan.uncut or ():
        typer.echo(f"{file.name}: {file.why}; to split it: {file.remedy}")
    if build.plan.others:
        typer.echo(build.plan.others)


@command(BUILD, "build web.yaml --workers 2")
def build(
    config: ConfigFile,
    workers: Workers = None,
    verify: Verify = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print what every step did.")] = False,
) -> None:
    """Build a dataset on this machine: the same steps and the same bytes as under Airflow."""
    from corpusmill.builds.estimate import compare_with_actual
    from corpusmill.builds.local import run_watched
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.report.summary import from_json
    from corpusmill.report.terminal import print_summary
    from corpusmill.stages.report import HTML, SUMMARY, UNIT

    logging.getLogger().setLevel(logging.INFO if verbose else logging.WARNING)
    with claimed_dataset(config) as dataset:
        built = run_watched(plan_dataset(dataset, to_build=True), workers=workers, verify=verify)
    if compared := compare_with_actual(built):
        typer.echo(compared)
    folder = built.folder("report", UNIT)
    print_summary(from_json((folder / SUMMARY).read_bytes()), folder / HTML)


@command(BUILD, "reprocess web.yaml --stage tokenize --shard 0")
def reprocess(
    config: ConfigFile,
    stage: Annotated[str, typer.Option(help="The first stage to rerun, such as tokenize.")],
    shard: Shard,
    workers: Workers = None,
) -> None:
    """Reprocess one shard from a stage on, run what depends on it, and print which outputs changed."""
    from corpusmill.builds.local import run_watched
    from corpusmill.builds.reprocess import ask_for_shard, digests, render_comparison

    with claimed_build(config) as build:
        before = digests(build)
        request = ask_for_shard(build, stage, f"{shard:05d}")
        after = digests(run_watched(build.plan_receipt, workers=workers))
    typer.echo(render_comparison(request, before, after))


@command(BUILD, "run-task work/books/plan/*/receipt.json tokenize 1/16")
def run_task(
    plan_receipt: Annotated[str, typer.Argument(metavar="PLAN", help="The receipt of a plan.", show_default=False)],
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="A stage, such as tokenize.", show_default=False)],
    task: Annotated[
        str,
        typer.Argument(metavar="TASK", help="`00007`, `00000 to 00006`, or `3/16`: the third of at most 16."),
    ],
    workers: Annotated[int, typer.Option(help=WORKERS, min=1)] = 1,
    again: Annotated[bool, typer.Option("--again", help="Also rerun finished steps.")] = False,
    verify: Verify = False,
) -> None:
    """Run one task of a planned build, for schedulers. Each stage must end before the next begins."""
    from corpusmill.builds.local import run_task as run
    from corpusmill.builds.processes import end_with_task
    from corpusmill.mirrored import address_of
    from corpusmill.work_folder.moved import tell

    _require_plan(plan_receipt)
    end_with_task()
    logging.getLogger().setLevel(logging.INFO)
    try:
        for receipt in run(plan_receipt, stage, task, processes=workers, again=again, verify=verify):
            typer.echo(address_of(receipt))
    finally:
        tell()


def _require_plan(plan_receipt: str) -> None:
    """ConfigError unless a path or address can be that of a plan's receipt."""
    folders = PurePosixPath(plan_receipt if "://" in plan_receipt else Path(plan_receipt).absolute()).parts
    if folders[-3:-2] != ("plan",) or folders[-1] != "receipt.json":
        raise ConfigError(
            "this is not the receipt of a plan",
            where=plan_receipt,
            expected="work/<name>/plan/<plan>/receipt.json, as claim gives it in CORPUSMILL_PLAN",
            next_step="corpusmill plan CONFIG writes one; corpusmill build CONFIG needs none",
        )


@command(BUILD, "claim web.yaml -- bash arrays.sh")
def claim(
    config: ConfigFile,
    program: Annotated[
        list[str], typer.Argument(metavar="PROGRAM...", help="The program that runs the tasks, after `--`.")
    ],
) -> None:
    """Plan a dataset and lock it while a program runs its tasks on other machines (docs/slurm.md)."""
    from corpusmill.builds.local import run_claimed
    from corpusmill.config import load_config

    raise typer.Exit(run_claimed(load_config(config), program))


@command(BUILD, "export web.yaml --format nanoset")
def export(config: ConfigFile, format: Format, workers: Workers = None) -> None:
    """Build one format of a configured dataset and what it needs; uploads nothing."""
    from corpusmill.builds.local import run_steps
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.config import check_config
    from corpusmill.stages.graph import open_build

    with claimed_dataset(config) as dataset:
        values = dataset.model_dump(mode="json", exclude_none=True)
        values["exports"] = {format: values["exports"].get(format, {})}
        plan_receipt = plan_dataset(check_config(values, where=f"{config} with --format {format}"))
        run_steps(plan_receipt, workers=workers, until="manifest")
    built = open_build(plan_receipt)
    for unit in built.units("export"):
        typer.echo(built.folder("export", unit) / format)
    typer.echo(built.folder("manifest", "dataset"))


@command(BUILD, "gc web.yaml --remove")
def gc(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="A dataset configuration or, if it is gone, the dataset's work folder."),
    ],
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete; without it the command only prints a list.")
    ] = False,
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
    from corpusmill.config import load_config, work_of
    from corpusmill.engine.garbage import find_garbage, remove_garbage, render_garbage
    from corpusmill.engine.runs import last_configuration
    from corpusmill.stages.graph import GRAPH
    from corpusmill.stages.retention import (
        find_old_versions,
        remove_dataset,
        remove_old_version,
        render_dataset,
        render_old_versions,
    )
    from corpusmill.work_folder.small import is_shared

    if destinations and everything:
        raise typer.BadParameter("give --destinations or --everything, not both")
    if keep_versions is not None and not destinations:
        raise typer.BadParameter("--keep-versions needs --destinations")
    if config.is_dir():
        config = last_configuration(config)
    work = work_of(load_config(config))
    if not is_shared(work) and not work.is_dir():
        typer.echo(f"{work} does not exist: nothing to remove")
        return
    with claimed_dataset(config, remove_empty=everything) as dataset:
        if everything:
            typer.echo(render_dataset(dataset))
            if remove:
                remove_dataset(dataset)
                typer.echo(f"removed the dataset {dataset.name}")
            return
        if destinations:
            old = find_old_versions(dataset, keep_versions or dataset.keep_versions or 3)
            for version in old if remove else ():
                remove_old_version(version)
            typer.echo(render_old_versions(old, removed=remove))
            return
        garbage = find_garbage(work, GRAPH, keep_plans=keep_plans, config=dataset)
        if remove:
            garbage = remove_garbage(work, GRAPH, garbage)
    typer.echo(render_garbage(garbage, removed=remove))
