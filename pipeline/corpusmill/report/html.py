"""Summary -> one self-contained HTML file, with what trainers need to read the dataset.

No script, and no font or picture from elsewhere. Sources of the flags and configurations: Megatron-LM
training/arguments.py and core/datasets/utils.py (get_blend_from_list: prefixes without weights are each read once an
epoch), tools/prepare_cache.py, nanotron config.py, open_lm params.py and main.py (--train-num-samples counts tokens),
llm.c dataloader.h, modded-nanogpt train_gpt.py, NeMo AutoModel nanogpt_dataset.py (files[reader::readers], and a part
of one file alone), OLMo-core numpy_dataset.py. Paths name the dataset's version, never `latest`: Megatron's index cache
is keyed by the path alone, so that a path whose content changes would be read through a stale index.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath

import yaml
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined

from corpusmill.report import figures, plots
from corpusmill.report.facts import step_rows
from corpusmill.report.figures import grouped, share_text
from corpusmill.report.flow import flow_picture
from corpusmill.report.summary import BuildSummary, ExportSummary, totals

LLMC_STEP = 4 * 1024  # of a rank, by default: sequences x tokens
GPT2_EOT = 50256
NANOGPT_MEAN = 256  # tokens of a document: modded-nanogpt has places for so many documents in a rank's step
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
    makers = {"megatron": _megatron, "nanoset": _nanotron, "webdataset": _open_lm, "numpy": _numpy, "olmo": _olmo}
    makers |= dict.fromkeys(("parquet_documents", "parquet_contexts"), _datasets) | {"parquet_text": _nanochat}
    return tuple(makers[export.format](summary, export, where) for export in summary.exports if export.format in makers)


def _megatron(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    prefixes = [f"{where}/{file.path.removesuffix('.bin')}" for file in export.files if file.path.endswith(".bin")]
    data = " \\\n    ".join(["--data-path", *prefixes]) + " \\\n--split 969,30,1"
    ends = "" if summary.vocabulary is None else f" Every document ends with id {summary.vocabulary.eot_id}."
    cache = (
        f"# builds the index cache before the run, on one node and without a GPU; add the run's other arguments\n"
        f"python tools/prepare_cache.py {data} \\\n--data-cache-path CACHE --seq-length LENGTH"
        " --global-batch-size BATCH --prepare-cache-world-size RANKS"
    )
    note = f"{_vocabulary(summary)}{ends} {_sizes(export)} Any number of ranks reads everything."
    return TrainingFlags("Megatron-LM", export.format, f"{data}\n\n{cache}", note)


def _nanotron(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    folders = sorted({str(PurePosixPath(file.path).parent) for file in export.files if file.path.endswith(".ds")})
    dataset: dict[str, object] = {"dataset_folder": [f"{where}/{folder}" for folder in folders]}
    if summary.vocabulary is not None:
        dataset["token_size_in_bytes"] = summary.vocabulary.token_bytes
    stage = {"name": summary.dataset, "start_training_step": 1, "data": {"dataset": dataset, "num_loading_workers": 1}}
    vocabulary_size = (
        "" if summary.vocabulary is None else f" The model's vocab_size is {grouped(summary.vocabulary.ids)}."
    )
    note = f"{_vocabulary(summary)}{vocabulary_size} {_sizes(export)} Any number of ranks reads every whole window."
    return TrainingFlags("nanotron", export.format, _yaml({"data_stages": [stage]}), note)


def _open_lm(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    packing = summary.packing
    length = packing.context_tokens - 1 if packing else 0
    text = f"--dataset-manifest {where}/webdataset/manifest.jsonl \\\n--data-key json.gz"
    note = _vocabulary(summary)
    if packing and length:
        text += f" \\\n--train-num-samples {packing.contexts * length}"
        note += f" Contexts of {grouped(packing.context_tokens)} tokens train a model of seq_len {grouped(length)}."
    shards = len(_token_counts(export))
    note += f" {_sizes(export)} Each rank's loader worker needs a shard: up to {grouped(shards)} ranks x workers."
    return TrainingFlags("open_lm", export.format, text, note)


def _olmo(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    width = "" if summary.vocabulary is None else f", dtype=NumpyDatasetDType.uint{8 * summary.vocabulary.token_bytes}"
    text = f'NumpyFSLDatasetConfig.glob("{where}/olmo/*.npy", sequence_length=LENGTH, tokenizer=TOKENIZER{width})'
    rest = "Any number of ranks reads all but the tokens after each file's last whole sequence."
    return TrainingFlags("OLMo-core", export.format, text, f"{_vocabulary(summary)} {_sizes(export)} {rest}")


def _datasets(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    text = f'datasets.load_dataset("parquet", data_dir="{where}/{export.format}", split="train")'
    note = (
        f"{_vocabulary(summary)} {_sizes(export)} Any number of ranks reads everything; streaming, each rank has files"
    )
    note += " of its own only where their number divides by the ranks."
    return TrainingFlags("datasets, for Trainer and TRL", export.format, text, note)


def _nanochat(_summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    rows = [file.records or 0 for file in export.files]
    groups = -(-min(rows, default=0) // (export.group_rows or 1))
    text = f"export NANOCHAT_BASE_DIR=BASE\nln -s {where}/{export.format} BASE/base_data_climbmix"
    held_out = f" with {rows[-1] / max(1, sum(rows)):.1%} of the documents" * (len(rows) > 1)
    note = f"{figures.counted(len(rows), 'file')}, the last held out{held_out}."
    note += f" A rank without a row group in a split waits for ever: up to {grouped(max(1, groups))} ranks"
    note += " read everything." if len(rows) > 1 else ", and none with a single file: it leaves no training data."
    return TrainingFlags("nanochat, datasets", export.format, text, note)


def _numpy(summary: BuildSummary, export: ExportSummary, where: str) -> TrainingFlags:
    note, counts = f"{_vocabulary(summary)} {_sizes(export)}", _token_counts(export)
    train, *held_out = _globs(export, where)
    if export.layout == "llmc":
        ranks = (min(counts.values(), default=1) - 1) // LLMC_STEP
        note += (
            f" llm.c needs more tokens in every file than a step reads: up to {grouped(ranks)} ranks of"
            f" {grouped(LLMC_STEP)} tokens, and it drops what follows a file's last whole step."
        )
        if summary.vocabulary and summary.vocabulary.eot_id != GPT2_EOT:
            note += f" modded-nanogpt begins documents at id {GPT2_EOT}, not at {summary.vocabulary.eot_id}."
        lengths = summary.lengths and summary.lengths.tokens
        if lengths and lengths.count:
            mean = lengths.total / lengths.count
            note += f" Documents have {mean:,.0f} tokens on average" + ", " * (mean < NANOGPT_MEAN)
            note += f"fewer than the {NANOGPT_MEAN} that modded-nanogpt needs." if mean < NANOGPT_MEAN else "."
        text = " ".join(f'{option} "{files}"' for option, files in zip(["-i", "-j"], (train, *held_out), strict=False))
        return TrainingFlags("llm.c", export.format, text, note)
    if export.layout == "automodel":
        readers = max(1, sum(fnmatchcase(f"{where}/{path}", train) for path in counts) // 2)  # one reads all alone
        note += f" A reader with only one file skips most of it: up to {grouped(readers)} ranks x loader workers."
        target = "nemo_automodel.components.datasets.llm.nanogpt_dataset.NanogptDataset"
        text = _yaml({"dataset": {"_target_": target, "file_pattern": train, "seq_len": "LENGTH"}})
        return TrainingFlags("NeMo AutoModel", export.format, text, note)
    folders = sorted({str(PurePosixPath(file.path).parent) for file in export.files})
    text = "\n".join(f"{where}/{folder}" for folder in folders)
    return TrainingFlags("nanoGPT, Jaxformer", export.format, text, note)


def _token_counts(export: ExportSummary) -> dict[str, int]:
    """Tokens of each file that holds tokens, by its path."""
    return {file.path: file.tokens for file in export.files if file.tokens}


def _sizes(export: ExportSummary) -> str:
    """How many files of tokens there are, and how many tokens they have."""
    counts = sorted(_token_counts(export).values())
    if not counts:
        return ""
    least = f"{grouped(counts[0])} to " if counts[0] < counts[-1] else ""
    return f"{figures.counted(len(counts), 'file')} of {least}{grouped(counts[-1])} tokens."


def _globs(export: ExportSummary, where: str) -> list[str]:
    """A pattern for the files of each split, the split with the most tokens first."""
    tokens: Counter[str] = Counter()
    for path, count in _token_counts(export).items():
        tokens[re.sub(r"\d+(?=\.\w+$)", "*", path)] += count
    return [f"{where}/{pattern}" for pattern, _ in tokens.most_common()] or [f"{where}/{export.format}"]


def _yaml(content: dict[str, object]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000).rstrip()


def _vocabulary(summary: BuildSummary) -> str:
    if summary.vocabulary is None:
        return ""
    known = summary.vocabulary
    return f"Tokenizer {known.name}, {grouped(known.ids)} ids of {known.token_bytes} bytes."
