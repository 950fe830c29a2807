"""Trainer settings for the dataset: flags and configuration to copy, made from the summary only.

Sources: Megatron-LM training/arguments.py and core/datasets/utils.py (get_blend_from_list: prefixes without weights are
each read once an epoch), nanotron config.py, open_lm params.py and main.py (--train-num-samples counts tokens).
Paths name the dataset's version, never `latest`: Megatron's index cache is keyed by the path alone, so that a path
whose content changes would be read through a stale index.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import yaml

from corpusmill.report.delivered import ExportSummary
from corpusmill.report.figures import grouped
from corpusmill.report.summary import BuildSummary


@dataclass(frozen=True)
class TrainingFlags:
    """For one trainer: the export it reads, what to copy (`text`), and what to know (`note`)."""

    trainer: str
    format: str
    text: str
    note: str


def training_flags(summary: BuildSummary) -> tuple[TrainingFlags, ...]:
    """One entry for every export that a known trainer reads, at the first destination; none before the upload."""
    if not summary.destinations:
        return ()
    where = summary.destinations[0].where
    makers = {"megatron": _megatron, "nanoset": _nanotron, "webdataset": _open_lm, "numpy": _numpy}
    return tuple(makers[export.format](summary, export, where) for export in summary.exports if export.format in makers)


def _megatron(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    prefixes = [f"{where}/{file.path.removesuffix('.bin')}" for file in export.files if file.path.endswith(".bin")]
    text = " \\\n    ".join(["--data-path", *prefixes]) + " \\\n--split 969,30,1"
    ends = "" if summary.vocabulary is None else f" Every document ends with id {summary.vocabulary.eot_id}."
    return TrainingFlags("Megatron-LM", export.format, text, f"{_vocabulary(summary)}{ends}")


def _nanotron(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    folders = sorted({str(PurePosixPath(file.path).parent) for file in export.files if file.path.endswith(".ds")})
    dataset: dict[str, object] = {"dataset_folder": [f"{where}/{folder}" for folder in folders]}
    if summary.vocabulary is not None:
        dataset["token_size_in_bytes"] = summary.vocabulary.token_bytes
    stage = {"name": summary.dataset, "start_training_step": 1, "data": {"dataset": dataset, "num_loading_workers": 1}}
    text = yaml.safe_dump({"data_stages": [stage]}, sort_keys=False, allow_unicode=True, width=1000).rstrip()
    vocabulary_size = (
        "" if summary.vocabulary is None else f" The model's vocab_size is {grouped(summary.vocabulary.ids)}."
    )
    return TrainingFlags("nanotron", export.format, text, f"{_vocabulary(summary)}{vocabulary_size}")


def _open_lm(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    packing = summary.packing
    length = packing.context_tokens - 1 if packing else 0
    text = f"--dataset-manifest {where}/webdataset/manifest.jsonl \\\n--data-key json.gz"
    note = _vocabulary(summary)
    if packing and length:
        text += f" \\\n--train-num-samples {packing.contexts * length}"
        note += f" Contexts of {grouped(packing.context_tokens)} tokens train a model of seq_len {grouped(length)}."
    return TrainingFlags("open_lm", export.format, text, note)


def _numpy(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    folders = sorted({str(PurePosixPath(file.path).parent) for file in export.files})
    text = "\n".join(f"{where}/{folder}" for folder in folders)
    return TrainingFlags("nanoGPT, Jaxformer", export.format, text, _vocabulary(summary))


def _vocabulary(summary: BuildSummary) -> str:
    if summary.vocabulary is None:
        return ""
    known = summary.vocabulary
    return f"Tokenizer {known.name}, {grouped(known.ids)} ids of {known.token_bytes} bytes."
