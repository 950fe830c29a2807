"""Single steps on finished files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from corpusmill.commands import options
from corpusmill.commands.app import STEPS, command
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.direct.reshuffle import folders, lines, shards, tars


SCRATCH = "scratch"


@command(STEPS, "shuffle-text data --output shuffled.jsonl.zst --memory 1GiB --seed 7")
def shuffle_text(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="Files or folders of JSON lines, or - for standard input.")
    ],
    output: Annotated[Path, typer.Option(help="A file (.gz and .zst compress), or - for standard output.")] = Path("-"),
    seed: options.Seed = options.SEED,
    memory: options.Memory = 1 << 30,
    work_folder: options.WorkFolder = Path("work"),
    force: options.Force = False,
) -> None:
    """Shuffle the lines of jsonl files globally: every line once, the same bytes for any memory."""
    if output.exists() and not force and output.is_file():
        raise ConfigError(
            "command.output_exists: the output exists",
            where=output,
            next_step="give --output another name, or replace it: --force",
        )
    shuffled = lines.shuffle_text(inputs, str(output), seed=seed, memory_bytes=memory, scratch=work_folder / SCRATCH)
    typer.echo(f"{shuffled.records:,} lines, {shuffled.data_bytes:,} bytes shuffled", err=True)


@command(STEPS, "shuffle outputs/web/latest/webdataset --output reshuffled --seed 7")
def shuffle(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="Tars, token shards or .npy shards, or folders of one of them."),
    ],
    output: Annotated[Path, typer.Option(help="A new or empty folder.")],
    seed: options.Seed = options.SEED,
    contexts_per_shard: Annotated[int | None, typer.Option(help="Contexts in each tar; default: 8192.", min=1)] = None,
    tokens_per_shard: options.TokensPerShard = None,
    eot_id: Annotated[
        int | None, typer.Option(help="For .npy: shuffle whole documents; this id precedes each.", min=0)
    ] = None,
    context_tokens: Annotated[
        int | None, typer.Option(help="For .npy: shuffle slices of this many tokens, not documents.", min=1)
    ] = None,
    memory: options.Memory = 1 << 30,
    work_folder: options.WorkFolder = Path("work"),
) -> None:
    """Reshuffle finished tars, token shards or .npy shards into new ones (tokshuf's --shuffle-only)."""

    kind, files = folders.ready_inputs(inputs)
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
        shuffled, what = tars.reshuffle(files, output, **common, **given), "bodies"
    elif kind == ".npy":
        shuffled = shards.reshuffle_npy(files, output, **common, **given)
    else:
        shuffled = shards.reshuffle_token_shards(files, output, **common, **given)
    typer.echo(f"{shuffled.records:,} records, {shuffled.data_bytes:,} bytes of {what} in {output}")


def _refuse_options_of_other_kinds(kind: str, given: dict[str, Any]) -> None:
    takes = {".tar": {"contexts_per_shard"}, ".npy": {"tokens_per_shard", "eot_id", "context_tokens"}}
    for name in given.keys() - takes.get(kind, {"tokens_per_shard"}):
        raise typer.BadParameter(f"--{name.replace('_', '-')} does not apply to these inputs")
