"""Export: writes the shuffled records into the files that training programs read.

Units are such as `numpy-00000`: format and group of files. Where Megatron parts and Nanoset files are cut at the same
size they hold the same bytes: units such as `documents-00000` write the tokens once and hard-link them under the second
name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import FramingConfig
from corpusmill.engine.stage import Stage
from corpusmill.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.stages import layout
from corpusmill.stages.audit import require_audited
from corpusmill.stages.scatter import KINDS
from corpusmill.stages.tokenize import Vocabulary, vocabulary

if TYPE_CHECKING:
    from corpusmill.engine.build import Build, StepView
    from corpusmill.export.content import WrittenContent

BATCH_TOKENS = 1 << 19
CONTENT = ("content", "cells")  # keys of a file's content in the receipt (export/content.py)
LIBRARIES = {
    "webdataset": ("deflate", "orjson"),
    "nanoset": ("humanize",),
    "numpy": ("numpy",),
}  # whose versions can change bytes


@dataclass(frozen=True)
class _Output:
    """One output file (or file set): its number, its path below the format's folder, its slices.

    `slices`: (cell, first, last) in order, in positions of the cell (see layout.OutputPlan).
    """

    number: int
    name: str
    slices: list[tuple[int, int, int]]


def _units(build: Build) -> list[str]:
    return [
        f"{name}-{number:05d}"
        for name, formats in layout.unit_formats(build).items()
        for number in range(len(layout.unit_outputs(build, formats[0])))
    ]


def _outputs(build: Build, unit: str) -> dict[str, list[layout.OutputPlan]]:
    """What a unit writes, by format."""
    name, _, number = unit.partition("-")
    return {output: layout.unit_outputs(build, output)[int(number)] for output in layout.unit_formats(build)[name]}


def _inputs(build: Build, unit: str) -> list[tuple[str, str]]:
    name, outputs = next(iter(_outputs(build, unit).items()))
    slices = layout.cell_slices(build, name, outputs[0].first, outputs[-1].last)
    return [("gather", f"{KINDS[name]}-{part.cell:05d}") for part in slices]


def _settings(build: Build, unit: str) -> dict[str, Any]:
    wanted = _outputs(build, unit)
    return {
        "outputs": {
            name: [[output.number, output.name, _slices(build, name, output)] for output in outputs]
            for name, outputs in wanted.items()
        },
        "vocabulary": asdict(vocabulary(build)),
        **_document_settings(build, wanted),
        "libraries": versions_of(*(library for name in wanted for library in LIBRARIES.get(name, ()))),
    }


def _slices(build: Build, name: str, output: layout.OutputPlan) -> list[tuple[int, int, int]]:
    """(cell, first, last) of every slice of an output, in order.

    The output's place in the global order is not enough: its place in a cell depends on the sizes of all earlier cells,
    which are not inputs of this step.
    """
    slices = layout.cell_slices(build, name, output.first, output.last)
    return [(stretch.cell, stretch.first, stretch.last) for stretch in slices]


def _document_settings(build: Build, wanted: dict[str, list[layout.OutputPlan]]) -> dict[str, Any]:
    """Further settings that decide the bytes of whole documents; empty if all are defaults."""
    settings: dict[str, Any] = {}
    if wanted.keys() & {"megatron", "nanoset"} and build.config.framing != FramingConfig():
        settings["framing"] = build.config.framing.model_dump()
    if "nanoset" in wanted and build.config.exports.nanoset and build.config.exports.nanoset.loss:
        settings["loss"] = True
    return settings


def _run(build: StepView, _unit: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.export.content import WrittenContent

    ids = Vocabulary(**build.settings["vocabulary"])
    files: list[dict[str, Any]] = []
    parts: list[Path] = []
    for name, outputs in build.settings["outputs"].items():
        for place, output in enumerate(_Output(*output) for output in outputs):
            path = folder / name / output.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if parts and name == "nanoset":  # the megatron parts of the same documents were written before
                written = _linked(build, parts[place], output, folder / name, ids)
                content = {key: files[place][key] for key in CONTENT}
            else:
                tally = WrittenContent(output.slices if name != "numpy" else [])
                written = WRITERS[name](build, output, folder / name, ids, tally)
                content = tally.to_json()
            files.append({"name": f"{name}/{output.name}", **written, **content})
            if name == "megatron":
                parts.append(path)
    counts: Counter[str] = Counter()
    for file in files:
        counts.update({key: count for key, count in file.items() if isinstance(count, int)})
    token_bytes = counts["slots"] * np.dtype(ids.dtype).itemsize
    return Outcome(counts={"outputs": len(files), **counts, "bytes_read": token_bytes}, details={"files": files})


def _record_batches(build: Build, name: str, output: _Output) -> Iterator[tuple[Any, Any, Any, Any]]:
    """(tokens, ends, shards, ordinals) of an output's records, about BATCH_TOKENS at a time."""
    from corpusmill.tokens.record_shard import open_record_shard
    from corpusmill.tokens.runs import runs

    for number, first, last in output.slices:
        cell = open_record_shard(build.folder("gather", f"{KINDS[name]}-{number:05d}"))
        for begin, end in runs(cell.ends, BATCH_TOKENS, first, last):
            tokens, ends = cell.slice(begin, end)
            yield tokens, ends, cell.shards[begin:end], cell.ordinals[begin:end]


def _webdataset(build: Build, output: _Output, folder: Path, ids: Vocabulary, tally: WrittenContent) -> dict[str, int]:
    from corpusmill.export import webdataset

    assert build.config.exports.webdataset is not None
    width = build.config.exports.webdataset.context_tokens
    names: list[str] = []

    def contexts() -> Iterator[Any]:
        for tokens, _, shards, ordinals in _record_batches(build, "webdataset", output):
            # Provenance in the member's name: shard of the corpus and number of the context in it.
            names.extend(f"{shard:05d}-{ordinal:09d}" for shard, ordinal in zip(shards, ordinals, strict=True))
            yield tokens.reshape(-1, width)

    def identities() -> Iterator[str]:
        position = 0
        while position < len(names):
            yield names[position]
            position += 1

    written = webdataset.write_shard(
        folder / output.name, contexts(), identities(), output.number, vocabulary_size=ids.size, written=tally.add
    )
    return {"records": written["records"], "slots": written["tokens"]}


def _numpy(build: Build, output: _Output, folder: Path, ids: Vocabulary, tally: WrittenContent) -> dict[str, int]:
    import numpy as np

    from corpusmill.export import numpy_shards

    tokens = sum(last - first for _, first, last in output.slices)
    pieces = _stream_pieces(build, output, ids, tally)
    numpy_shards.write_shard(folder / output.name, pieces, tokens, np.dtype(ids.dtype))
    return {"slots": tokens}


def _stream_pieces(build: Build, output: _Output, ids: Vocabulary, tally: WrittenContent) -> Iterator[Any]:
    """The part of the stream EOT, document, EOT, document ... of the global order that an output holds.

    Yielded tokens are added to `tally`: pieces of documents by their places in the cell, and the file as one record.
    """
    import numpy as np

    from corpusmill.content_kernels import placed_sum, token_sums
    from corpusmill.export.numpy_shards import with_eot_before
    from corpusmill.tokens.record_shard import open_record_shard
    from corpusmill.tokens.runs import runs

    written = 0
    for number, first, last in output.slices:
        cell = open_record_shard(build.folder("gather", f"{KINDS['numpy']}-{number:05d}"))
        stream_ends = cell.ends + np.arange(1, cell.records + 1, dtype=np.uint64)
        begin = int(np.searchsorted(stream_ends, np.uint64(first), side="right"))
        end = int(np.searchsorted(stream_ends, np.uint64(last), side="left")) + 1
        for low, high in runs(cell.ends, BATCH_TOKENS, begin, end):
            # Documents without tokens are in the cell only if the configuration keeps them.
            piece = with_eot_before(cell.slice(low, high), ids.eot_id, vocabulary_size=ids.size, keep_empty=True)
            start = int(stream_ends[low - 1]) if low else 0
            skipped, stop = max(0, first - start), min(len(piece), last - start)
            taken = piece[skipped:stop]
            ends = stream_ends[low:high].astype(np.int64) - start  # of documents in the piece, whose first is an EOT
            begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) + 1
            held = np.clip(begins, skipped, stop)
            sizes = np.clip(ends, skipped, stop) - held
            sums = token_sums(taken, *(part.astype(np.uint64) for part in (held - skipped, sizes, held - begins)))
            tally.add_to_cell(number, sums, np.arange(low, high, dtype=np.uint64))
            position = np.array([written], np.uint64)
            whole = token_sums(taken, np.zeros(1, np.uint64), np.array([len(taken)], np.uint64), position)
            tally.file += placed_sum(whole, 0, np.zeros(1, np.uint64))
            written += len(taken)
            yield taken


def _megatron(build: Build, output: _Output, folder: Path, ids: Vocabulary, tally: WrittenContent) -> dict[str, int]:
    from corpusmill.export import megatron

    written = megatron.write_part(
        folder,
        output.name,
        _documents(build, "megatron", output),
        dtype=megatron.token_dtype(ids.size),
        vocabulary_size=ids.size,
        written=tally.add,
        **_framing(build, ids),
    )
    return _document_counts(written)


def _nanoset(build: Build, output: _Output, folder: Path, ids: Vocabulary, tally: WrittenContent) -> dict[str, int]:
    from corpusmill.export import nanoset

    framing = _framing(build, ids)
    written = nanoset.write_file(
        folder,
        output.name,
        _documents(build, "nanoset", output),
        eos_id=framing.pop("eod_id"),
        tokenizer_name=ids.name,
        vocabulary_size=ids.size,
        written=tally.add,
        **framing,
    )
    return _with_loss(build, folder, output, _document_counts(written))


def _linked(build: Build, part: Path, output: _Output, folder: Path, ids: Vocabulary) -> dict[str, int]:
    from corpusmill.export import megatron, nanoset

    opened = megatron.open_part(part)
    special = layout.framing_of(build.config.framing, ids).special_tokens
    written = nanoset.link_file(folder, output.name, opened, tokenizer_name=ids.name, special_tokens=special)
    return _with_loss(build, folder, output, _document_counts(written))


def _with_loss(build: Build, folder: Path, output: _Output, counts: dict[str, int]) -> dict[str, int]:
    from corpusmill.export import nanoset

    assert build.config.exports.nanoset is not None
    if build.config.exports.nanoset.loss and counts["slots"]:
        nanoset.write_loss(folder / f"{output.name}.ds", nanoset.every_token(counts["slots"]))
    return counts


def _framing(build: Build, ids: Vocabulary) -> dict[str, Any]:
    return asdict(layout.framing_of(build.config.framing, ids))


def _documents(build: Build, name: str, output: _Output) -> Iterator[tuple[Any, Any]]:
    for tokens, ends, _, _ in _record_batches(build, name, output):
        yield tokens, ends


def _document_counts(written: dict[str, int]) -> dict[str, int]:
    return {"records": written["documents"], "slots": written["tokens"] + written["special_tokens"]}


def _checks(build: Build, unit: str, receipt: Receipt) -> list[Check]:
    """The planned files were written, and no others."""
    planned = {
        f"{name}/{output.name}{suffix}"
        for name, outputs in _outputs(build, unit).items()
        for output in outputs
        for suffix in _suffixes(build, name)
    }
    written = {output.name for output in receipt.outputs}
    return [
        Check("files", (("planned", len(planned)),), (("written", len(planned & written)),)),
        Check("other files", (), (("written", len(written - planned)),)),
    ]


def _suffixes(build: Build, name: str) -> list[str]:
    """The suffixes that are added to an output's name, one per file."""
    loss = [".ds.loss"] if build.config.exports.nanoset and build.config.exports.nanoset.loss else []
    return {"megatron": [".bin", ".idx"], "nanoset": [".ds", ".ds.index", ".ds.metadata", *loss]}.get(name, [""])


WRITERS = {"webdataset": _webdataset, "numpy": _numpy, "megatron": _megatron, "nanoset": _nanoset}

STAGE = Stage(
    "export",
    version=4,
    after=("gather",),
    units_after=("scatter",),
    group="exports",
    unit_word="part",
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    checks=_checks,
    gate=require_audited,
    reclaimed=("*",),
    read_until="upload",
    delivers=True,
)
