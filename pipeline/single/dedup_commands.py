"""Commands for people who want one step: `corpusmill dedup` and `corpusmill index`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Inputs = Annotated[list[str], typer.Argument(metavar="INPUT...", help="Folders, files, globs or s3://bucket/prefix/.")]
Output = Annotated[str, typer.Option(help="A folder, or s3://bucket/prefix; an earlier run's results are replaced.")]
Workers = Annotated[
    int | None, typer.Option(help="Worker processes; default: one per core, or one for little text.", min=1)
]
WorkFolder = Annotated[str, typer.Option(help="Intermediate files and receipts; what is there is reused.")]
TextField = Annotated[str, typer.Option(help="The JSON key that holds a document's text.")]
ShardBytes = Annotated[str, typer.Option(help="Source bytes per shard, the unit of parallel work.")]


def dedup(
    inputs: Inputs,
    output: Output,
    minimum_bytes: Annotated[int, typer.Option(help="Repeats of at least this many bytes (7 or more).")] = 500,
    mode: Annotated[str, typer.Option(help="remove, or annotate: keep the text and add the ranges.")] = "remove",
    keep: Annotated[str, typer.Option(help="first_window, or every_string: a whole copy of each.")] = "first_window",
    annotate_key: Annotated[str, typer.Option(help="What annotate adds; dots go deeper.")] = "sa_remove_ranges",
    replace_existing: Annotated[bool, typer.Option("--replace-existing", help="Annotate over an old value.")] = False,
    drop_empty: Annotated[bool, typer.Option("--drop-empty", help="Leave out documents that become empty.")] = False,
    fuzzy_share: Annotated[float | None, typer.Option(help="Also remove gaps where repeats cover this share.")] = None,
    method: Annotated[str, typer.Option(help="anchors, or suffix_array.")] = "anchors",
    memory: Annotated[str, typer.Option(help="Memory of one match task.")] = "1GiB",
    text_field: TextField = "text",
    shard_bytes: ShardBytes = "256MiB",
    work_folder: WorkFolder = "work",
    workers: Workers = None,
) -> None:
    """Remove or annotate every repeated stretch of text in JSON lines, over all files at once. Resumable."""
    from corpusmill.single.dedup import dedup_config, deduplicate, render_finished

    values: dict[str, Any] = {
        "mode": mode,
        "minimum_bytes": minimum_bytes,
        "keep": keep,
        "fuzzy_share": fuzzy_share,
        "annotate_key": annotate_key,
        "replace_existing": replace_existing,
        "drop_empty": drop_empty,
        "memory": memory,
    }
    config = dedup_config(
        inputs,
        output,
        values,
        source={"text_field": text_field, "shard_bytes": shard_bytes},
        index={"method": method},
        work_folder=work_folder,
    )
    typer.echo(render_finished(deduplicate(config, output, workers=workers, watch=True), output))


def index(
    inputs: Inputs,
    output: Output,
    unigram: Annotated[bool, typer.Option("--unigram", help="Also count bytes.")] = False,
    text_field: TextField = "text",
    shard_bytes: ShardBytes = "256MiB",
    work_folder: WorkFolder = "work",
    workers: Workers = None,
) -> None:
    """Write an infini-gram index (token type u8) of JSON lines: one folder 0, 1, ... per shard. Resumable."""
    from corpusmill.single.dedup import dedup_config, render_finished, write_index

    config = dedup_config(
        inputs,
        output,
        {"mode": "none"},
        source={"text_field": text_field, "shard_bytes": shard_bytes},
        index={"method": "suffix_array", "unigram": unigram},
        work_folder=work_folder,
    )
    typer.echo(render_finished(write_index(config, output, workers=workers, watch=True), output))
