"""Commands that make a dataset: its first configuration, its configuration, what a build will do, and the build."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import typer

from corpusmill.api import planned
from corpusmill.builds.processes import end_with_task
from corpusmill.commands.app import BUILD, command, config_app
from corpusmill.commands.options import (
    WORKERS,
    Anonymous,
    AnyTokenizerName,
    AsJson,
    ConfigFile,
    EndpointUrl,
    Force,
    Format,
    Quiet,
    Shard,
    Verbose,
    Verify,
    Workers,
    WorkFolder,
    asked,
    claimed_build,
    claimed_dataset,
    require_earlier,
    show,
    tokenizer_of,
)
from corpusmill.engine.parts import read_part
from corpusmill.errors import CorpusmillError, MissingConfigError
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.builds import chain, graph, local, preflight, starting
    from corpusmill.builds import estimate as builds_estimate
    from corpusmill.builds import plan as builds_plan
    from corpusmill.builds import reprocess as builds_reprocess
    from corpusmill.config import reading, starter
    from corpusmill.engine import preview
    from corpusmill.engine.work_folder import moved
    from corpusmill.report import summary, terminal
    from corpusmill.storage import locations, mirrored
    from corpusmill.tokens.stages import tokenize
    from corpusmill.upload.stages import report


FORMATS = "webdataset, numpy, megatron, nanoset, olmo, parquet_documents, parquet_contexts, parquet_text"
Reader = Literal["llm.c", "megatron", "nanochat", "nanotron", "olmo-core", "trainer"]
TextField = Annotated[str | None, typer.Option(help="The key of the text; default: detected.")]
Exports = Annotated[
    list[str] | None, typer.Option("--export", help=f"A format; repeat, or separate by commas: {FORMATS}.")
]
For = Annotated[
    Reader | None, typer.Option("--for", help="Who will read the dataset: chooses formats in place of --export.")
]


@command(BUILD, "init data --tokenizer cl100k_base --export megatron,nanoset --output new.yaml")
def init(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT]...", help="Where the text is: folders, files, globs, addresses."),
    ] = None,
    tokenizer: AnyTokenizerName = None,
    export: Exports = None,
    reader: For = None,
    text_field: TextField = None,
    endpoint_url: EndpointUrl = None,
    anonymous: Anonymous = False,
    output: Annotated[
        Path | None, typer.Option(help="The configuration to write; default: the first input's name and .yaml.")
    ] = None,
    force: Force = False,
) -> None:
    """Inspect your files and write a configuration with a comment per key. Asks for what the options leave open."""
    inputs = inputs or [_answer("INPUT", "Folder with your text", "data", _there)]
    tokenizer = tokenizer or _answer(
        "--tokenizer", "Tokenizer (an encoding, a file or a hub id)", "cl100k_base", _loadable
    )
    exports = _exports(export, reader) or _formats(_answer("--export", f"Formats ({FORMATS})", "megatron", _known))
    output = output or Path(f"{starting.dataset_name(Path(inputs[0]).resolve().name)}.yaml")
    if force:
        require_earlier(output, "--output", "a configuration", starting.is_starter)
    settings = {"tokenizer": tokenizer, "exports": exports, **asked(endpoint_url, anonymous)}
    typer.echo(starting.write_starter(inputs, text_field, output, force=force, **settings))
    typer.echo(f"\n{output} is written; edit it as you like.  Next: corpusmill build {output}")


def _answer(name: str, question: str, default: str, check: Callable[[str], str]) -> str:
    """A person's answer; asks again while `check` refuses it. BadParameter where there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("required here: there is no terminal to ask on", param_hint=name)
    return str(typer.prompt(question, default=default, value_proc=check))


def _there(path: str) -> str:
    if starting.has_sources(path):
        return path
    raise typer.BadParameter(f"{path} has no text: a folder, file or glob of JSON lines, parquet or Arrow")


def _loadable(name: str) -> str:
    try:
        tokenizer_of(name)
    except CorpusmillError as error:
        raise typer.BadParameter(error.what) from None
    return name


def _known(formats: str) -> str:
    _formats(formats)
    return formats


def _exports(formats: list[str] | None, reader: str | None) -> dict[str, Any]:
    """The section `exports` of --export or --for; empty without either."""
    if formats and reader:
        raise typer.BadParameter("give --export or --for, not both")
    return dict(starter.PRESETS[reader]) if reader else _formats(",".join(formats)) if formats else {}


def _formats(text: str) -> dict[str, Any]:
    known = FORMATS.split(", ")
    formats = [name for name in (part.strip() for part in text.split(",")) if name]
    if not formats or (unknown := [name for name in formats if name not in known]):
        raise typer.BadParameter(
            f"{unknown[0] if formats else text!r} is not a format; known: {FORMATS}", param_hint="--export"
        )
    return {name: {} for name in formats}


@command(BUILD, "config example", name="example", to=config_app)
def config_example(
    short: Annotated[bool, typer.Option("--short", help="Only what a first build needs: 12 lines.")] = False,
) -> None:
    """Print a complete configuration with every key explained."""
    typer.echo(starter.starter() if short else starter.example_text(), nl=False)


@command(BUILD, "config check web.yaml", name="check", to=config_app)
def config_check(config: ConfigFile) -> None:
    """Check a configuration: its keys and values, its tokenizer, and that its sources exist."""
    typer.echo(builds_plan.check_dataset(reading.load_config(config)))


@command(BUILD, "config lock web.yaml", name="lock", to=config_app)
def config_lock(config: ConfigFile) -> None:
    """Write the tokenizer's sha256 and revision into the file's lock section; another vocabulary is then refused."""
    lock = tokenize.lock_file(config)
    typer.echo(f"{config}: locked to sha256 {lock.tokenizer_sha256}, revision {lock.tokenizer_revision or 'none'}")


@command(BUILD, "estimate web.yaml")
def estimate(config: ConfigFile, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Estimate a build from an unbiased sample: tokens, duplicates, hours, memory, disk."""
    report = (lambda _line: None) if quiet else partial(typer.echo, err=True)
    estimated = builds_estimate.estimate_dataset(reading.load_config(config), report=report)
    show(estimated, as_json, builds_estimate.render_estimate)


@command(BUILD, "plan web.yaml")
def plan(config: ConfigFile, as_json: AsJson = False) -> None:
    """Show what a build would reuse, what it would run and why, and how much disk it needs. Runs nothing."""
    build = planned(config)
    preflight.require_tokenizer(build)
    units = preview.preview(build)
    if as_json:
        show(units, as_json, str)
        return
    typer.echo(preview.render_preview(units, chain.STEP_OF))
    typer.echo(preflight.stated_room(build))
    preflight.warn_of_splits(build.config, build.plan, build.work)
    for file in build.plan.uncut or ():
        typer.echo(f"{file.name}: {file.why}; to split it: {file.remedy}")
    if build.plan.others:
        typer.echo(build.plan.others)


@command(BUILD, "build data --tokenizer cl100k_base --export megatron --output out")
def build(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="A dataset configuration (YAML); or, with --tokenizer, text: files, folders, globs, addresses.",
        ),
    ],
    tokenizer: AnyTokenizerName = None,
    export: Exports = None,
    reader: For = None,
    output: Annotated[
        str | None,
        typer.Option(help="For text: the dataset's folder, or s3://, gs://; its configuration goes to OUTPUT.yaml."),
    ] = None,
    dedup: Annotated[
        int | None,
        typer.Option(
            help="For text: remove repeats of this many bytes or more; 0 keeps them.", min=0, show_default="500"
        ),
    ] = None,
    near: Annotated[
        float | None,
        typer.Option(
            help="For text: drop documents that share this much with an earlier one, such as 0.8.", min=0.3, max=1
        ),
    ] = None,
    shuffle_seed: Annotated[
        int | None, typer.Option(help="For text: the same seed gives the same order.", min=0, show_default="1234")
    ] = None,
    text_field: TextField = None,
    endpoint_url: EndpointUrl = None,
    anonymous: Anonymous = False,
    work_folder: WorkFolder = Path("work"),
    force: Force = False,
    workers: Workers = None,
    verify: Verify = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Build a dataset on this machine, from a configuration or directly from text: the same bytes as under Airflow.

    A build from text also writes its configuration beside the dataset; `corpusmill build` with that file continues it.
    """
    logging.getLogger().setLevel(logging.INFO if verbose else logging.WARNING)
    settings = {
        "minimum_bytes": dedup,
        "similarity": near,
        "seed": shuffle_seed,
        **asked(endpoint_url, anonymous),
        "work_folder": None if work_folder == Path("work") else str(work_folder),
    }
    given = {key: value for key, value in settings.items() if value is not None}
    exports = _exports(export, reader)
    if tokenizer is None:
        if given or exports or output or text_field or force or len(inputs) > 1:
            raise typer.BadParameter("a configuration has all its settings, and text needs --tokenizer")
        config = Path(inputs[0])
    elif not exports or output is None:
        raise typer.BadParameter(f"text needs {'--output' if exports else '--export or --for'}")
    else:
        config = _configured(inputs, output, text_field, force, tokenizer=tokenizer, exports=exports, **given)
    with claimed_dataset(config) as dataset:
        plan_receipt = builds_plan.plan_dataset(dataset, to_build=True)
        built = local.run_watched(plan_receipt, workers=workers, verify=verify, quiet=quiet)
    folder = built.folder("report", report.UNIT)
    terminal.print_summary(summary.from_json((folder / report.SUMMARY).read_bytes()), folder / report.HTML)


def _configured(inputs: list[str], output: str, text_field: str | None, force: bool, **settings: Any) -> Path:
    """The configuration that a build of text runs; written beside the dataset, of an address in the current folder."""
    output = locations.without_file_scheme(output)
    above, _, name = output.rstrip("/").rpartition("/")
    if name != (usual := starting.dataset_name(name)) or above.endswith((":/", ":")):
        raise typer.BadParameter(
            f"its last part names the dataset: lower-case letters, digits, - and _, such as {usual}",
            param_hint="--output",
        )
    settings["destination"] = above or ("/" if output.startswith("/") else ".")
    config = Path(f"{name}.yaml" if "://" in output else f"{output.rstrip('/')}.yaml").expanduser()
    if force:
        require_earlier(config, "--output", "a configuration", starting.is_starter)
    if not force and starting.is_written(inputs, text_field, config, **settings):
        typer.echo(f"{config} has these settings: resuming", err=True)
    else:
        typer.echo(starting.write_starter(inputs, text_field, config, force=force, **settings), err=True)
        typer.echo(f"{config} is the configuration; next time: corpusmill build {config}\n", err=True)
    return config


@command(BUILD, "reprocess web.yaml --stage tokenize --shard 0")
def reprocess(
    config: ConfigFile,
    stage: Annotated[str, typer.Option(help="The first step to rerun, such as tokenize.")],
    shard: Shard,
    workers: Workers = None,
) -> None:
    """Reprocess one shard from a step on, run what depends on it, and print which outputs changed."""
    with claimed_build(config) as build:
        before = builds_reprocess.digests(build)
        request = builds_reprocess.ask_for_shard(build, stage, f"{shard:05d}")
        after = builds_reprocess.digests(local.run_watched(build.plan_receipt, workers=workers))
    typer.echo(builds_reprocess.render_comparison(request, before, after))


@command(BUILD, "run-task work/books/plan/*/receipt.json find_ranges.match 1/16")
def run_task(
    plan_receipt: Annotated[str, typer.Argument(metavar="PLAN", help="The receipt of a plan.", show_default=False)],
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task, such as tokenize or find_ranges.match.", show_default=False)
    ],
    part: Annotated[str, typer.Argument(metavar="PART", help="`3/16`: the third of 16 parts.")] = "1/1",
    workers: Annotated[int, typer.Option("--workers", "-j", help=WORKERS, min=1)] = 1,
    again: Annotated[bool, typer.Option("--again", help="Also rerun finished steps.")] = False,
    verify: Verify = False,
) -> None:
    """Run a part of a task of a planned build, for schedulers. Each task must end before the next begins."""
    _require_plan(plan_receipt)
    end_with_task()
    logging.getLogger().setLevel(logging.INFO)
    try:
        for receipt in local.run_part(
            plan_receipt, task, read_part(part), processes=workers, again=again, verify=verify
        ):
            typer.echo(mirrored.address_of(receipt))
    finally:
        moved.report_moved()


def _require_plan(plan_receipt: str) -> None:
    """ConfigError unless a path or address can be that of a plan's receipt."""
    folders = PurePosixPath(plan_receipt if "://" in plan_receipt else Path(plan_receipt).absolute()).parts
    if folders[-3:-2] != ("plan",) or folders[-1] != "receipt.json":
        raise MissingConfigError(
            "plan.not_a_receipt: this is not the receipt of a plan",
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
    raise typer.Exit(local.run_claimed(reading.load_config(config), program))


@command(BUILD, "export web.yaml --format nanoset")
def export(config: ConfigFile, format: Format, workers: Workers = None) -> None:
    """Build one format of a configured dataset and what it needs; uploads nothing."""
    with claimed_dataset(config) as dataset:
        values = dataset.model_dump(mode="json", exclude_none=True)
        values["exports"] = {format: values["exports"].get(format, {})}
        plan_receipt = builds_plan.plan_dataset(reading.check_config(values, where=f"{config} with --format {format}"))
        local.run_steps(plan_receipt, workers=workers, until="manifest")
    built = graph.open_build(plan_receipt)
    for unit in built.units("export"):
        typer.echo(built.folder("export", unit) / format)
    typer.echo(built.folder("manifest", "dataset"))
