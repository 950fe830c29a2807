"""Lets each format verify its exports, compares their content, and checks the dataset's own manifests against them.

Content sums are computed of exported files, which each format reads without its writer's code (`Format.blocks`), anew
from the formula (content_kernels.py states it, docs/guarantees.md shows it): a fault in a kernel or in a writer's
reader cannot hide itself. Price: about 25 ns per token; memory is a block of BLOCK_TOKENS, 60 bytes per token.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.config import DatasetConfig
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import Receipt
from corpusmill.engine.stage import Recount
from corpusmill.engine.work import Input
from corpusmill.export import companions
from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.base import Readable
from corpusmill.inspect.verify.finding import DAMAGE, ELSEWHERE, Finding, difference, finding_of
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.report.card import CROISSANT, README, card_texts
from corpusmill.shuffle.stages.gather import provenance
from corpusmill.shuffle.stages.scatter import KINDS
from corpusmill.tokens.stages.tokenize import Vocabulary, vocabulary
from corpusmill.upload.stages.description import DATASET, SUMS, format_totals, held_by_file, listing, version_of
from corpusmill.upload.stages.figures import card_figures
from corpusmill.upload.stages.manifest import UNIT, WORK

BLOCK_TOKENS = 1 << 20
BLOCK = np.uint64(1024)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Words = NDArray[np.uint64]


def output_content(
    name: str, path: Path, about: Readable, slices: list[list[int]], ends_of: Callable[[int], Words]
) -> dict[str, Any]:
    """`content` and `cells` of one output (see export/formats/base.py), read from its files.

    `path` is the output's, without the suffixes of its files. `slices`: [cell, first, last] of the records, or for
    numpy of the tokens of the stream, that it holds; `ends_of(cell)`: where its documents end, in bare tokens.
    """
    cells = {cell: NOTHING for cell, _, _ in slices}
    if FORMATS[name].stream:
        ((tokens, _),) = FORMATS[name].blocks(path, about)
        begin = 0
        for cell, first, last in slices:
            cells[cell] += _stretch_content(tokens[begin : begin + last - first], cell, first, ends_of(cell))
            begin += last - first
        total = _content(_whole(tokens))
    else:
        total, seen = NOTHING, 0
        for tokens, lengths in FORMATS[name].blocks(path, about):
            sums = piece_sums(tokens, lengths)
            total += weigh(sums, 0, np.arange(seen, seen + len(lengths), dtype=np.uint64))
            for cell, places, held in _places(slices, seen, len(lengths)):
                cells[cell] += weigh([lane[held] for lane in sums], cell, places)
            seen += len(lengths)
    return {"content": str(total), "cells": [[cell, str(content)] for cell, content in sorted(cells.items())]}


def file_content(name: str, path: Path, about: Readable) -> dict[str, Any]:
    """The content of one delivered file of tokens, `path`, of the format `name`, as in dataset.json: `content`,
    `slots` and, if it has records, `records`. Raises as the format's reader does for a damaged file.
    """
    if FORMATS[name].stream:
        ((stream, _),) = FORMATS[name].blocks(path, about)
        return {"content": str(_content(_whole(stream))), "slots": len(stream)}
    total, records, slots = NOTHING, 0, 0
    for tokens, lengths in FORMATS[name].blocks(path if name == "webdataset" else path.with_suffix(""), about):
        ordinals = np.arange(records, records + len(lengths), dtype=np.uint64)
        total += weigh(piece_sums(tokens, lengths), 0, ordinals)
        records += len(lengths)
        slots += len(tokens)
    if name != "webdataset":  # with special tokens
        slots = FORMATS[name].slots(path, about)
    return {"content": str(total), "records": records, "slots": slots}


def _places(slices: list[list[int]], seen: int, records: int) -> Iterator[tuple[int, Words, slice]]:
    """(cell, places in it, mask or indices of the records) of records [seen, seen + records) of an output."""
    begin = 0
    for cell, first, last in slices:
        low, high = max(seen, begin), min(seen + records, begin + last - first)
        if low < high:
            yield (
                cell,
                np.arange(first + low - begin, first + high - begin, dtype=np.uint64),
                slice(low - seen, high - seen),
            )
        begin += last - first


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _odd(lane: int, numbers: Words) -> Words:
    return _mix((numbers + np.uint64(1)) * GOLDEN + np.uint64(lane << 32)) | np.uint64(1)


def _terms(tokens: NDArray[Any], numbers: Words) -> list[Words]:
    """For both lanes, each token's term; `numbers`: its place in its record."""
    ids = tokens.astype(np.uint64) + np.uint64(1)
    return [ids * _odd(lane, numbers % BLOCK) * _odd(lane + 4, numbers // BLOCK) for lane in (0, 1)]


def piece_sums(tokens: NDArray[Any], lengths: Words) -> list[Words]:
    """For both lanes, the sum over each record's tokens; records of `lengths` lie back to back."""
    ends = np.cumsum(lengths, dtype=np.uint64)
    numbers = np.arange(len(tokens), dtype=np.uint64) - np.repeat(ends - lengths, lengths.astype(np.int64))
    running = [np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)]) for terms in _terms(tokens, numbers)]
    return [lane[ends] - lane[ends - lengths] for lane in running]


def _place_weights(unit: int, ordinals: Words) -> list[Words]:
    keys = _mix(np.array([unit], np.uint64) * GOLDEN + np.uint64(0x5851F42D4C957F2D)) + ordinals
    return [_odd(lane + 2, keys) for lane in (0, 1)]


def weigh(sums: list[Words], unit: int, ordinals: Words) -> ContentSum:
    """The content of records: their sums, weighted by their unit and ordinals."""
    weights = _place_weights(unit, ordinals)
    return ContentSum(*(int((sums[lane] * weights[lane]).sum(dtype=np.uint64)) for lane in (0, 1)))


def _content(blocks: Iterator[tuple[NDArray[Any], Words]]) -> ContentSum:
    """The content of one record that comes in blocks of (tokens, their places in it)."""
    total = NOTHING
    weights = _place_weights(0, np.zeros(1, np.uint64))
    for tokens, numbers in blocks:
        sums = (int(lane.sum(dtype=np.uint64)) for lane in _terms(tokens, numbers))
        total += ContentSum(*(part * int(weight[0]) % (1 << 64) for part, weight in zip(sums, weights, strict=True)))
    return total


def _whole(tokens: NDArray[Any]) -> Iterator[tuple[NDArray[Any], Words]]:
    for first in range(0, len(tokens), BLOCK_TOKENS):
        block = tokens[first : first + BLOCK_TOKENS]
        yield block, np.arange(first, first + len(block), dtype=np.uint64)


def _stretch_content(tokens: NDArray[Any], cell: int, first: int, ends: Words) -> ContentSum:
    """The content of a cell's documents in a part of its stream EOT, document, EOT, document ..."""
    stream_ends = ends + np.arange(1, len(ends) + 1, dtype=np.uint64)
    total = NOTHING
    for block, numbers in _whole(tokens):
        positions = numbers + np.uint64(first)
        documents = np.searchsorted(stream_ends, positions, side="right")
        begins = np.where(documents > 0, stream_ends[documents - 1], np.uint64(0))
        own = positions != begins  # the first is the EOT
        terms = _terms(block[own], (positions - begins)[own] - np.uint64(1))
        weights = _place_weights(cell, documents[own].astype(np.uint64))
        total += ContentSum(*(int((terms[lane] * weights[lane]).sum(dtype=np.uint64)) for lane in (0, 1)))
    return total


CARD_DIFFERS = "the figures of the dataset's card differ from its receipts"
DIFFERS = "the dataset's manifest differs from the receipts"


def verify_outputs(build: Build, folder: Path, receipt: Receipt) -> tuple[list[Finding], Recount]:
    """Verify every output of an export unit by its format, and the sizes that the layout planned."""
    ids = Vocabulary(**receipt.settings["vocabulary"])
    about = Readable(build.config.framing, np.dtype(ids.dtype))
    findings: list[Finding] = []
    files: list[dict[str, Any]] = []
    complete = True
    for name, outputs in receipt.settings["outputs"].items():
        for _, output, slices in outputs:
            path = folder / name / output
            try:
                seen = FORMATS[name].verify(build.config, path, _positions(slices), ids)
                content = output_content(name, path, about, slices, partial(_ends, build, name))
                files.append({"name": f"{name}/{output}", **seen, **content})
            except ELSEWHERE:
                complete = False
            except DAMAGE as error:
                findings.append(finding_of(error, f"a {name} export cannot be read back", path))
    totals: Counter[str] = Counter()
    for file in files:
        totals.update({key: count for key, count in file.items() if isinstance(count, int)})
    width = 1 if FORMATS[next(iter(receipt.settings["outputs"]))].holds_text else np.dtype(ids.dtype).itemsize
    counts = {"outputs": len(files), **totals, "bytes_read": totals["slots"] * width}
    return findings, Recount(counts, {"files": files}, complete=True) if complete else Recount({})


def _ends(build: Build, name: str, cell: int) -> NDArray[np.uint64]:
    """The ends of the documents of a gathered cell."""
    return provenance(Input(build, ("gather", f"{KINDS[name]}-{cell:05d}"))).ends


def _positions(slices: list[list[int]]) -> int:
    """Records (or tokens of numpy's stream) in all slices of an output."""
    return sum(last - first for _, first, last in slices)


def check_manifests(build: Build, folder: Path) -> list[Finding]:
    """Check `dataset.json` and `webdataset/manifest.jsonl` against the receipts of the files that they list."""
    try:
        exported = build.receipts("export")
        written = build.receipts("writeback")
        ids = asdict(vocabulary(build))
    except ELSEWHERE:
        return []
    path = folder / DATASET
    description = json.loads(path.read_bytes())
    references = {reference["name"] for reference in description.get("references", ())}
    own = [
        file
        for file in listing(build.receipt("manifest", UNIT))
        if file["name"] not in references | {DATASET, SUMS, README, CROISSANT}
    ]
    delivered = [file for receipt in [*exported, *written] for file in listing(receipt)]
    held = held_by_file(exported)
    outputs = {str(file["name"]): {**file, **held.get(str(file["name"]), {})} for file in [*delivered, *own]}
    listed = {file["name"]: file for file in description["files"]}
    findings = [
        Finding(DIFFERS, f"{path}, {name}", *difference(outputs.get(name, {}), listed.get(name, {})))
        for name in sorted(outputs.keys() | listed.keys())
        if outputs.get(name) != listed.get(name)
    ]
    formats = {name: _totals(exported, name, build.config) for name in build.config.exports.formats()}
    facts = {"name": build.config.name, "vocabulary": ids, "formats": formats}
    findings += [
        Finding(DIFFERS, f"{path}, {key}", *difference(fact, description.get(key)))
        for key, fact in facts.items()
        if description.get(key) != fact
    ]
    tars = [
        (Path(name).stem, _positions(slices))
        for receipt in exported
        for _, name, slices in receipt.settings["outputs"].get("webdataset", ())
    ]
    findings += check_card(build, description, folder)
    return findings + (_check_tar_manifest(folder / "webdataset" / companions.MANIFEST, tars) if tars else [])


def check_card(build: Build, content: dict[str, Any], folder: Path) -> list[Finding]:
    """Check README.md and croissant.json, if the dataset has a card, against the texts that the receipts imply."""
    if not build.config.card:
        return []
    try:
        for stage in build.graph.before("manifest"):
            build.receipts(stage)
    except ELSEWHERE:
        return []
    figures = card_figures(WORK.opened(build, UNIT), WORK.identity(build, UNIT))
    texts = card_texts(content, figures, version_of(build.receipt("manifest", UNIT)))
    return [
        Finding(
            CARD_DIFFERS, str(folder / name), *difference(text.splitlines(), (folder / name).read_text().splitlines())
        )
        for name, text in texts.items()
        if (folder / name).read_text() != text
    ]


def _totals(exported: list[Receipt], name: str, config: DatasetConfig) -> dict[str, Any]:
    totals = format_totals(exported, name)
    stated = FORMATS[name].stated(config.exports, config.framing.model_dump())
    return {**{key: totals[key] for key in ("records", "slots", "outputs") if key in totals}, **stated}


def _check_tar_manifest(path: Path, planned: list[tuple[str, int]]) -> list[Finding]:
    listed = companions.read_manifest(path)
    if listed == planned:
        return []
    odd = sorted(set(planned) ^ set(listed))[:3] or "their order"
    what = "the manifest of the tars does not list the shards that were exported, in order"
    return [Finding(what, str(path), f"{len(planned)} shards", f"{len(listed)} shards, first differences: {odd}")]
