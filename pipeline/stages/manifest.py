"""Manifest: what the finished dataset consists of, once all its accounts balance.

Writes `dataset.json` (every file with size and sha256, what it holds, the tokenizer), whose sha256 names the dataset's
version; `shuffle_quality.json` (see shuffle/quality.py) unless the order is the source's; for WebDataset
`manifest.jsonl`, and if asked for `exp_data.json`, DCLM's dataset reference, one for each destination, because it holds
the dataset's address there; if asked for `sample/`, the first documents of Megatron and Nanoset; and `SHA256SUMS` of
all other files, `dataset.json` included, for `sha256sum --check` and `corpusmill repair`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import CorruptDataError
from pipeline.fingerprint import file_digest
from pipeline.ledger import Check, Outcome, Receipt, versions_of
from pipeline.ledger.once import LOCK_NAME
from pipeline.stages import gather, layout, scatter
from pipeline.stages.stage import Stage, every
from pipeline.stages.tokenize import vocabulary
from pipeline.stages.union import ranges_match_check

if TYPE_CHECKING:
    from pipeline.shuffle.quality import OrderQuality
    from pipeline.stages.build import Build

DATASET = "dataset.json"
QUALITY = "shuffle_quality.json"
SUMS = "SHA256SUMS"
SAMPLE = "sample"
UNIT = "dataset"
VERSION_DIGITS = 12


def dataset_version(build: Build) -> str:
    """12 hex digits that name this content of the dataset; equal content has an equal version everywhere."""
    return version_of(build.receipt("manifest", UNIT))


def version_of(receipt: Receipt) -> str:
    """The version that a manifest's receipt stands for: it is dataset.json's sha256, shortened."""
    digests = [one.sha256 for one in receipt.outputs if one.name == DATASET]
    if len(digests) != 1:
        raise CorruptDataError(
            "a manifest's receipt does not name the dataset's version",
            where=f"{receipt.stage} {receipt.unit}",
            expected=f"{DATASET} once among its outputs",
            got=f"{len(digests)} times",
            next_step="remove the manifest's folder and build again",
        )
    return digests[0][:VERSION_DIGITS]


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
    read = ("export", "writeback", "gather", "tokenize", "audit")  # the audit, so that a later receipt binds it
    return [step for stage in read for step in every(build, stage)]


def _settings(build: Build, _unit: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "name": build.config.name,
        "vocabulary": asdict(vocabulary(build)),
        "libraries": versions_of("humanize", "orjson"),  # samples of Nanoset files; manifest.jsonl, checkpoints
    }
    if build.config.exports.sample_documents is not None:
        settings["sample_documents"] = build.config.exports.sample_documents
    if build.config.exports.numpy is not None:
        settings["numpy"] = build.config.exports.numpy.model_dump(include={"placeholders", "checkpoints"})
    if build.config.exports.webdataset is not None and build.config.exports.webdataset.exp_data:
        settings["sources"] = build.config.source.paths
        settings["destinations"] = [one.path for one in build.config.destinations]
    return settings


def _run(build: Build, _unit: str, folder: Path) -> Outcome:
    from pipeline.export.checkpoints import shard_checkpoints, write_checkpoints, write_placeholders
    from pipeline.export.manifest import MANIFEST, write_manifest

    exported = build.receipts("export")
    holds = {one["name"]: one for receipt in exported for one in receipt.details["files"]}
    webdataset_bytes = 0
    if build.config.exports.webdataset is not None:
        (folder / "webdataset").mkdir()
        shards = [(name, one["records"]) for name, one in holds.items() if name.startswith("webdataset/")]
        listed = write_manifest(folder / "webdataset" / MANIFEST, [(Path(name).stem, count) for name, count in shards])
        tars = [one.size_bytes for receipt in exported for one in receipt.outputs if one.name.endswith(".tar")]
        webdataset_bytes = listed["bytes"] + sum(tars)
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
    text = (json.dumps(description, indent=1, ensure_ascii=False) + "\n").encode()
    (folder / DATASET).write_bytes(text)
    if build.config.exports.webdataset is not None and build.config.exports.webdataset.exp_data:
        version = hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]
        _write_references(build, folder / "webdataset", version, webdataset_bytes)
    wanted = build.config.exports.numpy
    if wanted is not None and wanted.placeholders:
        write_placeholders((one.name for one in layout.output_plans(build, "numpy")), folder / "numpy")
    if wanted is not None and wanted.checkpoints:
        write_checkpoints(shard_checkpoints(_documents_in_order(build), wanted.tokens_per_shard), folder / "numpy")
    if not scatter.in_source_order(build):
        measured = {kind: one.to_json() for kind, one in measure_shuffle(build).items()}
        (folder / QUALITY).write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    if build.config.exports.sample_documents is not None:
        _write_sample(build, folder / SAMPLE, build.config.exports.sample_documents)
    _write_sums(folder, {str(one["name"]): str(one["sha256"]) for one in outputs})
    sizes = [int(one["size_bytes"]) for one in outputs]
    return Outcome(counts={"files": len(outputs), "dataset_bytes": sum(sizes), "bytes_read": 0})


def _write_sample(build: Build, folder: Path, documents: int) -> None:
    """sample/<name>_sample_<key>_document.bin and .idx, sample/<name>_sample.ds and its neighbours."""
    from pipeline.export.sample import sample_files, sample_parts

    folder.mkdir()
    exports, size = build.config.exports, vocabulary(build).size
    if exports.megatron is not None:
        parts = export_paths(build, "megatron")
        name = parts[0].name.replace("_00000_", "_sample_", 1)
        sample_parts(parts, folder, name, documents, vocabulary_size=size)
    if exports.nanoset is not None:
        files = [path.with_name(f"{path.name}.ds") for path in export_paths(build, "nanoset")]
        sample_files(files, folder, f"{build.config.name}_sample", documents, vocabulary_size=size)


def export_paths(build: Build, name: str) -> list[Path]:
    """Where the outputs of one export lie in the work folder, in order, by their planned names."""
    return [
        build.folder("export", layout.unit_of(build, name, output)) / name / output.name
        for output in layout.output_plans(build, name)
    ]


def _write_sums(folder: Path, exported: dict[str, str]) -> None:
    """`SHA256SUMS` of the dataset: what is exported and what lies in this folder, in order of name."""
    mine = {path.relative_to(folder).as_posix(): file_digest(path) for path in folder.rglob("*") if path.is_file()}
    mine.pop(LOCK_NAME, None)
    sums = sorted({**exported, **mine}.items())
    (folder / SUMS).write_text("".join(f"{sha256}  {name}\n" for name, sha256 in sums))


def _write_references(build: Build, folder: Path, version: str, size_bytes: int) -> None:
    """exp_data.json, and exp_data_00001.json ... for further destinations; paths as configured, not made absolute."""
    from pipeline.export.manifest import MANIFEST, exp_data

    for number, destination in enumerate(build.config.destinations):
        url = f"{destination.path.rstrip('/')}/{build.config.name}/{version}/webdataset/"
        reference = exp_data(
            name=build.config.name,
            sources=build.config.source.paths,
            num_tokens=_exported(build, "webdataset")["slots"],
            size_bytes=size_bytes,
            dataset_url=url,
            manifest_url=f"{url}{MANIFEST}",
            tokenizer=vocabulary(build).name,
        )
        name = f"exp_data_{number:05d}.json" if number else "exp_data.json"
        (folder / name).write_text(json.dumps(reference, indent=4, ensure_ascii=False) + "\n")


def _documents_in_order(build: Build) -> Iterator[tuple[Any, Any, Any]]:
    """(ends, shards, ordinals) of the documents of each cell."""
    from pipeline.tokens.record_shard import open_record_shard

    for unit in build.units("gather"):
        if unit.startswith("documents-"):
            cell = open_record_shard(build.folder("gather", unit))
            yield cell.ends, cell.shards, cell.ordinals


def measure_shuffle(build: Build) -> dict[str, OrderQuality]:
    """Kind of record to the quality of its order; one pass over the gathered cells' provenance, none over tokens."""
    return {kind: _measure(build, kind) for kind in scatter.kinds(build)}


def _measure(build: Build, kind: str) -> OrderQuality:
    import numpy as np

    from pipeline.shuffle.quality import OrderMeter, Pieces, split_pieces
    from pipeline.tokens.packing import plan_contexts
    from pipeline.tokens.record_shard import open_record_shard
    from pipeline.tokens.token_shard import open_token_shard

    def pieces(shard: int) -> Pieces:
        tokens = open_token_shard(build.folder("tokenize", units[shard]))
        return split_pieces(plan_contexts(tokens.ends, width, scatter.packing_of(build), tokens.source_ends))

    scattered = [build.receipt("scatter", unit).counts["records"] for unit in gather.scattered_units(build, kind)]
    documents = [one.counts["documents_out"] for one in build.receipts("tokenize")]
    formats = [name for name in build.config.exports.formats() if scatter.KINDS[name] == kind]
    ends = {name: [one.last for one in layout.output_plans(build, name)] for name in formats}
    meter = OrderMeter(scattered if kind == "contexts" else documents, sum(scattered), ends)
    stream = 0
    for unit in build.units("gather"):
        if unit.startswith(f"{kind}-"):
            cell = open_record_shard(build.folder("gather", unit))
            # numpy's files end at tokens of the stream; a document belongs to the file that has its EOT, its beginning.
            eots = np.concatenate([np.zeros(1, np.uint64), cell.ends])[:-1] + np.arange(cell.records, dtype=np.uint64)
            meter.add(cell.shards, cell.ordinals, {"numpy": eots + np.uint64(stream)})
            stream += len(cell.tokens) + cell.records
    if kind == "documents":
        return meter.finish(None)
    assert build.config.exports.webdataset is not None
    width = build.config.exports.webdataset.context_tokens
    units = build.units("tokenize")
    return meter.finish(pieces)


def _format(build: Build, name: str) -> dict[str, Any]:
    """What one format holds in all: records and token slots (special tokens and padding included)."""
    totals = _exported(build, name)
    return {key: totals[key] for key in ("records", "slots", "outputs") if key in totals}


def _exported(build: Build, name: str) -> dict[str, int]:
    return format_totals(build.receipts("export"), name)


def format_totals(exported: list[Receipt], name: str) -> dict[str, int]:
    """Outputs of one format, and what they hold in all, from the receipts of the export units."""
    files = [one for receipt in exported for one in receipt.details["files"] if one["name"].startswith(f"{name}/")]
    totals = Counter({"outputs": len(files)})
    for file in files:
        totals.update({key: count for key, count in file.items() if key != "name"})
    return dict(totals)


def _checks(build: Build, _unit: str, _receipt: Receipt) -> list[Check]:
    """The shuffle is a permutation, and every format holds exactly what the shuffle handed over."""
    checks = [ranges_match_check(build)] if build.units("match") else []
    for kind in scatter.kinds(build):
        checks += gather.permutation_check(build, kind)
    for name in build.config.exports.formats():
        kind = scatter.KINDS[name]
        records, slots = (sum(gather.per_cell(build, kind, what)) for what in ("records", "slots"))
        exported = _exported(build, name)
        framed = records if name == "numpy" else layout.framed_tokens(build, records)
        special = () if kind == "contexts" else (("special", framed),)
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
