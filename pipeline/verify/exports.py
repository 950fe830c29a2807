"""Runs the verifier of each export's format, and checks the dataset's own manifests against the exports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.engine.build import Build
from corpusmill.engine.stage import Recount
from corpusmill.export import manifest, megatron_verify, nanoset_verify, numpy_shards, webdataset
from corpusmill.ledger import Receipt
from corpusmill.report.card import CROISSANT, README, card_texts
from corpusmill.stages.card import card_figures
from corpusmill.stages.description import DATASET, SUMS, format_totals, held_by_file, listing, version_of
from corpusmill.stages.gather import provenance
from corpusmill.stages.layout import framing_of
from corpusmill.stages.manifest import UNIT
from corpusmill.stages.scatter import KINDS
from corpusmill.stages.tokenize import Vocabulary, vocabulary
from corpusmill.verify.content import Readable, output_content
from corpusmill.verify.finding import DAMAGE, ELSEWHERE, Finding, difference, finding_of

CARD_DIFFERS = "the figures of the dataset's card differ from its receipts"
DIFFERS = "the dataset's manifest differs from the receipts"

Verifier = Callable[[Build, Path, int, Vocabulary], dict[str, int]]


def verify_outputs(build: Build, folder: Path, receipt: Receipt) -> tuple[list[Finding], Recount]:
    """Verify every output of an export unit with its format's verifier, and the sizes that the layout planned."""
    ids = Vocabulary(**receipt.settings["vocabulary"])
    about = Readable(build.config.framing, np.dtype(ids.dtype))
    findings: list[Finding] = []
    files: list[dict[str, Any]] = []
    complete = True
    for name, outputs in receipt.settings["outputs"].items():
        for _, output, slices in outputs:
            path = folder / name / output
            try:
                seen = VERIFIERS[name](build, path, _positions(slices), ids)
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
    return provenance(build, KINDS[name], cell).ends


def _positions(slices: list[list[int]]) -> int:
    """Records (or tokens of numpy's stream) in all slices of an output."""
    return sum(last - first for _, first, last in slices)


def _webdataset(build: Build, path: Path, records: int, ids: Vocabulary) -> dict[str, int]:
    wanted = build.config.exports.webdataset
    width = wanted.context_tokens if wanted else 0
    seen = webdataset.verify_shard(path, context_tokens=width, vocabulary_size=ids.size, records=records)
    return {"records": seen["records"], "slots": seen["tokens"]}


def _numpy(_build: Build, path: Path, tokens: int, ids: Vocabulary) -> dict[str, int]:
    seen = numpy_shards.verify_shard(path, tokens=tokens, dtype=np.dtype(ids.dtype), vocabulary_size=ids.size)
    return {"slots": seen["tokens"]}


def _megatron(build: Build, path: Path, _records: int, ids: Vocabulary) -> dict[str, int]:
    framing = asdict(framing_of(build.config.framing, ids))
    return _documents(megatron_verify.verify_part(path, vocabulary_size=ids.size, **framing))


def _nanoset(build: Build, path: Path, _records: int, ids: Vocabulary) -> dict[str, int]:
    path = path.with_name(f"{path.name}.ds")
    framing = asdict(framing_of(build.config.framing, ids))
    seen = nanoset_verify.verify_file(
        path,
        vocabulary_size=ids.size,
        eos_id=framing.pop("eod_id"),
        tokenizer_name=ids.name,
        loss=bool(build.config.exports.nanoset and build.config.exports.nanoset.loss),
        **framing,
    )
    return _documents(seen)


def _documents(seen: dict[str, int]) -> dict[str, int]:
    return {"records": seen["documents"], "slots": seen["tokens"] + seen["special_tokens"]}


VERIFIERS: dict[str, Verifier] = {
    "webdataset": _webdataset,
    "numpy": _numpy,
    "megatron": _megatron,
    "nanoset": _nanoset,
}


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
    texts = card_texts(content, card_figures(build), version_of(build.receipt("manifest", UNIT)))
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
