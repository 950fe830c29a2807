"""Single steps on text, without a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from corpusmill.commands import options
from corpusmill.commands.app import STEPS, command
from corpusmill.commands.options import tokenizer_of
from corpusmill.direct.in_order.cores import cores
from corpusmill.lazy import lazily
from corpusmill.report.figures import counted

with lazily:
    from corpusmill.builds import dedup_alone
    from corpusmill.builds import infini_gram as builds_infini_gram
    from corpusmill.config import dataset
    from corpusmill.direct.in_order import exports as in_order_exports
    from corpusmill.direct.in_order import source as in_order_source
    from corpusmill.direct.in_order import token_shards
    from corpusmill.near_duplicates.stages import near_duplicates as stages_near_duplicates


if TYPE_CHECKING:
    from corpusmill.direct.in_order.source import Source, Written

Output = Annotated[str, typer.Option(help="A folder, or s3://bucket/prefix; an earlier run's results are replaced.")]

Against = Annotated[
    list[str] | None, typer.Option(help="A finished dataset, or files, whose text counts as earlier; repeatable.")
]


@command(STEPS, "dedup data --minimum-bytes 100 --output clean")
def dedup(
    inputs: options.Inputs,
    output: Output,
    minimum_bytes: Annotated[int, typer.Option(help="Repeats of at least this many bytes (7 or more).")] = 500,
    mode: Annotated[
        Literal["remove", "annotate"], typer.Option(help="annotate keeps the text and adds the ranges.")
    ] = "remove",
    keep: Annotated[
        Literal["first_window", "every_string"], typer.Option(help="every_string keeps a whole copy of each repeat.")
    ] = "first_window",
    annotate_key: Annotated[
        str, typer.Option(help="The field that --mode annotate adds; dots nest it: metadata.ranges.")
    ] = "sa_remove_ranges",
    replace_existing: Annotated[bool, typer.Option("--replace-existing", help="Overwrite an existing field.")] = False,
    drop_empty: Annotated[bool, typer.Option("--drop-empty", help="Leave out documents that become empty.")] = False,
    against: Against = None,
    fuzzy_share: Annotated[
        float | None, typer.Option(help="Also remove gaps where repeats cover this share of a span.")
    ] = None,
    memory: options.Memory = 1 << 30,
    text_field: options.TextField = "text",
    max_rejected_share: options.RejectedShare = 0.001,
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
    shard_bytes: options.ShardBytesForCores = None,
    work_folder: options.WorkFolder = Path("work"),
    workers: options.Workers = None,
    quiet: options.Quiet = False,
) -> None:
    """Remove or annotate every repeated stretch of text in JSON lines or parquet, over all files at once. Resumable."""
    config = dedup_alone.dedup_config(
        inputs,
        output,
        {
            "mode": mode,
            "minimum_bytes": minimum_bytes,
            "keep": keep,
            "fuzzy_share": fuzzy_share,
            "annotate_key": annotate_key,
            "replace_existing": replace_existing,
            "drop_empty": drop_empty,
            "memory": memory,
        },
        against,
        source={
            "text_field": text_field,
            "max_rejected_share": max_rejected_share,
            **options.asked(endpoint_url, anonymous),
            **({"shard_bytes": shard_bytes} if shard_bytes else {}),
        },
        work_folder=dataset.absolute_here(str(work_folder)),
    )
    finished = dedup_alone.deduplicate(config, output, workers=workers, watch=not quiet)
    typer.echo(dedup_alone.render_finished(finished, output))


@command(STEPS, "near-duplicates data --pairs pairs.jsonl")
def near_duplicates(
    inputs: options.Inputs,
    pairs: Annotated[
        Path, typer.Option(help="The JSON lines to write: each near-duplicate, the earlier document, their similarity.")
    ],
    similarity: Annotated[
        float, typer.Option(help="The least share of word runs that two near-duplicates have in common.")
    ] = 0.8,
    words: Annotated[int, typer.Option(help="Words in a run.", min=1, max=64)] = 5,
    against: Against = None,
    memory: options.Memory = 1 << 30,
    text_field: options.TextField = "text",
    id_field: Annotated[str, typer.Option(help="The JSON key that holds a document's id.")] = "id",
    max_rejected_share: options.RejectedShare = 0.001,
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
    work_folder: options.WorkFolder = Path("work"),
    workers: options.Workers = None,
    quiet: options.Quiet = False,
) -> None:
    """Find documents that differ only slightly from an earlier one. Resumable."""
    pairs = Path(dataset.absolute_here(str(pairs)))
    options.require_earlier(pairs, "--pairs", "the pairs", stages_near_duplicates.is_pairs)
    config = dedup_alone.dedup_config(
        inputs,
        str(pairs.with_suffix("")),
        {"mode": "none", "memory": memory},
        against,
        near_duplicates={"action": "report", "similarity": similarity, "words": words},
        source={
            "text_field": text_field,
            "id_field": id_field,
            "max_rejected_share": max_rejected_share,
            **options.asked(endpoint_url, anonymous),
        },
        work_folder=dataset.absolute_here(str(work_folder)),
    )
    dedup_alone.require_not_read(config, "--pairs", str(pairs), files=True)
    finished = dedup_alone.write_near_duplicates(config, pairs, workers=workers, watch=not quiet)
    typer.echo(dedup_alone.render_finished(finished, str(pairs)))


@command(STEPS, "infini-gram data --output ngrams")
def infini_gram(
    inputs: options.Inputs,
    output: Output,
    unigram: Annotated[bool, typer.Option("--unigram", help="Also write the counts of single bytes.")] = False,
    text_field: options.TextField = "text",
    max_rejected_share: options.RejectedShare = 0.001,
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
    shard_bytes: options.ShardBytes = 256 << 20,
    work_folder: options.WorkFolder = Path("work"),
    workers: options.Workers = None,
    quiet: options.Quiet = False,
) -> None:
    """Index JSON lines or parquet for infini-gram (token type u8): one folder 0, 1, ... per shard. Resumable."""
    config = dedup_alone.dedup_config(
        inputs,
        output,
        {"mode": "none"},
        source={
            "text_field": text_field,
            "max_rejected_share": max_rejected_share,
            "shard_bytes": shard_bytes,
            **options.asked(endpoint_url, anonymous),
        },
        work_folder=dataset.absolute_here(str(work_folder)),
    )
    finished = builds_infini_gram.write_index(config, output, unigram=unigram, workers=workers, watch=not quiet)
    typer.echo(dedup_alone.render_finished(finished, output))


@command(STEPS, "tokenize data --tokenizer cl100k_base --output tokens")
def tokenize(
    inputs: options.Inputs,
    output: Annotated[
        Path, typer.Option(help="A folder for one token shard per file; replaces those of an earlier run.")
    ],
    tokenizer: options.TokenizerName,
    text_field: options.TextField = "text",
    engine: options.Engine = "auto",
    pattern: options.Pattern = None,
    special_tokens: options.SpecialTokens = None,
    eot_token: options.EotToken = None,
    max_rejected_share: options.RejectedShare = 0.001,
    workers: options.Workers = None,
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
) -> None:
    """Tokenize files to token shards (ids and ends; see corpusmill/tokens/token_shard.py for a reader of ten lines)."""
    loaded = tokenizer_of(tokenizer, engine, pattern, special_tokens, eot_token)
    rejected = in_order_source.RejectedLines(in_order_source.rejected_beside(output.absolute()), max_rejected_share)
    for tokenized in token_shards.tokenize_files(
        inputs, loaded, output, text_field, options.endpoint(endpoint_url, anonymous), rejected, workers or cores()
    ):
        lost = "".join(f", {counted(count, 'line')} rejected: {why}" for why, count in tokenized.rejected.items())
        typer.echo(f"{tokenized.source}: {tokenized.documents:,} documents, {tokenized.tokens:,} tokens{lost}")
    options.print_rejected(rejected)


@command(STEPS, "megatron data --tokenizer cl100k_base --output parts/web")
def megatron(
    inputs: options.Inputs,
    output: Annotated[Path, typer.Option(help="A prefix: {prefix}_{key}_document.bin and .idx are written.")],
    tokenizer: options.TokenizerName,
    text_field: Annotated[
        list[str],
        typer.Option(help="The JSON key that holds a document's text; repeat to write a pair of files for each."),
    ] = [  # noqa: B006
        "text"
    ],
    eod: options.Eod = True,
    bos: options.Bos = False,
    empty_documents: Annotated[
        Literal["boundary", "skip", "eod"],
        typer.Option(help="What an empty document becomes: a repeated boundary, nothing, or an EOD."),
    ] = "boundary",
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Fields are lists of sentences; file names end in _sentence.")
    ] = False,
    as_preprocess_data: Annotated[
        bool, typer.Option("--as-preprocess-data", help="Write 65,500 to 65,536 ids as int32, as Megatron's tool does.")
    ] = False,
    max_rejected_share: options.RejectedShare = 0.001,
    workers: options.Workers = None,
    engine: options.Engine = "auto",
    pattern: options.Pattern = None,
    special_tokens: options.SpecialTokens = None,
    eot_token: options.EotToken = None,
    bos_token: options.BosToken = None,
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
) -> None:
    """Write Megatron's .bin and .idx in source order: no dedup, no shuffle (the job of preprocess_data.py)."""
    loaded = tokenizer_of(tokenizer, engine, pattern, special_tokens, eot_token, bos_token)
    rejected = in_order_source.rejected_beside(output)
    source = in_order_source.Source(
        inputs,
        tuple(text_field),
        rejected,
        max_rejected_share,
        None,
        options.endpoint(endpoint_url, anonymous),
        processes=workers or cores(),
    )
    written = in_order_exports.write_megatron(
        source,
        output,
        loaded,
        eod=eod,
        bos=bos,
        empty_documents=empty_documents,
        sentences=sentences,
        as_preprocess_data=as_preprocess_data,
    )
    _print_written(written, source)


@command(STEPS, "nanoset data --tokenizer cl100k_base --output nanoset")
def nanoset(
    inputs: options.Inputs,
    output: Annotated[Path, typer.Option(help="A folder without .ds files.")],
    tokenizer: options.TokenizerName,
    text_field: options.TextField = "text",
    name: Annotated[str, typer.Option(help="Name files {name}_00000_unshuffled.ds, not 00000_unshuffled.ds.")] = "",
    eod: options.Eod = True,
    bos: options.Bos = False,
    empty_documents: Annotated[
        Literal["eod", "skip"], typer.Option(help="What an empty document becomes: an EOD, or nothing.")
    ] = "eod",
    tokens_per_shard: options.TokensPerShard = None,
    loss_ranges_field: Annotated[
        str | None, typer.Option(help="Also write .ds.loss, which masks the character ranges under this key.")
    ] = None,
    max_rejected_share: options.RejectedShare = 0.001,
    workers: options.Workers = None,
    engine: options.Engine = "auto",
    pattern: options.Pattern = None,
    special_tokens: options.SpecialTokens = None,
    eot_token: options.EotToken = None,
    bos_token: options.BosToken = None,
    endpoint_url: options.EndpointUrl = None,
    anonymous: options.Anonymous = False,
) -> None:
    """Write Nanoset's .ds files in source order: no dedup, no shuffle (the job of datatrove's DocumentTokenizer)."""
    loaded = tokenizer_of(tokenizer, engine, pattern, special_tokens, eot_token, bos_token)
    source = in_order_source.Source(
        inputs,
        (text_field,),
        output / in_order_source.REJECTED,
        max_rejected_share,
        loss_ranges_field,
        options.endpoint(endpoint_url, anonymous),
        processes=workers or cores(),
    )
    written = in_order_exports.write_nanoset(
        source,
        output,
        loaded,
        name=name,
        eos=eod,
        bos=bos,
        empty_documents=empty_documents,
        maximum_tokens=tokens_per_shard,
    )
    _print_written(written, source)


def _print_written(written: list[Written], source: Source) -> None:
    for output in written:
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in output.counts.items())
        typer.echo(f"{output.path}: {counts}")
    options.print_rejected(source.set_aside)
