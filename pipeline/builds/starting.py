"""The first configuration of a dataset, from a survey of its files; the findings are printed.

A shard has 4 to 512 MiB, so that about SHARDS of them keep a machine's cores busy, and cuts large files evenly: parts
of 32 MiB would leave a file of 35 MiB a second part of 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.builds.plan import list_dataset
from corpusmill.builds.preflight import ready_tokenizer
from corpusmill.config import parse_config
from corpusmill.config.dataset import root_folder
from corpusmill.config.starter import starter
from corpusmill.errors import ConfigError
from corpusmill.report.figures import bytes_text, counted
from corpusmill.sources.survey import Survey, choose_text_field, files_without, survey_sources

SHARDS = 16
SMALLEST_SHARD_MIB, LARGEST_SHARD_MIB = 4, 256
LONGEST_NAME = 63


def write_starter(path: str, tokenizer: str, formats: Sequence[str], text_field: str | None, output: Path) -> str:
    """Write a configuration for the sources at `path`; returns what was seen, for people.

    SourceError for sources without text or without a common key, TokenizerError for a tokenizer that is not there,
    ConfigError if `output` exists or the build would write into its sources.
    """
    _refuse_existing(output)
    settings: dict[str, Any] = {
        "name": dataset_name(output.stem),
        "path": _from_root(path),
        "tokenizer": tokenizer,
        "formats": formats,
    }
    listing = list_dataset(parse_config(starter(**settings), where=str(output)))
    survey = survey_sources(listing.files)
    field = text_field or choose_text_field(survey)
    text = starter(**settings, text_field=field, shard_bytes=shard_size([file.size_bytes for file in listing.files]))
    ready_tokenizer(parse_config(text, where=str(output)))
    with output.open("x", encoding="utf-8") as file:
        file.write(text)
    return render_survey(path, survey, field, listing.others)


def dataset_name(text: str) -> str:
    """A text as the name of a dataset: lower-case letters, digits, - and _."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:LONGEST_NAME] or "dataset"


def shard_size(file_bytes: Sequence[int]) -> str:
    """Whole MiB for about SHARDS shards, at which the last parts of files larger than a shard lack the fewest bytes."""
    sizes = np.array(file_bytes, np.int64)
    least = min(max(SMALLEST_SHARD_MIB, -(-int(sizes.sum()) // (SHARDS << 20))), LARGEST_SHARD_MIB)

    def missing_bytes(mib: int) -> int:
        cut = sizes[sizes > mib << 20]
        return int((-cut % (mib << 20)).sum())

    return f"{min(range(least, 2 * least + 1), key=missing_bytes)}MiB"


def render_survey(path: str, survey: Survey, field: str, others: int) -> str:
    """What was seen of the sources, with a warning where lines have no text."""
    lines, with_text = survey.lines(), survey.lines_with_text()
    kinds = ", ".join(f"{count:,} {ending}" for ending, count in survey.endings.most_common())
    passed_over = f"; {counted(others, 'file')} of other kinds skipped" if others else ""
    files = counted(survey.endings.total(), "source file")
    rows = [
        f"{path}: {files}, {bytes_text(survey.size_bytes)} ({kinds}){passed_over}",
        f"text field {field}: in {with_text[field]:,} of {counted(lines, 'line')} at the start of "
        f"{counted(len(survey.files), 'file')}, {bytes_text(survey.text_bytes()[field])} of text",
    ]
    if others_with_text := [key for key, _ in with_text.most_common(6) if key != field]:
        rows.append(f"other fields with text: {', '.join(others_with_text)}")
    if with_text[field] < lines:
        rows.append(
            f"warning: {counted(lines - with_text[field], 'line')} without text under {field}. They go to a quarantine"
            " file; a build fails above source.max_rejected_share (0.1 %)"
        )
    rows += [f"warning: no text under {field} in {file.name}" for file in files_without(survey, field)[:3]]
    return "\n".join(rows)


def _from_root(path: str) -> str:
    """A path typed in the current folder, as a configuration has it: relative to the root folder if it is below."""
    if "://" in path:
        return path
    full = Path.cwd() / Path(path).expanduser()
    root = root_folder()
    return str(full.relative_to(root)) if full.is_relative_to(root) else str(full)


def _refuse_existing(output: Path) -> None:
    if output.exists():
        raise ConfigError(
            "the configuration's output file already exists",
            where=output,
            next_step="name another with --output, or remove it",
        )
