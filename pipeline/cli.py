"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.config import EXAMPLE, load_config
from pipeline.errors import CorpusmillError, TransientError

EXIT_FAILED = 1
EXIT_TRY_AGAIN = 75  # sysexits.h EX_TEMPFAIL: the same command may succeed later

app = typer.Typer(
    help="Raw text dumps in, training-ready tokens out.", no_args_is_help=True, pretty_exceptions_enable=False
)
config_app = typer.Typer(help="Dataset configurations.", no_args_is_help=True)
app.add_typer(config_app, name="config")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="A dataset configuration (YAML).")]


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
    from pipeline.local import run_build
    from pipeline.report.progress import progress_view
    from pipeline.report.summary import from_json
    from pipeline.report.terminal import print_summary
    from pipeline.stages import open_build, plan_dataset
    from pipeline.stages.report import HTML, SUMMARY, UNIT

    logging.getLogger().setLevel(logging.INFO if verbose else logging.WARNING)
    plan_receipt = plan_dataset(load_config(config))
    with progress_view(open_build(plan_receipt).progress):
        run_build(plan_receipt, workers=workers, verify=verify)
    folder = open_build(plan_receipt).folder("report", UNIT)
    print_summary(from_json((folder / SUMMARY).read_bytes()))
    typer.echo(f"report  {folder / HTML}")


@app.command()
def plan(config: ConfigFile) -> None:
    """Show what a build would reuse, what it would run, and why. Runs nothing."""
    from pipeline.stages import open_build, plan_dataset
    from pipeline.stages.preview import preview, render_preview

    typer.echo(render_preview(preview(open_build(plan_dataset(load_config(config))))))


@app.command()
def reprocess(
    config: ConfigFile,
    stage: Annotated[str, typer.Option(help="The first stage to do again, such as tokenize.")],
    shard: Annotated[int, typer.Option(help="The shard's number.", min=0)],
    workers: Workers = None,
) -> None:
    """Do one shard again from a stage on, run what depends on it, and say which outputs changed."""
    from pipeline.local import run_build
    from pipeline.report.progress import progress_view
    from pipeline.stages import open_build, plan_dataset
    from pipeline.stages.reprocess import digests, drop_shard, render_comparison

    plan_receipt = plan_dataset(load_config(config))
    before = digests(open_build(plan_receipt))
    dropped = drop_shard(open_build(plan_receipt), stage, f"{shard:05d}")
    with progress_view(open_build(plan_receipt).progress):
        run_build(plan_receipt, workers=workers)
    typer.echo(render_comparison(dropped, before, digests(open_build(plan_receipt))))


@app.command("sample-corpus")
def sample_corpus(
    folder: Annotated[Path, typer.Argument(help="Where the files go; made if missing.")],
) -> None:
    """Collect about 40 MB of real text from the installed Python packages, as jsonl.zst."""
    from pipeline.documents.sample_corpus import write_sample_corpus

    written = write_sample_corpus(folder)
    documents, text_bytes = sum(written.documents.values()), sum(written.text_bytes.values())
    typer.echo(
        f"{folder}: {len(written.files)} files, {documents:,} documents, {text_bytes:,} bytes of text"
        f" from {written.distributions} installed Python distributions"
    )


@config_app.command("example")
def config_example() -> None:
    """Print a complete configuration with every key explained."""
    typer.echo(EXAMPLE.read_text(), nl=False)


@config_app.command("check")
def config_check(config: ConfigFile) -> None:
    """Check a configuration: its keys and values, its tokenizer, and that its sources exist."""
    from pipeline.stages.plan import check_dataset

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
