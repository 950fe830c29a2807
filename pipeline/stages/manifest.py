"""Manifest: lists what the finished dataset consists of, once all its accounts balance.

Writes `shuffle_quality.json` (see shuffle/quality.py) unless the order is the source's; for WebDataset
`manifest.jsonl`; on request, `sample/`, the first documents of Megatron and Nanoset, and numpy's placeholders and
checkpoints. Then `dataset.json`: every file with size, sha256 and contents, and the tokenizer. Its sha256 names the
dataset's version, so **two datasets of one version have the same files**. Four kinds of file are not listed there:
`dataset.json` itself; the card if there is one, `README.md` and `croissant.json` (report/card.py), which also describe
how the build made these files; `exp_data.json`, DCLM's dataset reference, which holds the version in its URL (one for
each destination; its inputs are listed instead); and `SHA256SUMS` of all but the card, for `sha256sum --check` and
`corpusmill repair`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.content import NOTHING, ContentSum
from corpusmill.engine.stage import Recount, Stage, StepName, every, whole
from corpusmill.errors import BalanceError
from corpusmill.fingerprint import file_digest
from corpusmill.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.ledger.lock import LOCK_NAME
from corpusmill.report.card import card_texts
from corpusmill.stages import gather, layout, scatter
from corpusmill.stages.answered import ATTRIBUTES, DROPPED
from corpusmill.stages.budget import shown_shard, shown_total
from corpusmill.stages.card import card_figures, card_inputs, card_settings
from corpusmill.stages.decontaminate import HITS
from corpusmill.stages.description import (
    DATASET,
    SUMS,
    VERSION_DIGITS,
    content_by_cell,
    format_totals,
    held_by_file,
    listing,
    reference_text,
    sums_text,
    version_of,
)
from corpusmill.stages.tokenize import vocabulary
from corpusmill.stages.union import ranges_match_check

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.shuffle.quality import OrderQuality

QUALITY = "shuffle_quality.json"
SAMPLE = "sample"
HITS_OF_ALL = "decontamination/hits.jsonl"
STEPS = "steps"
UNIT = "dataset"


def dataset_version(build: Build) -> str:
    """12 hex digits that name this content of the dataset; equal content has an equal version everywhere."""
    return version_of(build.receipt("manifest", UNIT))


def dataset_files(build: Build) -> list[tuple[str, Path, str, int]]:
    """(name in the dataset, path, sha256, size) of every deliverable; `dataset.json` is last.

    Taken from receipts: nothing is checked (see `require_undamaged`), and files that were given back no longer exist.
    """
    files = [
        (output.name, build.step_folder(*step) / output.name, output.sha256, output.size_bytes)
        for step in _delivering(build)
        for output in build.receipt(*step).outputs
    ]
    return sorted(files, key=lambda file: (file[0] == DATASET, file[0]))


def require_undamaged(build: Build, names: Container[str] | None = None) -> None:
    """Check the deliverables of these names, or all; DamagedStepError for a damaged one.

    Deliverables in a bucket are fetched, and stay until the step that needs them ends.
    """
    for step in _delivering(build):
        receipt = build.receipt(*step)
        kept = (output.name for output in receipt.outputs if output.name not in receipt.given_back)
        build.kept.extend(build.blocks(*step).kept(name for name in kept if names is None or name in names))


def _delivering(build: Build) -> list[StepName]:
    return [step for stage in ("export", "writeback", "manifest") for step in every(build, stage)]


def _inputs(build: Build, _unit: str) -> list[tuple[str, str]]:
    # The audit: a later receipt binds it.
    read = ["export", "writeback", "filter", "decontaminate", "refine", "lost"]
    read += ["gather", "scatter", "budget", "tokenize", "audit"]
    read += card_inputs(build) if build.config.card else []
    return whole(build, *dict.fromkeys(read))


def _settings(build: Build, _unit: str) -> dict[str, Any]:
    config = build.config
    return {
        "name": config.name,
        "vocabulary": asdict(vocabulary(build)),
        "exports": config.exports.model_dump(mode="json"),
        "order": config.shuffle.order,
        "packing": config.packing.model_dump(mode="json"),
        "framing": config.framing.model_dump(mode="json"),
        "steps": bool(config.steps or config.decisions),  # a list of documents to forget alone is not said
        "outputs": {
            name: [[output.name, output.first, output.last] for output in layout.output_plans(build, name)]
            for name in config.exports.formats()
        },
        "references": _references(build),
        "libraries": versions_of("humanize", "orjson"),  # samples of Nanoset files; manifest.jsonl, checkpoints
        **({"card": config.card.model_dump(mode="json"), **card_settings(build)} if config.card else {}),
    }


def _references(build: Build) -> list[dict[str, Any]]:
    """For every requested `exp_data` file: its name, and the parts of the configuration that it depends on."""
    config = build.config
    if config.exports.webdataset is None or not config.exports.webdataset.exp_data:
        return []
    return [
        {
            "name": f"webdataset/exp_data_{number:05d}.json" if number else "webdataset/exp_data.json",
            "sources": config.source.paths,
            "destination": destination.path.rstrip("/"),
        }
        for number, destination in enumerate(config.destinations)
    ]


def _run(build: Build, _unit: str, folder: Path) -> Outcome:
    from corpusmill.export.checkpoints import shard_checkpoints, write_checkpoints, write_placeholders
    from corpusmill.export.manifest import MANIFEST, write_manifest

    exported = build.receipts("export")
    holds = held_by_file(exported)
    if build.config.exports.webdataset is not None:
        (folder / "webdataset").mkdir()
        shards = [(name, shard["records"]) for name, shard in holds.items() if name.startswith("webdataset/")]
        write_manifest(folder / "webdataset" / MANIFEST, [(Path(name).stem, count) for name, count in shards])
    wanted = build.config.exports.numpy
    if wanted is not None and wanted.placeholders:
        write_placeholders((plan.name for plan in layout.output_plans(build, "numpy")), folder / "numpy")
    if wanted is not None and wanted.checkpoints:
        write_checkpoints(shard_checkpoints(_documents_in_order(build), wanted.tokens_per_shard), folder / "numpy")
    if not scatter.in_source_order(build):
        measured = {kind: quality.to_json() for kind, quality in measure_shuffle(build).items()}
        (folder / QUALITY).write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    if build.config.decontamination is not None:
        _join(build, every(build, "decontaminate"), HITS, folder / HITS_OF_ALL)
    if build.config.steps or build.config.decisions:
        for name in (DROPPED, ATTRIBUTES):
            _join(build, [*every(build, "filter"), *every(build, "refine")], name, folder / STEPS / name)
    if build.config.exports.sample_documents is not None:
        _write_sample(build, folder / SAMPLE, build.config.exports.sample_documents)
    outputs = [file for receipt in [*exported, *build.receipts("writeback")] for file in listing(receipt)]
    files = sorted([*outputs, *_written(folder)], key=lambda file: str(file["name"]))
    _require_each_name_once(str(file["name"]) for file in files)
    references = _references(build)
    description = {
        "name": build.config.name,
        "vocabulary": asdict(vocabulary(build)),
        "formats": {name: _format(build, name) for name in build.config.exports.formats()},
        "files": [{**file, **holds.get(str(file["name"]), {})} for file in files],
        **({"references": references} if references else {}),
        **({"card": build.config.card.model_dump(mode="json", exclude_none=True)} if build.config.card else {}),
    }
    text = (json.dumps(description, indent=1, ensure_ascii=False) + "\n").encode()
    (folder / DATASET).write_bytes(text)
    version = hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]
    for reference in references:
        (folder / reference["name"]).write_text(reference_text(description, reference, version))
    _write_sums(folder, {str(file["name"]): str(file["sha256"]) for file in outputs})
    if build.config.card:
        for name, card in card_texts(description, card_figures(build), version).items():
            (folder / name).write_text(card)
    counts = {"files": len(files), "dataset_bytes": sum(int(file["size_bytes"]) for file in files), "bytes_read": 0}
    return Outcome(counts={**counts, **_listed_sequences(folder)})


def _listed_sequences(folder: Path) -> dict[str, int]:
    """The number of sequences that `manifest.jsonl` lists, if there are tars."""
    from corpusmill.export.manifest import MANIFEST, read_manifest

    path = folder / "webdataset" / MANIFEST
    return {"listed_sequences": sum(count for _, count in read_manifest(path))} if path.exists() else {}


def _join(build: Build, steps: list[StepName], name: str, joined: Path) -> None:
    """Concatenate the file `name` of all `steps` into `joined`."""
    joined.parent.mkdir(exist_ok=True)
    with joined.open("wb") as whole:
        for step in steps:
            with build.opened(*step) as folder, (folder / name).open("rb") as own:
                shutil.copyfileobj(own, whole)


def _written(folder: Path) -> list[dict[str, str | int]]:
    """Name, size and sha256 of every file below the step's folder, as `listing` states them."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK_NAME)
    return [
        {"name": path.relative_to(folder).as_posix(), "size_bytes": path.stat().st_size, "sha256": file_digest(path)}
        for path in paths
    ]


def _require_each_name_once(names: Iterable[str]) -> None:
    """BalanceError for two files that the dataset would hold under one name: the second would replace the first."""
    times = Counter(names)
    if twice := sorted(name for name, count in times.items() if count > 1):
        raise BalanceError(
            "two files of the dataset have the same name",
            where=DATASET,
            expected="every name once",
            got=f"{len(twice):,} names twice, such as {twice[0]}",
            next_step="report this: the plan must give every output its own name",
        )


def _write_sample(build: Build, folder: Path, documents: int) -> None:
    """sample/<name>_sample_<key>_document.bin and .idx, sample/<name>_sample.ds and its neighbours."""
    from corpusmill.export.sample import sample_files, sample_parts

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
    """Paths of one export's outputs in the work folder, in order, by their planned names."""
    return [
        build.folder("export", layout.unit_of(build, name, output)) / name / output.name
        for output in layout.output_plans(build, name)
    ]


def _write_sums(folder: Path, exported: dict[str, str]) -> None:
    mine = {str(file["name"]): str(file["sha256"]) for file in _written(folder)}
    (folder / SUMS).write_text(sums_text({**exported, **mine}))


def _documents_in_order(build: Build) -> Iterator[tuple[Any, Any, Any]]:
    """(ends, shards, ordinals) of the documents of each cell."""
    for number in range(scatter.cells(build)):
        cell = gather.provenance(build, "documents", number)
        yield cell.ends, cell.shards, cell.ordinals


def measure_shuffle(build: Build) -> dict[str, OrderQuality]:
    """Kind of record -> quality of its order; one pass over the gathered cells' provenance, none over tokens."""
    return {kind: _measure(build, kind) for kind in scatter.kinds(build)}


def _measure(build: Build, kind: str) -> OrderQuality:
    import numpy as np

    from corpusmill.shuffle.quality import OrderMeter, Pieces, split_pieces
    from corpusmill.tokens.packing import plan_contexts
    from corpusmill.tokens.token_shard import open_token_shard

    def pieces(shard: int) -> Pieces:
        with build.opened("tokenize", units[shard]) as folder:
            tokens = shown_shard(build, units[shard], open_token_shard(folder))
            return split_pieces(plan_contexts(tokens.ends, width, scatter.packing_of(build), tokens.source_ends))

    scattered = [build.receipt("scatter", unit).counts for unit in gather.scattered_units(build, kind)]
    records = [counts["records"] for counts in scattered]
    documents = [
        whole.counts["documents_out"] + counts.get("documents_again", 0) - counts.get("documents_left_out", 0)
        for whole, counts in zip(build.receipts("tokenize"), scattered, strict=True)
    ]
    formats = [name for name in build.config.exports.formats() if scatter.KINDS[name] == kind]
    ends = {name: [plan.last for plan in layout.output_plans(build, name)] for name in formats}
    meter = OrderMeter(records if kind == "contexts" else documents, sum(records), ends)
    stream = 0
    for number in range(scatter.cells(build)):
        cell = gather.provenance(build, kind, number)
        # numpy's files end at tokens of the stream; a document belongs to the file that has its EOT, its beginning.
        begins = np.concatenate([np.zeros(1, np.uint64), cell.ends])
        eots = begins[:-1] + np.arange(cell.records, dtype=np.uint64)
        meter.add(cell.shards, cell.ordinals, {"numpy": eots + np.uint64(stream)})
        stream += int(begins[-1]) + cell.records
    if kind == "documents":
        return meter.finish(None)
    assert build.config.exports.webdataset is not None
    width = build.config.exports.webdataset.context_tokens
    units = build.units("tokenize")
    return meter.finish(pieces)


def _format(build: Build, name: str) -> dict[str, Any]:
    """Totals of one format: records and token slots (special tokens and padding included), and its framing."""
    totals = _exported(build, name)
    framed = {"framing": build.config.framing.model_dump()} if name in {"megatron", "nanoset"} else {}
    return {**{key: totals[key] for key in ("records", "slots", "outputs") if key in totals}, **framed}


def _exported(build: Build, name: str) -> dict[str, int]:
    return format_totals(build.receipts("export"), name)


def _checks(build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    """The shuffle is a permutation, and every format holds exactly the shuffled records."""
    checks = [ranges_match_check(build)] if build.units("match") else []
    checks += [_kept_check(build, shard) for shard in build.units("writeback")]
    for kind in scatter.kinds(build):
        checks += [*_budget_check(build, kind), *gather.permutation_check(build, kind)]
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
        checks += _content_checks(build, name)
    if build.config.exports.webdataset is not None:
        sequences, listed = _exported(build, "webdataset").get("records", 0), receipt.counts["listed_sequences"]
        checks.append(Check("webdataset sequences", (("exported", sequences),), (("in manifest.jsonl", listed),)))
    return checks


def _budget_check(build: Build, kind: str) -> list[Check]:
    """Tokens that the budget shows, against the slots of the records that scatter wrote."""
    if not build.units("budget"):
        return []
    added = {"special": "special_tokens", "padding": "pad_tokens", "repeated": "repeated_tokens"}
    others = tuple((label, gather.of_kind(build, kind, count)) for label, count in added.items())
    left = (("shown", shown_total(build, "tokens")), *others)
    return [Check(f"{kind} budget", left, (("places in records", gather.of_kind(build, kind, "slots")),))]


def _kept_check(build: Build, shard: str) -> Check:
    """A shard's kept text as writeback wrote it from the source, against the text that tokenize encoded."""
    written = ContentSum.parse(build.receipt("writeback", shard).details["kept_content"])
    encoded = ContentSum.parse(build.receipt("tokenize", shard).details["text_content"])
    blame = (("writeback", shard), ("tokenize", shard))
    return Check("kept text", (("written back", written),), (("encoded", encoded),), blame)


def _content_checks(build: Build, name: str) -> list[Check]:
    """Every cell's gathered content, against its content in the files of one format."""
    exported = {unit: build.receipt("export", unit) for unit in build.units("export")}
    written = content_by_cell(exported.values(), name)
    gathered = {
        scatter.split_unit(unit)[1]: ContentSum.parse(build.receipt("gather", unit).details["places_content"])
        for unit in build.units("gather")
        if unit.startswith(f"{scatter.KINDS[name]}-")
    }
    return [
        Check(
            f"{name} content",
            (("gathered", content),),
            (("exported", written.get(cell, NOTHING)),),
            blame=tuple(
                ("export", unit) for unit, receipt in exported.items() if cell in content_by_cell([receipt], name)
            ),
        )
        for cell, content in gathered.items()
    ]


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    files = json.loads((folder / DATASET).read_bytes())["files"]
    size = sum(file["size_bytes"] for file in files)
    counts = {"files": len(files), "dataset_bytes": size, "bytes_read": 0}
    return Recount({**counts, **_listed_sequences(folder)}, complete=True)


STAGE = Stage(
    "manifest",
    version=7,
    after=("export", "writeback", "lost"),
    group="exports",
    unit_word="dataset",
    units=lambda _build: [UNIT],
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    checks=_checks,
    delivers=True,
)
