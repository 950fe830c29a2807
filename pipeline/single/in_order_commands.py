"""Commands for one export in the order of the source: `corpusmill megatron` and `corpusmill nanoset`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from corpusmill.single.in_order import Source, Written
    from corpusmill.tokens.tokenizer import Tokenizer

Inputs = Annotated[
    list[str], typer.Argument(metavar="INPUT...", help="JSON lines: files, folders, globs, s3://, gs://, hf://.")
]
EndpointUrl = Annotated[str | None, typer.Option(help="For S3-compatible stores.")]
TokenizerName = Annotated[str, typer.Option(help="An encoding, a .tiktoken or tokenizer.json file, or a hub id.")]
TokenName = Annotated[str | None, typer.Option(help="The token as text, if not the tokenizer's own.")]
Engine = Annotated[str, typer.Option(help="auto, gigatoken, tiktoken or tokenizers.")]
Pattern = Annotated[str | None, typer.Option(help="Of a .tiktoken file: whose split pattern.")]
Bos = Annotated[bool, typer.Option("--bos/--no-bos", help="BOS before every document.")]
RejectedShare = Annotated[float, typer.Option(help="More lines that are no documents than this fail.", min=0, max=1)]


def megatron(
    inputs: Inputs,
    output_prefix: Annotated[Path, typer.Option(help="{prefix}_{key}_document.bin and .idx are written.")],
    tokenizer: TokenizerName,
    json_key: Annotated[list[str], typer.Option(help="A key of every line; repeat for a pair each.")] = ["text"],  # noqa: B006
    append_eod: Annotated[bool, typer.Option("--append-eod/--no-append-eod", help="EOD after every document.")] = True,
    bos: Bos = False,
    empty_documents: Annotated[
        Literal["boundary", "skip", "eod"], typer.Option(help="A repeated boundary, nothing, or an EOD alone.")
    ] = "boundary",
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Lists are sentences: names end in _sentence.")
    ] = False,
    as_preprocess_data: Annotated[
        bool, typer.Option("--as-preprocess-data", help="int32 for 65,500 to 65,536 ids, as Megatron's tool.")
    ] = False,
    max_rejected_share: RejectedShare = 0.001,
    eod_token: TokenName = None,
    bos_token: TokenName = None,
    engine: Engine = "auto",
    pattern: Pattern = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Write Megatron's .bin and .idx in source order: no dedup, no shuffle (the job of preprocess_data.py)."""
    from corpusmill.single.in_order import REJECTED, Source, write_megatron

    rejected = output_prefix.with_name(f"{output_prefix.name}.{REJECTED}")
    source = Source(inputs, tuple(json_key), rejected, max_rejected_share, endpoint_url=endpoint_url)
    output_prefix.parent.mkdir(parents=True, exist_ok=True)
    written = write_megatron(
        source,
        output_prefix,
        _tokenizer(tokenizer, engine, pattern, eod_token, bos_token),
        eod=append_eod,
        bos=bos,
        empty_documents=empty_documents,
        sentences=sentences,
        as_preprocess_data=as_preprocess_data,
    )
    _tell(written, source)


def nanoset(
    inputs: Inputs,
    output: Annotated[Path, typer.Option(help="A folder without .ds files.")],
    tokenizer: TokenizerName,
    text_field: Annotated[str, typer.Option(help="The JSON key that holds a document's text.")] = "text",
    name: Annotated[str, typer.Option(help="{name}_00000_unshuffled.ds instead of 00000_unshuffled.ds.")] = "",
    eos: Annotated[bool, typer.Option("--eos/--no-eos", help="EOS after every document.")] = True,
    bos: Bos = False,
    empty_documents: Annotated[Literal["eod", "skip"], typer.Option(help="An EOS alone, or nothing.")] = "eod",
    maximum_tokens: Annotated[
        int | None, typer.Option(help="A file closes before the document that would exceed this.", min=1)
    ] = None,
    loss_ranges_field: Annotated[
        str | None, typer.Option(help="Also .ds.loss: this key's ranges of characters are not trained on.")
    ] = None,
    max_rejected_share: RejectedShare = 0.001,
    eos_token: TokenName = None,
    bos_token: TokenName = None,
    engine: Engine = "auto",
    pattern: Pattern = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Write Nanoset's .ds files in source order: no dedup, no shuffle (the job of datatrove's DocumentTokenizer)."""
    from corpusmill.single.in_order import REJECTED, Source, write_nanoset

    source = Source(inputs, (text_field,), output / REJECTED, max_rejected_share, loss_ranges_field, endpoint_url)
    output.mkdir(parents=True, exist_ok=True)
    written = write_nanoset(
        source,
        output,
        _tokenizer(tokenizer, engine, pattern, eos_token, bos_token),
        name=name,
        eos=eos,
        bos=bos,
        empty_documents=empty_documents,
        maximum_tokens=maximum_tokens,
    )
    _tell(written, source)


def _tokenizer(name: str, engine: str, pattern: str | None, eot: str | None, bos: str | None) -> Tokenizer:
    from corpusmill.config import absolute
    from corpusmill.tokens.audit import audit_tricky
    from corpusmill.tokens.tokenizer import load_tokenizer

    file = absolute(name) if name.endswith((".tiktoken", ".json", ".model")) else None
    loaded = load_tokenizer(name, file=file, engine=engine, pattern=pattern, eot=eot, bos=bos)
    audit_tricky(loaded)
    return loaded


def _tell(written: list[Written], source: Source) -> None:
    for one in written:
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in one.counts.items())
        typer.echo(f"{one.path}: {counts}")
    if source.rejected:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(source.rejected.items()))
        typer.echo(f"rejected lines: {reasons}; see {source.quarantine}")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("megatron")(megatron)
    app.command("nanoset")(nanoset)
