"""Single steps on finished files, and a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from corpusmill.commands import options
from corpusmill.commands.app import STEPS, command
from corpusmill.commands.options import tokenizer_of

SCRATCH = "scratch"


@command(STEPS, "shuffle-text data --output shuffled.jsonl.zst --memory 1GiB --seed 7")
def shuffle_text(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="Files or folders of JSON lines, or - for standard input.")
    ],
    output: Annotated[Path, typer.Option(help="A file (.gz and .zst compress), or - for standard output.")] = Path("-"),
    seed: options.Seed = 1234,
    memory: options.Memory = 1 << 30,
    work_folder: options.WorkFolder = Path("work"),
) -> None:
    """Shuffle the lines of jsonl files globally: every line once, the same bytes for any memory."""
    from corpusmill.reshuffle.lines import shuffle_text as run

    shuffled = run(inputs, str(output), seed=seed, memory_bytes=memory, scratch=work_folder / SCRATCH)
    typer.echo(f"{shuffled.records:,} lines, {shuffled.data_bytes:,} bytes shuffled", err=True)


@command(STEPS, "shuffle outputs/web/latest/webdataset --output reshuffled --seed 7")
def shuffle(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="Tars, token shards or .npy shards, or folders of one of them."),
    ],
    output: Annotated[Path, typer.Option(help="A new or empty folder.")],
    seed: options.Seed = 1234,
    contexts_per_shard: Annotated[
        int | None, typer.Option(help="Tars: contexts in each; default: 8192.", min=1)
    ] = None,
    tokens_per_shard: options.TokensPerShard = None,
    eot_id: Annotated[
        int | None, typer.Option(help=".npy: shuffle whole documents, each of which follows this id.", min=0)
    ] = None,
    context_tokens: Annotated[
        int | None, typer.Option(help=".npy: shuffle slices of this many tokens instead.", min=1)
    ] = None,
    memory: options.Memory = 1 << 30,
    work_folder: options.WorkFolder = Path("work"),
) -> None:
    """Reshuffle finished tars, token shards or .npy shards into new ones (tokshuf's --shuffle-only)."""
    from corpusmill.reshuffle.folders import ready_inputs

    kind, files = ready_inputs(inputs)
    given: dict[str, Any] = {
        name: value
        for name, value in (
            ("contexts_per_shard", contexts_per_shard),
            ("tokens_per_shard", tokens_per_shard),
            ("eot_id", eot_id),
            ("context_tokens", context_tokens),
        )
        if value is not None
    }
    _refuse_options_of_other_kinds(kind, given)
    common: dict[str, Any] = {"seed": seed, "memory_bytes": memory, "scratch": work_folder / SCRATCH}
    what = "tokens"
    if kind == ".tar":
        from corpusmill.reshuffle.tars import reshuffle

        shuffled, what = reshuffle(files, output, **common, **given), "bodies"
    elif kind == ".npy":
        from corpusmill.reshuffle.npy_shards import reshuffle_npy

        shuffled = reshuffle_npy(files, output, **common, **given)
    else:
        from corpusmill.reshuffle.token_shards import reshuffle_token_shards

        shuffled = reshuffle_token_shards(files, output, **common, **given)
    typer.echo(f"{shuffled.records:,} records, {shuffled.data_bytes:,} bytes of {what} in {output}")


def _refuse_options_of_other_kinds(kind: str, given: dict[str, Any]) -> None:
    takes = {".tar": {"contexts_per_shard"}, ".npy": {"tokens_per_shard", "eot_id", "context_tokens"}}
    for name in given.keys() - takes.get(kind, {"tokens_per_shard"}):
        raise typer.BadParameter(f"--{name.replace('_', '-')} does not apply to these inputs")


@command(STEPS, "find-batch data --tokenizer cl100k_base --seconds 0.2 --output batches.csv")
def find_batch(
    inputs: options.Inputs,
    output: Annotated[
        Path, typer.Option(help="A CSV file of sizes and rates; sizes already in it are not measured again.")
    ],
    tokenizer: options.TokenizerName,
    text_field: options.TextField = "text",
    seconds: Annotated[float, typer.Option(help="CPU seconds per size.", min=0.01)] = 5.0,
    endpoint_url: options.EndpointUrl = None,
) -> None:
    """Measure how much text to encode at once on this machine, and print the best tokenizer.batch_bytes."""
    from corpusmill.builds.find_batch import choose
    from corpusmill.builds.find_batch import find_batch as run

    rates = run(
        inputs, tokenizer_of(tokenizer), output, seconds=seconds, text_field=text_field, endpoint_url=endpoint_url
    )
    for size, rate in rates.items():
        typer.echo(f"{size:>12,} bytes  {rate:>12,} tokens/s")
    typer.echo(f"tokenizer.batch_bytes: {choose(rates)}")
