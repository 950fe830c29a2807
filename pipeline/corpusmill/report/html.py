"""Summary -> one self-contained HTML file, with what trainers need to read the dataset.

No script, and no font or picture from elsewhere. Sources of the flags and configurations: Megatron-LM
training/arguments.py and core/datasets/utils.py (get_blend_from_list: prefixes without weights are each read once an
epoch), nanotron config.py, open_lm params.py and main.py (--train-num-samples counts tokens). Paths name the dataset's
version, never `latest`: Megatron's index cache is keyed by the path alone, so that a path whose content changes would
be read through a stale index.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import yaml
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined

from corpusmill.report import figures, plots
from corpusmill.report.facts import step_rows
from corpusmill.report.figures import grouped, share_text
from corpusmill.report.flow import flow_picture
from corpusmill.report.summary import BuildSummary, ExportSummary, totals

LISTED_ROWS = 2000  # longer pages are slow and unread; the JSON summary has all rows
FIGURES = (
    *(figures.bytes_text, figures.count_text, figures.counted, figures.decoded_text, figures.encoded_text),
    *(figures.grouped, figures.largest_first, figures.rate_text, figures.requests_text, figures.seconds_text),
    *(figures.share_text, figures.sum_text),
)
PICTURES = (
    *(plots.cell_bar, plots.counts_of, plots.heat_map, plots.percent_bars, plots.power_bars, plots.share_bar),
    plots.totals_of,
)


@cache
def report_environment(*folders: Path) -> Environment:
    """Templates of this room and of `folders`, with FIGURES and PICTURES; all values are escaped."""
    environment = Environment(
        loader=FileSystemLoader([Path(__file__).parent, *folders]),
        bytecode_cache=_bytecode_cache(Path(__file__).parent / "__pycache__"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    named = {function.__name__: function for function in (*FIGURES, *PICTURES)}
    environment.filters.update(named)
    environment.globals.update(named, listed_rows=LISTED_ROWS)
    environment.globals.update(as_share=lambda share: share_text(share, 1), exactly=lambda value: f"{value:,.10g}")
    return environment


def _bytecode_cache(folder: Path) -> FileSystemBytecodeCache | None:
    """Cache compiled templates beside compiled modules, if those are cached: compiling takes 0.2 s."""
    kept = folder.is_dir() and os.access(folder, os.W_OK) and not sys.dont_write_bytecode
    return FileSystemBytecodeCache(str(folder)) if kept else None


def render_html(summary: BuildSummary) -> str:
    """The whole page. The same summary gives the same text; every name in it is escaped."""
    steps = step_rows(summary.stages)
    rows = [row for step, stages in steps for row in (step, *stages)]
    return (
        report_environment()
        .get_template("report.html")
        .render(
            summary=summary,
            figures=totals(summary),
            flow_picture=flow_picture(summary),
            flags=training_flags(summary),
            count_checks=sorted((check for check in summary.checks if not check.of_content), key=lambda row: row.ok),
            content_checks=summary.content_checks,
            steps=steps,
            most_seconds=max((step.seconds for step, _ in steps), default=0.0),
            most_bytes_per_second=max((stage.bytes_per_second or 0.0 for stage in rows), default=0.0),
            sources=sorted(
                summary.duplicates.by_source_file if summary.duplicates else (),
                key=lambda row: (-row.duplicate_bytes, row.path),
            ),
            quarantined_documents=sum(file.documents for file in summary.quarantine),
        )
    )


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
