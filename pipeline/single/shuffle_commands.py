"""The commands of single steps; registered by corpusmill.cli. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Inputs = Annotated[list[str], typer.Option("--input", help="A file or folder; repeat for several.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same order on every machine.", min=0)]
Memory = Annotated[str, typer.Option(help="Memory for records; the order does not depend on it.")]
Scratch = Annotated[Path, typer.Option("--local-cell-dir", "--scratch", help="For part files, removed afterwards.")]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="A dataset configuration (YAML).")]


def shuffle_text(
    input: Inputs,
    output: Annotated[str, typer.Option(help="A file (.gz and .zst compress), or - for standard output.")] = "-",
    seed: Seed = 1234,
    memory: Memory = "1GiB",
    scratch: Scratch = Path("work/scratch"),
) -> None:
    """Shuffle the lines of jsonl files globally: every line once, the same bytes whatever the memory."""
    from corpusmill.single.shuffle_text import shuffle_text as run

    done = run(input, output, seed=seed, memory_bytes=_size(memory), scratch=scratch)
    typer.echo(f"{done.records:,} lines, {done.data_bytes:,} bytes shuffled", err=True)


def shuffle(
    input: Inputs,
    output: Annotated[Path, typer.Option(help="A new or empty folder.")],
    seed: Seed = 1234,
    wds_chunk_size: Annotated[int, typer.Option(help="Tars: samples per output tar.", min=1)] = 8192,
    tokens_per_shard: Annotated[
        int | None, typer.Option(help="Token and .npy shards: tokens per output shard; default: as they came.", min=1)
    ] = None,
    eot_id: Annotated[
        int | None, typer.Option(help=".npy: shuffle whole documents, each behind this id.", min=0)
    ] = None,
    seqlen: Annotated[int | None, typer.Option(help=".npy: shuffle slices of so many tokens instead.", min=1)] = None,
    memory: Memory = "1GiB",
    scratch: Scratch = Path("work/scratch"),
) -> None:
    """Reshuffle ready tars, token shards or .npy shards (tokshuf's --shuffle-only); the same kind comes out."""
    from corpusmill.single.ready import ready_inputs

    kind, found = ready_inputs(input)
    _refuse_options_of_other_kinds(kind, tokens_per_shard=tokens_per_shard, eot_id=eot_id, seqlen=seqlen)
    memory_bytes = _size(memory)
    if kind == ".tar":
        from corpusmill.single.reshuffle import reshuffle

        done = reshuffle(
            found, output, seed=seed, samples_per_shard=wds_chunk_size, memory_bytes=memory_bytes, scratch=scratch
        )
        typer.echo(f"{done.records:,} samples, {done.data_bytes:,} bytes of bodies in {output}")
        return
    if kind == ".npy":
        from corpusmill.single.reshuffle_npy import reshuffle_npy

        done = reshuffle_npy(
            found,
            output,
            seed=seed,
            memory_bytes=memory_bytes,
            scratch=scratch,
            eot_id=eot_id,
            context_tokens=seqlen,
            tokens_per_shard=tokens_per_shard,
        )
    else:
        from corpusmill.single.reshuffle_tokens import reshuffle_token_shards

        done = reshuffle_token_shards(
            found, output, seed=seed, memory_bytes=memory_bytes, scratch=scratch, tokens_per_shard=tokens_per_shard
        )
    typer.echo(f"{done.records:,} records, {done.data_bytes:,} bytes of tokens in {output}")


def _refuse_options_of_other_kinds(kind: str, **options: int | None) -> None:
    takes = {".tar": set(), ".npy": {"tokens_per_shard", "eot_id", "seqlen"}}.get(kind, {"tokens_per_shard"})
    for name, given in options.items():
        if given is not None and name not in takes:
            raise typer.BadParameter(f"--{name.replace('_', '-')} does not apply to these inputs")


def export(
    format: Annotated[Literal["webdataset", "numpy", "megatron", "nanoset"], typer.Argument(help="The format.")],
    config: ConfigFile,
    workers: Annotated[int | None, typer.Option(help="Worker processes; default: one per core.", min=1)] = None,
) -> None:
    """Write one format of a configured dataset, and whatever it needs first; nothing is uploaded."""
    from corpusmill.builds.local import run_steps
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.config import ExportsConfig, load_config, work_of
    from corpusmill.engine.claim import claimed
    from corpusmill.stages.graph import open_build

    wanted = load_config(config)
    section = getattr(wanted.exports, format)
    only = ExportsConfig.model_validate({format: {} if section is None else section.model_dump()})
    with claimed(work_of(wanted)):
        plan_receipt = plan_dataset(wanted.model_copy(update={"exports": only}))
        run_steps(plan_receipt, workers=workers, until="manifest")
    build = open_build(plan_receipt)
    for unit in build.units("export"):
        typer.echo(build.folder("export", unit) / format)
    typer.echo(build.folder("manifest", "dataset"))


def find_batch(
    input: Inputs,
    tokenizer: Annotated[str, typer.Option(help="An encoding, a .tiktoken or tokenizer.json file, or a hub id.")],
    output: Annotated[Path, typer.Option(help="A CSV file of sizes and rates; sizes it has are not measured again.")],
    seconds: Annotated[float, typer.Option(help="CPU seconds for every size.", min=0.01)] = 5.0,
    text_field: Annotated[str, typer.Option(help="The JSON key that holds a document's text.")] = "text",
    endpoint_url: Annotated[str | None, typer.Option(help="For S3-compatible stores.")] = None,
) -> None:
    """Measure how much text to encode at once on this machine, and say which tokenizer.batch_bytes is best."""
    from corpusmill.config import absolute
    from corpusmill.single.find_batch import choose
    from corpusmill.single.find_batch import find_batch as run
    from corpusmill.tokens.tokenizer import load_tokenizer

    file = absolute(tokenizer) if tokenizer.endswith((".tiktoken", ".json", ".model")) else None
    loaded = load_tokenizer(tokenizer, file=file)
    rates = run(input, loaded, output, seconds=seconds, text_field=text_field, endpoint_url=endpoint_url)
    for size, rate in rates.items():
        typer.echo(f"{size:>12,} bytes  {rate:>12,} tokens/s")
    typer.echo(f"tokenizer.batch_bytes: {choose(rates)}")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("shuffle-text")(shuffle_text)
    app.command("shuffle")(shuffle)
    app.command("export")(export)
    app.command("find-batch")(find_batch)


def _size(text: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        size = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        size = 0
    if size < 1:
        raise typer.BadParameter(f"{text!r} is no size such as 256MiB or 4GB")
    return size
