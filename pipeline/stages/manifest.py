"""Manifest: what the finished dataset consists of, once all its accounts balance.

Writes `dataset.json` (every file with size and sha256, what it holds, the tokenizer) and `webdataset/manifest.jsonl`.
Its receipt's digest names the dataset's version.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.ledger import Check, Outcome, Receipt
from pipeline.stages import gather, scatter
from pipeline.stages.stage import Stage, every
from pipeline.stages.tokenize import vocabulary
from pipeline.stages.union import ranges_match_check

if TYPE_CHECKING:
    from pipeline.stages.build import Build

DATASET = "dataset.json"
UNIT = "dataset"
VERSION_DIGITS = 12


def dataset_version(build: Build) -> str:
    """12 hex digits that name this content of the dataset; equal content has an equal version everywhere."""
    return build.receipt("manifest", UNIT).digest[:VERSION_DIGITS]


def dataset_files(build: Build) -> list[tuple[str, Path, str, int]]:
    """(name in the dataset, where it lies, sha256, size) of every deliverable; the dataset's own manifest is last."""
    files = []
    for stage in ("export", "writeback", "manifest"):
        for unit in build.units(stage):
            folder = build.folder(stage, unit)
            files += [
                (one.name, folder / one.name, one.sha256, one.size_bytes) for one in build.receipt(stage, unit).outputs
            ]
    return sorted(files, key=lambda file: (file[0] == DATASET, file[0]))


def listing(receipt: Receipt) -> list[dict[str, str | int]]:
    """Name, size and sha256 of every file that a step delivers, as `dataset.json` lists them."""
    return [{"name": one.name, "size_bytes": one.size_bytes, "sha256": one.sha256} for one in receipt.outputs]


def _inputs(build: Build, _unit: str) -> list[tuple[str, str]]:
    return [*every(build, "export"), *every(build, "writeback"), *every(build, "gather")]


def _settings(build: Build, _unit: str) -> dict[str, Any]:
    return {"name": build.config.name, "vocabulary": asdict(vocabulary(build))}


def _run(build: Build, _unit: str, folder: Path) -> Outcome:
    from pipeline.export.manifest import write_manifest

    exported = build.receipts("export")
    holds = {one["name"]: one for receipt in exported for one in receipt.details["files"]}
    if build.config.exports.webdataset is not None:
        (folder / "webdataset").mkdir()
        shards = [(name, one["records"]) for name, one in holds.items() if name.startswith("webdataset/")]
        write_manifest(folder / "webdataset/manifest.jsonl", [(Path(name).stem, count) for name, count in shards])
    outputs = [one for receipt in [*exported, *build.receipts("writeback")] for one in listing(receipt)]
    description = {
        "name": build.config.name,
        "vocabulary": asdict(vocabulary(build)),
        "formats": {name: _format(build, name) for name in build.config.exports.formats()},
        "files": [
            {
                **one,
                **{key: holds[one["name"]][key] for key in ("records", "slots") if key in holds.get(one["name"], {})},
            }
            for one in sorted(outputs, key=lambda one: str(one["name"]))
        ],
    }
    (folder / DATASET).write_text(json.dumps(description, indent=1, ensure_ascii=False) + "\n")
    sizes = [int(one["size_bytes"]) for one in outputs]
    return Outcome(counts={"files": len(outputs), "dataset_bytes": sum(sizes), "bytes_read": 0})


def _format(build: Build, name: str) -> dict[str, Any]:
    """What one format holds in all: records and token slots (special tokens and padding included)."""
    totals = _exported(build, name)
    return {key: totals[key] for key in ("records", "slots", "outputs") if key in totals}


def _exported(build: Build, name: str) -> dict[str, int]:
    totals: dict[str, int] = {}
    for unit in build.units("export"):
        if unit.startswith(f"{name}-"):
            for key, value in build.receipt("export", unit).counts.items():
                totals[key] = totals.get(key, 0) + value
    return totals


def _checks(build: Build, _unit: str, _receipt: Receipt) -> list[Check]:
    """The shuffle is a permutation, and every format holds exactly what the shuffle handed over."""
    checks = [ranges_match_check(build)] if build.units("match") else []
    for kind in scatter.kinds(build):
        checks += gather.permutation_check(build, kind)
    for name in build.config.exports.formats():
        kind = scatter.KINDS[name]
        records, slots = (sum(gather.per_cell(build, kind, what)) for what in ("records", "slots"))
        exported = _exported(build, name)
        special = () if kind == "contexts" else (("EOT", records),)
        if name != "numpy":
            checks.append(
                Check(f"{name} records", (("shuffled", records),), (("exported", exported.get("records", 0)),))
            )
        left = (("shuffled", slots), *special)
        checks.append(Check(f"{name} tokens", left, (("exported", exported.get("slots", 0)),)))
    return checks


STAGE = Stage(
    "manifest",
    units=lambda _build: [UNIT],
    inputs=_inputs,
    settings=_settings,
    run=_run,
    checks=_checks,
    delivers=True,
)
