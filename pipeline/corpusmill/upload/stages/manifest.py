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

from msgspec import UNSET

from corpusmill.config import CardConfig, ExportsConfig
from corpusmill.decontamination.stages.decontaminate import HITS
from corpusmill.dedup.stages.annotating import PAIRS
from corpusmill.engine.ledger import Outcome, Receipt, versions_of
from corpusmill.engine.ledger.lock import LOCK_NAME
from corpusmill.engine.stage import Recount, Shown, Stage, StepName, every, whole
from corpusmill.engine.work import Input, Inputs, Resources, Work
from corpusmill.errors import BalanceError
from corpusmill.export.formats import FORMATS
from corpusmill.export.stages import layout
from corpusmill.fingerprint import file_digest
from corpusmill.lazy import lazily
from corpusmill.report.card import card_texts
from corpusmill.shuffle.stages import gather, scatter
from corpusmill.shuffle.stages.budget import shown_shard
from corpusmill.steps.stages.applying import ATTRIBUTES, DROPPED
from corpusmill.tokens.stages.tokenize import Vocabulary, vocabulary
from corpusmill.upload.stages.description import (
    DATASET,
    SUMS,
    VERSION_DIGITS,
    format_totals,
    held_by_file,
    listing,
    reference_text,
    sums_text,
    version_of,
)
from corpusmill.upload.stages.figures import CardSettings, accounts_of, card_figures, card_inputs, card_settings

with lazily:
    import numpy as np

    from corpusmill.export import companions
    from corpusmill.shuffle import quality
    from corpusmill.tokens import records as tokens_records
    from corpusmill.tokens import token_shard


if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.shuffle.quality import OrderQuality
    from corpusmill.tokens.token_shard import Provenance

QUALITY = "shuffle_quality.json"
SAMPLE = "sample"
HITS_OF_ALL = "decontamination/hits.jsonl"
PAIRS_OF_ALL = "near_duplicates/pairs.jsonl"
STEPS = "steps"
UNIT = "dataset"


def dataset_version(build: Build) -> str:
    """12 hex digits that name this content of the dataset; equal content has an equal version everywhere."""
    return version_of(build.receipt("manifest", UNIT))


def dataset_files(build: Build) -> list[tuple[str, Path, str, int]]:
    """(name in the dataset, path, sha256, size) of every deliverable; `dataset.json` is last.

    Taken from receipts: nothing is checked (see `require_undamaged`), and files that were reclaimed no longer exist.
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
        kept = (output.name for output in receipt.outputs if output.name not in receipt.reclaimed)
        build.kept.extend(build.blocks(*step).kept(name for name in kept if names is None or name in names))


def _delivering(build: Build) -> list[StepName]:
    return [step for stage in ("export", "writeback", "manifest") for step in every(build, stage)]


class Settings(CardSettings, frozen=True, kw_only=True):
    """What the dataset is, besides what receipts say. `outputs`: name and positions of each format's files;
    `references`: the exp_data files.
    """

    name: str
    vocabulary: Vocabulary
    exports: dict[str, Any]
    order: str
    packing: dict[str, Any]
    framing: dict[str, Any]
    outputs: dict[str, list[tuple[str, int, int]]]
    references: list[dict[str, Any]]
    libraries: dict[str, str]

    def configured_exports(self) -> ExportsConfig:
        """`exports`, parsed."""
        return ExportsConfig.model_validate({key: value for key, value in self.exports.items() if value is not None})


def _inputs(build: Build, _unit: str) -> dict[str, list[StepName]]:
    # The audit: a later receipt binds it.
    read = ["export", "writeback", "filter", "decontaminate", "near_duplicates", "refine", "lost"]
    read += ["gather", "scatter", "budget", "tokenize", "audit"]
    read += card_inputs(build) if build.config.card else []
    return {stage: whole(build, stage) for stage in dict.fromkeys(read)}


def _identity(build: Build, _unit: str) -> Settings:
    config = build.config
    return Settings(
        name=config.name,
        vocabulary=vocabulary(build),
        exports=config.exports.model_dump(mode="json"),
        order=config.shuffle.order,
        packing=config.packing.model_dump(mode="json"),
        framing=config.framing.model_dump(mode="json"),
        outputs={
            name: [(output.name, output.first, output.last) for output in layout.output_plans(build, name)]
            for name in config.exports.formats()
        },
        references=_references(build),
        libraries=versions_of("humanize", "orjson"),  # samples of Nanoset files; manifest.jsonl, checkpoints
        **card_settings(build),
    )


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


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    exports, exported = settings.configured_exports(), [step.receipt for step in inputs.every("export")]
    holds = held_by_file(exported)
    if exports.webdataset is not None:
        (folder / "webdataset").mkdir()
        shards = [(name, shard["records"]) for name, shard in holds.items() if name.startswith("webdataset/")]
        companions.write_manifest(
            folder / "webdataset" / companions.MANIFEST, [(Path(name).stem, count) for name, count in shards]
        )
    wanted = exports.numpy
    if wanted is not None and wanted.placeholders:
        companions.write_placeholders((name for name, _, _ in settings.outputs["numpy"]), folder / "numpy")
    if wanted is not None and wanted.checkpoints:
        documents = ((cell.ends, cell.shards, cell.ordinals) for cell in _cells(inputs, "documents"))
        companions.write_checkpoints(companions.shard_checkpoints(documents, wanted.tokens_per_shard), folder / "numpy")
    if settings.order != "source":
        measured = {kind: _measure(inputs, settings, kind).to_json() for kind in scatter.held_kinds(exports)}
        (folder / QUALITY).write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    if "decontaminate" in inputs:
        _join(inputs.every("decontaminate"), HITS, folder / HITS_OF_ALL)
    if "near_duplicates" in inputs:
        _join(inputs.every("near_duplicates"), PAIRS, folder / PAIRS_OF_ALL)
    if settings.steps:
        for name in (DROPPED, ATTRIBUTES):
            _join([*inputs.every("filter"), *inputs.every("refine")], name, folder / STEPS / name)
    if exports.sample_documents is not None:
        _write_sample(inputs, settings, folder / SAMPLE, exports.sample_documents)
    written = [step.receipt for step in inputs.every("writeback")]
    outputs = [file for receipt in [*exported, *written] for file in listing(receipt)]
    files = sorted([*outputs, *_written(folder)], key=lambda file: str(file["name"]))
    _require_each_name_once(str(file["name"]) for file in files)
    card = CardConfig.model_validate(settings.card) if settings.card is not UNSET else None
    description = {
        "name": settings.name,
        "vocabulary": asdict(settings.vocabulary),
        "formats": {name: _format(exported, settings, name) for name in exports.formats()},
        "files": [{**file, **holds.get(str(file["name"]), {})} for file in files],
        **({"references": settings.references} if settings.references else {}),
        **({"card": card.model_dump(mode="json", exclude_none=True)} if card else {}),
    }
    text = (json.dumps(description, indent=1, ensure_ascii=False) + "\n").encode()
    (folder / DATASET).write_bytes(text)
    version = hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]
    for reference in settings.references:
        (folder / reference["name"]).write_text(reference_text(description, reference, version))
    sums = {str(file["name"]): str(file["sha256"]) for file in [*outputs, *_written(folder)]}
    (folder / SUMS).write_text(sums_text(sums))
    if card:
        for name, page in card_texts(description, card_figures(inputs, settings), version).items():
            (folder / name).write_text(page)
    counts = {"files": len(files), "dataset_bytes": sum(int(file["size_bytes"]) for file in files), "bytes_read": 0}
    return Outcome(counts={**counts, **_listed_sequences(folder)})


def _listed_sequences(folder: Path) -> dict[str, int]:
    """The number of sequences that `manifest.jsonl` lists, if there are tars."""
    path = folder / "webdataset" / companions.MANIFEST
    return {"listed_sequences": sum(count for _, count in companions.read_manifest(path))} if path.exists() else {}


def _join(steps: list[Input], name: str, joined: Path) -> None:
    """Concatenate the file `name` of all `steps` into `joined`."""
    joined.parent.mkdir(exist_ok=True)
    with joined.open("wb") as whole:
        for step in steps:
            with step.opened() as folder, (folder / name).open("rb") as own:
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
            "dataset.file_name_twice: two files of the dataset have the same name",
            where=DATASET,
            expected="every name once",
            got=f"{len(twice):,} names twice, such as {twice[0]}",
            next_step="report this: the plan must give every output its own name",
        )


def _write_sample(inputs: Inputs, settings: Settings, folder: Path, documents: int) -> None:
    """sample/<name>_sample_<key>_document.bin and .idx, sample/<name>_sample.ds and its neighbours."""
    folder.mkdir()
    size = settings.vocabulary.size
    if "megatron" in settings.outputs:
        parts = _export_paths(inputs, settings, "megatron")
        name = parts[0].name.replace("_00000_", "_sample_", 1)
        companions.sample_parts(parts, folder, name, documents, vocabulary_size=size)
    if "nanoset" in settings.outputs:
        files = [path.with_name(f"{path.name}.ds") for path in _export_paths(inputs, settings, "nanoset")]
        companions.sample_files(files, folder, f"{settings.name}_sample", documents, vocabulary_size=size)


def _export_paths(inputs: Inputs, settings: Settings, name: str) -> list[Path]:
    """Paths of one export's outputs in the work folder, in order, by their planned names."""
    paths: dict[str, Path] = {}
    for step in inputs.every("export"):
        own = [file["name"] for file in step.receipt.details["files"] if file["name"].startswith(f"{name}/")]
        folder = step.folder() if own else None  # checks all outputs of the step
        paths |= {output: folder / output for output in own if folder}
    return [paths[f"{name}/{output}"] for output, _, _ in settings.outputs[name]]


def _cells(inputs: Inputs, kind: str) -> Iterator[Provenance]:
    """The ends and origins of the records of each cell, in order."""
    for step in inputs.every("gather"):
        if scatter.split_unit(step.unit)[0] == kind:
            yield gather.provenance(step)


def _measure(inputs: Inputs, settings: Settings, kind: str) -> OrderQuality:
    """The quality of the order of one kind of record: a pass over the gathered cells' provenance, none over tokens."""

    tokenized, exports = inputs.every("tokenize"), settings.configured_exports()
    budget = next(iter(inputs.every("budget")), None)

    def pieces(shard: int) -> quality.Pieces:
        with tokenized[shard].opened() as folder:
            tokens = shown_shard(budget, tokenized[shard].unit, token_shard.open_token_shard(folder))
            packing, width = tokens_records.Packing(**settings.packing), exports.context_tokens()[kind]
            return quality.split_pieces(tokens_records.plan_contexts(tokens.ends, width, packing, tokens.source_ends))

    scattered = [step.receipt.counts for step in inputs.every("scatter") if scatter.split_unit(step.unit)[0] == kind]
    records = [counts["records"] for counts in scattered]
    documents = [
        step.receipt.counts["documents_out"] + counts.get("documents_again", 0) - counts.get("documents_left_out", 0)
        for step, counts in zip(tokenized, scattered, strict=True)
    ]
    formats = [name for name in exports.formats() if scatter.KINDS[name] == kind]
    ends = {name: [last for _, _, last in settings.outputs[name]] for name in formats}
    meter = quality.OrderMeter(documents if kind in scatter.WHOLE else records, sum(records), ends)
    stream = 0
    for cell in _cells(inputs, kind):
        # numpy's files end at tokens of the stream; a document belongs to the file that has its EOT, its beginning.
        begins = np.concatenate([np.zeros(1, np.uint64), cell.ends])
        eots = begins[:-1] + np.arange(cell.records, dtype=np.uint64)
        meter.add(cell.shards, cell.ordinals, {"numpy": eots + np.uint64(stream)})
        stream += int(begins[-1]) + cell.records
    return meter.finish(None if kind in scatter.WHOLE else pieces)


def _format(exported: list[Receipt], settings: Settings, name: str) -> dict[str, Any]:
    """Totals of one format: records and token slots (special tokens and padding included), and how its files are laid
    out where their names do not say it."""
    totals = format_totals(exported, name)
    stated: dict[str, Any] = {key: totals[key] for key in ("records", "slots", "outputs") if key in totals}
    return stated | FORMATS[name].stated(settings.configured_exports(), settings.framing)


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    files = json.loads((folder / DATASET).read_bytes())["files"]
    size = sum(file["size_bytes"] for file in files)
    counts = {"files": len(files), "dataset_bytes": size, "bytes_read": 0}
    return Recount({**counts, **_listed_sequences(folder)}, complete=True)


WORK = Work(Settings, _identity, _inputs, _run)

STAGE = Stage(
    "manifest",
    version=8,
    after=("export", "writeback", "lost"),
    units=lambda _build: [UNIT],
    work=WORK,
    recount=_recount,
    checks=accounts_of,
    delivers=True,
    shown=Shown(unit_word="dataset"),
)
