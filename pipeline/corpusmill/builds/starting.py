"""The first configuration of a dataset, derived from a survey of its files.

A shard has 4 to 256 MiB, so that about SHARDS of them keep a machine's cores busy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpusmill.builds.overlap import require_no_overlap, written_places
from corpusmill.builds.plan import list_dataset
from corpusmill.builds.preflight import ready_tokenizer
from corpusmill.config import parse_config
from corpusmill.config.dataset import absolute, absolute_here, root_folder
from corpusmill.config.starter import starter
from corpusmill.errors import ConfigError
from corpusmill.report.figures import bytes_text, counted
from corpusmill.sources.survey import (
    USUAL_FIELD,
    USUAL_IDS,
    Survey,
    choose_id_field,
    choose_text_field,
    files_without,
    require_text_field,
    survey_sources,
)
from corpusmill.storage.listing import OtherFiles

SHARDS = 16
SMALLEST_SHARD_MIB, LARGEST_SHARD_MIB = 4, 256
LONGEST_NAME = 63
NO_SUBFOLDERS = "warning: subfolders of {} are left out, because the build writes into it; name them in source.paths"


def write_starter(path: str, tokenizer: str, formats: Sequence[str], text_field: str | None, output: Path) -> str:
    """Write a configuration for the sources at `path`; returns a summary of the survey, for people.

    SourceError for sources without text or without a common key, TokenizerError for an unknown or missing tokenizer,
    ConfigError if `output` exists or the build would write into its sources. Of a folder that the build would write
    into, such as the current one, only the files directly in it become sources.
    """
    _refuse_existing(output)
    settings: dict[str, Any] = {
        "name": dataset_name(output.stem),
        "path": _sources(path, dataset_name(output.stem)),
        "tokenizer": tokenizer,
        "formats": formats,
    }
    listing = list_dataset(parse_config(starter(**settings), where=str(output)))
    survey = survey_sources(listing.files, fields=(text_field or USUAL_FIELD, *USUAL_IDS))
    field = text_field or choose_text_field(survey)
    require_text_field(survey, field)
    text = starter(
        **settings, text_field=field, id_field=choose_id_field(survey), shard_bytes=shard_size(survey.size_bytes)
    )
    ready_tokenizer(parse_config(text, where=str(output)))
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("x", encoding="utf-8") as file:
        file.write(text)
    summary = render_survey(settings["path"], survey, field, listing.others)
    return summary if settings["path"] == _from_root(path) else f"{summary}\n{NO_SUBFOLDERS.format(path)}"


def dataset_name(text: str) -> str:
    """A text as the name of a dataset: lower-case letters, digits, - and _."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:LONGEST_NAME] or "dataset"


def shard_size(size_bytes: int) -> str:
    """Whole MiB for about SHARDS shards of so many bytes of files."""
    return f"{min(max(SMALLEST_SHARD_MIB, -(-size_bytes // (SHARDS << 20))), LARGEST_SHARD_MIB)}MiB"


def render_survey(path: str, survey: Survey, field: str, others: OtherFiles | None) -> str:
    """For people: what the survey found, with a warning where lines have no text."""
    lines, with_text = survey.lines(), survey.lines_with_text()
    kinds = ", ".join(f"{count:,} {ending}" for ending, count in survey.endings.most_common())
    passed_over = f"; {others}" if others else ""
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


def _sources(path: str, name: str) -> str:
    """`path` from the root folder; `path/*`, the files directly in it, where the build would write below it."""
    path = _from_root(path)
    try:
        require_no_overlap([absolute(path)], written_places(parse_config(starter(name=name, path=path), where=path)))
    except ConfigError:
        return f"{path.rstrip('/')}/*"
    return path


def _from_root(path: str) -> str:
    """A path typed in the current folder, as a configuration has it: relative to the root folder if it is below."""
    if "://" in path:
        return path
    full = Path(absolute_here(path))
    root = root_folder()
    return str(full.relative_to(root)) if full.is_relative_to(root) else str(full)


def _refuse_existing(output: Path) -> None:
    if output.exists():
        raise ConfigError(
            "config.output_exists: the configuration's output file already exists",
            where=output,
            next_step="name another with --output",
        )
