"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.errors import CorpusmillError, TransientError
from corpusmill.single import in_order_commands, store_commands
from corpusmill.single.dedup_commands import dedup, index
from corpusmill.single.shuffle_commands import register

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig

EXIT_FAILED = 1
EXIT_TRY_AGAIN = 75  # sysexits.h EX_TEMPFAIL: the same command may succeed later

app = typer.Typer(
    help="Raw text dumps in, training-ready tokens out.", no_args_is_help=True, pretty_exceptions_enable=False
)
config_app = typer.Typer(help="Dataset configurations.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.command()(store_commands.download)
app.command()(store_commands.upload)
app.command()(store_commands.repair)
register(app)
in_order_commands.register(app)

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="A dataset configuration (YAML).")]


def load_config(path: Path) -> DatasetConfig:
    """See corpusmill.config. Imported when it is called: that takes 0.1 s, which other commands need not wait."""
    from corpusmill.config import load_config as load

    return load(path)


Workers = Annotated[int | None, typer.Option(help="Worker processes; default: one per core.", min=1)]


@app.command()
def build(
    config: ConfigFile,
    workers: Workers = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Reuse a step only if its outputs have their sha256.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what every step did.")] = False,
) -> None:
    """Build a dataset on this machine: the same steps and the same bytes as under Airflow."""
    from corpusmill.builds.estimate import compare_with_actual
    from corpusmill.builds.local import run_steps
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.config import work_of
    from corpusmill.engine.claim import claimed
    from corpusmill.report.progress import progress_view
    from corpusmill.report.summary import from_json
    from corpusmill.report.terminal import print_summary
    from corpusmill.stages.graph import open_build
    from corpusmill.stages.report import HTML, SUMMARY, UNIT

    logging.getLogger().setLevel(logging.INFO if verbose else logging.WARNING)
    dataset = load_config(config)
    with claimed(work_of(dataset)):
        plan_receipt = plan_dataset(dataset, to_build=True)
        with progress_view(open_build(plan_receipt).progress):
            run_steps(plan_receipt, workers=workers, verify=verify)
    folder = open_build(plan_receipt).folder("report", UNIT)
    if compared := compare_with_actual(open_build(plan_receipt)):
        typer.echo(compared)
    print_summary(from_json((folder / SUMMARY).read_bytes()), folder / HTML)


@app.command()
def plan(config: ConfigFile) -> None:
    """Show what a build would reuse, what it would run, and why. Runs nothing."""
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.engine.preview import preview, render_preview
    from corpusmill.stages.graph import open_build

    planned = open_build(plan_dataset(load_config(config)))
    typer.echo(render_preview(preview(planned)))
    for one in planned.plan.uncut or ():
        typer.echo(f"{one.name}: {one.why}; to split it: {one.remedy}")
    if planned.plan.others:
        typer.echo(planned.plan.others)


@app.command()
def reprocess(
    config: ConfigFile,
    stage: Annotated[str, typer.Option(help="The first stage to do again, such as tokenize.")],
    shard: Annotated[int, typer.Option(help="The shard's number.", min=0)],
    workers: Workers = None,
) -> None:
    """Do one shard again from a stage on, run what depends on it, and say which outputs changed."""
    from corpusmill.builds.local import run_steps
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.builds.reprocess import ask_for_shard, digests, render_comparison
    from corpusmill.config import work_of
    from corpusmill.engine.claim import claimed
    from corpusmill.report.progress import progress_view
    from corpusmill.stages.graph import open_build

    dataset = load_config(config)
    with claimed(work_of(dataset)):
        plan_receipt = plan_dataset(dataset)
        before = digests(open_build(plan_receipt))
        asked = ask_for_shard(open_build(plan_receipt), stage, f"{shard:05d}")
        with progress_view(open_build(plan_receipt).progress):
            run_steps(plan_receipt, workers=workers)
        after = digests(open_build(plan_receipt))
    typer.echo(render_comparison(asked, before, after))


@app.command()
def verify(
    config: ConfigFile,
    workers: Workers = None,
    sample: Annotated[
        int | None, typer.Option(help="Instead: make this many random records again from their sources.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Which records --sample draws.", min=0)] = 0,
    version: Annotated[
        str | None,
        typer.Option(help="Instead: verify this delivered version (12 digits, or latest) at every destination alone."),
    ] = None,
) -> None:
    """Read everything again: digests, accounts, exports, destinations. Exits 1 when something is wrong."""
    if version is not None:
        _verify_version(config, version, workers or 1)
        return
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.stages.graph import open_build

    planned = open_build(plan_dataset(load_config(config)))
    if sample:
        from corpusmill.lineage import render_verified, verify_records

        typer.echo(render_verified(verify_records(planned, sample, seed)))
        return
    from corpusmill.verify import render, verify_build

    found = verify_build(planned, workers=workers or 1)
    typer.echo(render(found))
    if found.findings:
        raise typer.Exit(EXIT_FAILED)


def _verify_version(config: Path, version: str, workers: int) -> None:
    from corpusmill.verify import render_version, verify_version
    from corpusmill.verify.delivered import VERSION

    if version != "latest" and not VERSION.fullmatch(version):
        raise typer.BadParameter(f"{version!r} is neither 12 hex digits nor latest", param_hint="--version")
    verification = verify_version(load_config(config), version, workers=workers)
    typer.echo(render_version(verification))
    if verification.findings:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def trace(
    config: ConfigFile,
    export: Annotated[str, typer.Option(help="webdataset, numpy, megatron or nanoset.")],
    shard: Annotated[str, typer.Option(help="The output file's number or name.")],
    record: Annotated[int, typer.Option(help="The record in it, from 0 (numpy: a token position).", min=0)],
) -> None:
    """Say which documents are in one record of an export: file, line, id, and the spans of tokens and bytes."""
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.lineage import render_trace
    from corpusmill.lineage import trace as trace_record
    from corpusmill.stages.graph import open_build

    planned = open_build(plan_dataset(load_config(config)))
    typer.echo(render_trace(trace_record(planned, export, int(shard) if shard.isdigit() else shard, record)))


@app.command()
def locate(
    config: ConfigFile,
    source: Annotated[str | None, typer.Option(help="A source file's name.")] = None,
    line: Annotated[int | None, typer.Option(help="The line in it, from 1.", min=1)] = None,
    document_id: Annotated[str | None, typer.Option("--id", help="Or a document's id.")] = None,
) -> None:
    """Say where a document ended up: its records, or what was removed and which earlier text it repeats."""
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.lineage import locate as locate_line
    from corpusmill.lineage import locate_id, render_located
    from corpusmill.stages.graph import open_build

    planned = open_build(plan_dataset(load_config(config)))
    if document_id is not None:
        typer.echo("\n\n".join(render_located(found) for found in locate_id(planned, document_id)))
    elif source is not None and line is not None:
        typer.echo(render_located(locate_line(planned, source, line)))
    else:
        raise typer.BadParameter("give --source and --line, or --id")


@app.command()
def gc(
    config: ConfigFile,
    remove: Annotated[bool, typer.Option("--remove", help="Delete; without it only a list is printed.")] = False,
    keep_plans: Annotated[int, typer.Option(help="How many of the last delivered plans keep theirs.", min=1)] = 1,
    destinations: Annotated[
        bool, typer.Option("--destinations", help="Instead: old versions at the destinations, never latest.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(help="With --destinations: how many of the newest stay; else keep_versions, else 3.", min=1),
    ] = None,
) -> None:
    """List (or remove) intermediate folders that the newest build no longer reaches, or delivered versions."""
    from corpusmill.config import work_of
    from corpusmill.engine.claim import claimed
    from corpusmill.engine.garbage import find_garbage, remove_garbage, render_garbage
    from corpusmill.stages.graph import GRAPH
    from corpusmill.stages.retention import find_old_versions, remove_old_version, render_old_versions

    dataset = load_config(config)
    work = work_of(dataset)
    if not work.is_dir():
        typer.echo(f"{work} does not exist: nothing to remove")
        return
    with claimed(work):
        if destinations:
            old = find_old_versions(dataset, keep or dataset.keep_versions or 3)
            for one in old if remove else ():
                remove_old_version(one)
            typer.echo(render_old_versions(old, removed=remove))
            return
        garbage = find_garbage(work, GRAPH, keep_plans=keep_plans, config=dataset)
        if remove:
            garbage = remove_garbage(work, GRAPH, garbage)
    typer.echo(render_garbage(garbage, removed=remove))


@app.command()
def tokenize(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="JSON lines: files, folders, globs, s3://, gs://, hf://.")
    ],
    tokenizer: Annotated[str, typer.Option(help="An encoding, a .tiktoken or tokenizer.json file, or a hub id.")],
    output: Annotated[Path, typer.Option(help="A folder; a token shard per file, an earlier run's are replaced.")],
    engine: Annotated[str, typer.Option(help="auto, gigatoken, tiktoken or tokenizers.")] = "auto",
    pattern: Annotated[str | None, typer.Option(help="Of a .tiktoken file: whose split pattern.")] = None,
    special_token: Annotated[
        list[str] | None, typer.Option(help="Of a .tiktoken file, as often as needed: TOKEN=ID.", metavar="TOKEN=ID")
    ] = None,
    eot: Annotated[str | None, typer.Option(help="The token that separates documents.")] = None,
    text_field: Annotated[str, typer.Option(help="The JSON key that holds a document's text.")] = "text",
    endpoint_url: Annotated[str | None, typer.Option(help="For S3-compatible stores.")] = None,
) -> None:
    """Tokenize files to token shards (ids and ends; see pipeline/tokens/token_shard.py for a reader of ten lines)."""
    from corpusmill.config import absolute
    from corpusmill.single.tokenize_files import tokenize_files
    from corpusmill.tokens.tokenizer import load_tokenizer

    file = absolute(tokenizer) if tokenizer.endswith((".tiktoken", ".json", ".model")) else None
    special = []
    for said in special_token or ():
        token, _, number = said.rpartition("=")
        if not token or not number.isdecimal():
            raise typer.BadParameter(f"{said!r} is not TOKEN=ID", param_hint="--special-token")
        special.append((token, int(number)))
    loaded = load_tokenizer(
        tokenizer, file=file, engine=engine, pattern=pattern, special_tokens=tuple(sorted(special)), eot=eot
    )
    for done in tokenize_files(inputs, loaded, output, text_field, endpoint_url):
        lost = "".join(f", {count:,} lines rejected: {reason}" for reason, count in done.rejected.items())
        typer.echo(f"{done.source}: {done.documents:,} documents, {done.tokens:,} tokens{lost}")


@app.command()
def estimate(config: ConfigFile) -> None:
    """Say what a build will come to, from an unbiased sample: tokens, duplicates, hours, memory, disk."""
    from corpusmill.builds.estimate import estimate_dataset, render_estimate

    typer.echo(render_estimate(estimate_dataset(load_config(config))))


@app.command()
def mix(
    datasets: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER[=WEIGHT]...", help="Finished datasets: .../<name>/<version>."),
    ],
    output: Annotated[Path, typer.Option(help="Where the trainers' files, mixture.html and mixture.json go.")],
    budget_tokens: Annotated[str, typer.Option(help="Tokens to train on, such as 20B.")],
    sequence_tokens: Annotated[int, typer.Option(help="Tokens the model sees at once.", min=1)] = 2048,
    alpha: Annotated[
        float | None, typer.Option(help="Instead of weights: sizes to this power, 0 (all equal) to 1 (by size).")
    ] = None,
    seed: Annotated[int, typer.Option(help="The trainer's seed.", min=0)] = 1234,
    split: Annotated[str, typer.Option(help="Megatron's: training, validation, test.")] = "969,30,1",
) -> None:
    """Mix finished datasets: epochs of each at a token budget, and the files that make a trainer draw them so."""
    from corpusmill.mixture.folders import mix_folders

    mix_folders(
        datasets,
        output,
        budget=budget_tokens,
        sequence_tokens=sequence_tokens,
        alpha=alpha,
        seed=seed,
        split=split,
        say=typer.echo,
    )


@app.command()
def peek(
    path: Annotated[Path, typer.Argument(help="A .tar, .npy, .bin or .ds file of a finished dataset.")],
    record: Annotated[int, typer.Option(help="Which record, from 0 (.npy: the first token's position).", min=0)] = 0,
    tokens: Annotated[int, typer.Option(help="At most so many tokens of it.", min=1)] = 512,
    config: Annotated[
        Path | None, typer.Option(help="The dataset's configuration, if its tokenizer is known by a file alone.")
    ] = None,
) -> None:
    """Show one record of any export as ids and as text."""
    from corpusmill.lineage.peek import peek_record, render_peek

    typer.echo(render_peek(peek_record(path, record, tokens, load_config(config) if config else None)))


@app.command()
def merge(
    inputs: Annotated[
        list[Path], typer.Argument(help="Megatron prefixes or .ds files in order, or one folder of them.")
    ],
    output: Annotated[Path, typer.Option(help="The merged prefix, or the merged .ds file.")],
) -> None:
    """Merge Megatron parts, or Nanoset files, into one. Memory does not grow with the number of documents."""
    from corpusmill.export.merge import merge_exports

    counts = merge_exports(inputs, output)
    typer.echo(f"{output}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))


app.command()(dedup)
app.command()(index)


@app.command("sample-corpus")
def sample_corpus(
    folder: Annotated[Path, typer.Argument(help="Where the files go; made if missing.")],
) -> None:
    """Collect about 40 MB of real text from the installed Python packages, as jsonl.zst."""
    from corpusmill.documents.sample_corpus import write_sample_corpus

    written = write_sample_corpus(folder)
    documents, text_bytes = sum(written.documents.values()), sum(written.text_bytes.values())
    typer.echo(
        f"{folder}: {len(written.files)} files, {documents:,} documents, {text_bytes:,} bytes of text"
        f" from {written.distributions} installed Python distributions"
    )


@config_app.command("example")
def config_example() -> None:
    """Print a complete configuration with every key explained."""
    from corpusmill.config import EXAMPLE

    typer.echo(EXAMPLE.read_text(), nl=False)


@config_app.command("lock")
def config_lock(config: ConfigFile) -> None:
    """Write the tokenizer's sha256 and revision into the file's lock section; another vocabulary is then refused."""
    import json

    from corpusmill.config import parse_config
    from corpusmill.stages.tokenize import locked

    loaded = load_config(config)
    lock = locked(loaded).lock
    assert lock is not None  # noqa: S101 (locked() always adds one)
    if loaded.lock is None:
        text = config.read_text(encoding="utf-8")
        section = "lock:\n" + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in lock.settings().items())
        text += ("" if text.endswith("\n") else "\n") + "\n" + section
        parse_config(text, where=f"{config} with a lock section behind it")
        config.write_text(text, encoding="utf-8")
    typer.echo(f"{config}: locked to sha256 {lock.tokenizer_sha256}, revision {lock.tokenizer_revision or 'none'}")


@config_app.command("check")
def config_check(config: ConfigFile) -> None:
    """Check a configuration: its keys and values, its tokenizer, and that its sources exist."""
    from corpusmill.builds.plan import check_dataset

    typer.echo(check_dataset(load_config(config)))


def main() -> None:
    """Entry point: our errors are messages, not tracebacks."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        app()
    except CorpusmillError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise SystemExit(EXIT_TRY_AGAIN if isinstance(error, TransientError) else EXIT_FAILED) from None


if __name__ == "__main__":
    main()
