"""Lets each format verify its exports, and checks the dataset's own manifests against the exports."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.engine.build import Build
from corpusmill.engine.ledger import Receipt
from corpusmill.engine.stage import Recount
from corpusmill.engine.work import Input
from corpusmill.export import manifest
from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.base import Readable
from corpusmill.inspect.verify.content import output_content
from corpusmill.inspect.verify.finding import DAMAGE, ELSEWHERE, Finding, difference, finding_of
from corpusmill.report.card import CROISSANT, README, card_texts
from corpusmill.shuffle.stages.gather import provenance
from corpusmill.shuffle.stages.scatter import KINDS
from corpusmill.tokens.stages.tokenize import Vocabulary, vocabulary
from corpusmill.upload.stages.card import card_figures
from corpusmill.upload.stages.description import DATASET, SUMS, format_totals, held_by_file, listing, version_of
from corpusmill.upload.stages.manifest import UNIT, WORK

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
    counts = {"outputs": len(files), **totals, "bytes_read": totals["slots"] * np.dtype(ids.dtype).itemsize}
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
    formats = {
        name: _totals(exported, name, build.config.framing.model_dump()) for name in build.config.exports.formats()
    }
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
    return findings + (_check_tar_manifest(folder / "webdataset" / manifest.MANIFEST, tars) if tars else [])


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


def _totals(exported: list[Receipt], name: str, framing: dict[str, Any]) -> dict[str, Any]:
    totals = format_totals(exported, name)
    framed = {"framing": framing} if name in {"megatron", "nanoset"} else {}
    return {**{key: totals[key] for key in ("records", "slots", "outputs") if key in totals}, **framed}


def _check_tar_manifest(path: Path, planned: list[tuple[str, int]]) -> list[Finding]:
    listed = manifest.read_manifest(path)
    if listed == planned:
        return []
    odd = sorted(set(planned) ^ set(listed))[:3] or "their order"
    what = "the manifest of the tars does not list the shards that were exported, in order"
    return [Finding(what, str(path), f"{len(planned)} shards", f"{len(listed)} shards, first differences: {odd}")]
