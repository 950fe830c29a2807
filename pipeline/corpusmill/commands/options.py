"""Options shared by several commands, the values that they become, and the files that a command replaces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from corpusmill.api import planned
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily

with lazily:
    import msgspec
    import pydantic

    from corpusmill.config import dataset as config_dataset
    from corpusmill.config import reading, sections
    from corpusmill.engine import claim
    from corpusmill.export import files
    from corpusmill.storage import local
    from corpusmill.tokens import audit
    from corpusmill.tokens import tokenizer as tokens_tokenizer

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.direct.in_order.source import RejectedLines
    from corpusmill.engine.running import RunnableBuild
    from corpusmill.tokens.tokenizer import Tokenizer


EXIT_FAILED = 1
WORKERS = "How many processes run at once."


def size_bytes(text: str | int) -> int:
    """256MiB, 4GB or plain bytes; BadParameter for anything else."""
    try:
        size = int(pydantic.TypeAdapter(pydantic.ByteSize).validate_python(text))
    except (pydantic.ValidationError, OverflowError):
        size = 0
    if size < 1:
        raise typer.BadParameter(f"{text!r} is not a size such as 256MiB or 4GB")
    return size


KnownConfig = Annotated[
    Path | None, typer.Option("--config", help="The dataset's configuration, for what its files do not say.")
]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="A dataset configuration (YAML).")]
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="JSON lines, parquet or Arrow: files, folders, globs, s3://, gs://, hf:// (docs/sources.md).",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", "-j", help=WORKERS, min=1, show_default="one per core, or one if there is little text"),
]
WorkFolder = Annotated[Path, typer.Option(help="Folder for intermediate files; finished steps in it are reused.")]
Memory = Annotated[
    int,
    typer.Option(
        metavar="SIZE", parser=size_bytes, show_default="1GiB", help="Memory to use; it changes no byte of the output."
    ),
]
SEED = 1234
Seed = Annotated[int, typer.Option(help="The same seed gives the same result on every machine.", min=0)]
_SHARD = typer.Option(help="The number of a shard of the sources.", min=0)
Shard = Annotated[int, _SHARD]
AnyShard = Annotated[int | None, _SHARD]
Record = Annotated[
    int | None,
    typer.Option(help="The record in the file, from 0 (.npy: a token's position).", min=0, show_default="0"),
]
_FORMAT = typer.Option("--format", help="An export's format.")
_FormatName = Literal[
    "webdataset", "numpy", "megatron", "nanoset", "olmo", "parquet_documents", "parquet_contexts", "parquet_text"
]
Format = Annotated[_FormatName, _FORMAT]
AnyFormat = Annotated[_FormatName | None, _FORMAT]
Page = Annotated[Path | None, typer.Option(help="Also write everything to an HTML page.")]
Verify = Annotated[bool, typer.Option("--verify", help="Reuse a step only if its outputs match their sha256.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace the output of an earlier run.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only the result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Every figure as JSON, for programs.")]
Remove = Annotated[bool, typer.Option("--remove", help="Delete; without it the command only prints a list.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print what every step did.")]
EndpointUrl = Annotated[str | None, typer.Option(help="The address of an S3-compatible store.")]
Anonymous = Annotated[bool, typer.Option("--anonymous", help="Send no credentials: for public buckets and datasets.")]

TextField = Annotated[str, typer.Option(help="The JSON key that holds a document's text.")]
_SHARD_BYTES = "Source bytes per shard, the unit of work."
ShardBytes = Annotated[int, typer.Option(metavar="SIZE", parser=size_bytes, show_default="256MiB", help=_SHARD_BYTES)]
ShardBytesForCores = Annotated[
    int | None,
    typer.Option(metavar="SIZE", parser=size_bytes, show_default="4MiB to 256MiB, by the sources", help=_SHARD_BYTES),
]
TokensPerShard = Annotated[int | None, typer.Option(help="About this many tokens in each output file.", min=1)]
RejectedShare = Annotated[
    float, typer.Option(help="The command fails if more than this share of lines is malformed.", min=0, max=1)
]

_TOKENIZER = typer.Option(
    "--tokenizer", help="An encoding, a file (tokenizer.json, tekken.json, .tiktoken, .model), or a hub id."
)
TokenizerName = Annotated[str, _TOKENIZER]
AnyTokenizerName = Annotated[str | None, _TOKENIZER]
Engine = Annotated[
    Literal["auto", "gigatoken", "tiktoken", "tokenizers", "sentencepiece"],
    typer.Option(help="The encoding library; the ids are the same."),
]
Pattern = Annotated[str | None, typer.Option(help="For a .tiktoken file: the encoding with its split pattern.")]
SpecialTokens = Annotated[
    list[str] | None,
    typer.Option("--special-token", metavar="TOKEN=ID", help="For a .tiktoken file; repeat for several."),
]
EotToken = Annotated[str | None, typer.Option(help="The token that separates documents, if not the tokenizer's own.")]
BosToken = Annotated[str | None, typer.Option(help="The token that begins documents, if not the tokenizer's own.")]
Eod = Annotated[bool, typer.Option("--eod/--no-eod", help="EOD (EOS, EOT) after every document.")]
Bos = Annotated[bool, typer.Option("--bos/--no-bos", help="BOS before every document.")]


def show(value: Any, as_json: bool, render: Callable[[Any], str]) -> None:
    """Print a value in words, or all its fields as JSON: dataclasses, structs, arrays and paths among them.

    Characters outside ASCII are escaped: names may hold some that a terminal obeys.
    """
    if as_json:
        typer.echo(json.dumps(msgspec.json.decode(msgspec.json.encode(value, enc_hook=_plain)), indent=2))
    else:
        typer.echo(render(value))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def asked(endpoint_url: str | None, anonymous: bool) -> dict[str, Any]:
    """The keys by which a section of a configuration says how its store is asked."""
    return {"endpoint_url": endpoint_url, "anonymous": anonymous or None}


def endpoint(endpoint_url: str | None, anonymous: bool) -> str | None:
    """The same for storage.open_store."""
    return sections.InStore(**asked(endpoint_url, anonymous)).endpoint


def print_rejected(rejected: RejectedLines) -> None:
    """Print how many lines were malformed, if any, and where they are."""
    if rejected.reasons:
        typer.echo(f"rejected lines: {rejected.render()}; see {rejected.path}")


@contextmanager
def claimed_dataset(config: Path, *, remove_empty: bool = False) -> Iterator[DatasetConfig]:
    """Load a configuration and claim its dataset for the block; RunUnderWayError or LockHeldError if another run has
    it.

    With `remove_empty`, an empty work folder is removed at the end.
    """
    dataset = reading.load_config(config)
    with claim.claimed(config_dataset.work_of(dataset), remove_empty=remove_empty):
        yield dataset


@contextmanager
def claimed_build(config: Path) -> Iterator[RunnableBuild]:
    """Plan the dataset of a configuration file and claim it for the block."""
    with claimed_dataset(config):
        yield planned(config)


def tokenizer_of(
    name: str,
    engine: str = "auto",
    pattern: str | None = None,
    special_tokens: list[str] | None = None,
    eot: str | None = None,
    bos: str | None = None,
) -> Tokenizer:
    """The tokenizer that these options name, tried on the tricky strings (VerificationError); BadParameter for a
    special token that is not TOKEN=ID.
    """
    special = []
    for text in special_tokens or ():
        token, _, number = text.rpartition("=")
        if not token or not number.isdecimal():
            raise typer.BadParameter(f"{text!r} is not TOKEN=ID", param_hint="--special-token")
        special.append((token, int(number)))
    path = sections.TokenizerConfig.model_construct(name=name).path()
    tokenizer = tokens_tokenizer.load_tokenizer(
        name,
        file=path and config_dataset.absolute_here(path),
        engine=engine,
        pattern=pattern,
        special_tokens=tuple(sorted(special)),
        eot=eot,
        bos=bos,
    )
    audit.audit_tricky(tokenizer)
    return tokenizer


HEAD_BYTES = 4096
PAGE_MARK = b'<meta name="generator" content="corpusmill">'  # in the head of difference.html and tried.html


def require_earlier(path: Path, option: str, kind: str, is_earlier: Callable[[BinaryIO], bool]) -> None:
    """ConfigError if `path` exists and `is_earlier`, called with the open file, does not recognise its beginning.

    PermanentError if no file can be written there.
    """
    local.require_writable_folder(path.absolute().parent)
    if not path.exists():
        return
    if not path.is_file():
        raise local.not_writable(path, "a folder" if path.is_dir() else "no regular file")
    with path.open("rb") as file:
        if not is_earlier(file):
            raise ConfigError(
                f"command.file_of_others: {option} names a file that this command did not write",
                where=path,
                expected=f"no file, or {kind} of an earlier run",
                next_step=f"give {option} another name",
            )


def is_page(file: BinaryIO) -> bool:
    """Whether a file is an HTML page of a command."""
    return PAGE_MARK in file.read(HEAD_BYTES)


def write_page(path: Path, text: str) -> None:
    """Write an HTML page; it appears under its name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole_file(path) as file:
        file.write(text.encode())
