"""An infini-gram index alone: the text shards of a build under a configuration made from a few arguments, and for each
of them a folder of the index (dedup/infini_gram.py).

An index has receipts below the work folder as a build's steps have, so an interrupted command resumes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from corpusmill.builds.dedup_alone import Finished, balances, deliver, output_folder, run_stages
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import worker_count, worker_pool
from corpusmill.builds.processes import WorkerLostError
from corpusmill.config import DatasetConfig, absolute_here
from corpusmill.dedup.infini_gram import write_suffix_array
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import (
    Check,
    InputReceipt,
    Outcome,
    Step,
    read_receipt,
    require_balanced,
    run_once,
    versions_of,
)
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily
from corpusmill.sources.copies import open_as_lines
from corpusmill.sources.parts import indexed_source, lines_before, shard_sources
from corpusmill.sources.stages.download import shard_copies
from corpusmill.sources.stages.index import require_few_rejected

with lazily:
    from corpusmill.dedup import infini_gram


STEP, VERSION = "infini_gram", 1
ENGINE_WORDS = ("tokenized", "table", "offset", "metadata", "metaoff", "unigram")


def write_index(
    config: DatasetConfig, output: str, *, unigram: bool = False, workers: int | None = None, watch: bool = False
) -> Finished:
    """Index the sources for infini-gram: `output`/0, 1, ... are its shards (InfiniGramEngine(index_dir=[...])).

    `unigram`: also count single bytes; `watch` shows how far it is. ConfigError if the engine could not open the
    shards: it looks for its files' names in the whole path.
    """
    where = absolute_here(output)
    words = [word for word in ENGINE_WORDS if word in where]
    if words:
        raise ConfigError(
            "infini_gram.index_not_opened: infini-gram's engine could not open an index in this folder",
            where=where,
            expected=f"a path without the words {', '.join(ENGINE_WORDS)}: the engine recognizes its files by them",
            got=", ".join(words),
            next_step="write the index to another folder",
        )
    folder = output_folder(config, output, "infini-gram")
    build = run_stages(config, "index", workers=workers, watch=watch)
    require_few_rejected(build)
    files, described = {}, 0
    for number, path in enumerate(_write_shards(build, workers, unigram=unigram)):
        receipt = read_receipt(path)
        described += receipt.counts["documents"]
        files.update({f"{number}/{file.name}": (path.parent / file.name, file.sha256) for file in receipt.outputs})
        if watch:
            print(f"{number + 1} of {len(build.units('index'))} shards indexed", file=sys.stderr)
    checks = [*balances(build, "index"), _described(build.total("index", "documents_out"), described)]
    return Finished(build, checks, len(files), deliver(build, folder, files))


def _write_shards(build: Build, workers: int | None, *, unigram: bool) -> Iterator[Path]:
    """Write or reuse the index of every shard; the paths of the receipts, in order."""
    write = partial(_write_shard, str(build.plan_receipt), unigram)
    number = worker_count(workers, build.plan.source_bytes())
    try:
        with worker_pool(number) if number > 1 else nullcontext() as pool:
            yield from (pool.map if pool else map)(write, build.units("index"))
    except BrokenProcessPool as error:
        raise WorkerLostError(
            "infini_gram.worker_died: a worker died while it sorted suffixes",
            got="killed, most likely because memory ran out",
            next_step="run again: finished shards are reused; if it dies again, use fewer --workers",
        ) from error


def _write_shard(plan_receipt: str, unigram: bool, shard: str) -> Path:
    """Write or reuse the index of one shard; the path of its receipt."""
    build = open_build(plan_receipt)
    before = lines_before(build, shard)
    source = build.config.source  # the metadata of a parquet row is JSON of its text and its id
    settings = {
        "text_field": source.text_field,
        "id_field": source.id_field,
        "unigram": unigram,
        # A text has one suffix array whichever library made it; only msgspec, which reads the lines, matters.
        "libraries": versions_of("msgspec"),
        **({"lines_before": before} if before else {}),
    }
    inputs = tuple(InputReceipt(stage, shard, build.receipt(stage, shard).digest) for stage in ("download", "index"))
    step = Step(STEP, VERSION, shard, settings, inputs)
    return run_once(step, build.work, lambda folder: _index(build, step, folder), delivers=True)


def _index(build: Build, step: Step, folder: Path) -> Outcome:
    shard, settings = step.unit, step.settings
    text = open_text_shard(build.folder("index", shard))
    infini_gram.link_text(text.folder, folder)
    write_suffix_array(text.text, folder, unigram=settings["unigram"])
    (sources,) = shard_sources(build, shard)
    with (
        (folder / infini_gram.METADATA).open("wb") as metadata,
        (folder / infini_gram.METADATA_OFFSETS).open("wb") as offsets,
    ):
        for copy, source in zip(shard_copies(build, shard), text.sources, strict=True):
            with open_as_lines(copy, build.config.source) as lines:
                infini_gram.append_metadata(
                    lines,
                    metadata,
                    offsets,
                    indexed=indexed_source(sources, text, source),
                    text_field=build.config.source.text_field,
                    path=copy.shown,
                    lines_before=settings.get("lines_before", {}).get(source.path, 0),
                )
        documents = offsets.tell() // 8
    require_balanced([_described(text.documents, documents)], what=f"the index of shard {shard}")
    return Outcome(counts={"documents": documents})


def _described(indexed: int, described: int) -> Check:
    return Check("documents", (("indexed", indexed),), (("described", described),))
