"""The first configuration of a dataset, derived from a survey of its files.

A shard has 4 to 256 MiB, so that about SHARDS of them keep a machine's cores busy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from corpusmill.builds.overlap import require_no_overlap, written_places
from corpusmill.builds.plan import list_dataset
from corpusmill.builds.preflight import ready_tokenizer
from corpusmill.config import load_config, parse_config
from corpusmill.config.dataset import absolute, absolute_here, root_folder
from corpusmill.config.starter import HEAD, starter
from corpusmill.documents.compression import NAMED_ENDINGS, SOURCE_ENDINGS
from corpusmill.errors import ConfigError, MissingSourceError, SourceError
from corpusmill.report.figures import bytes_text, counted
from corpusmill.sources.copies import STANDARD
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
from corpusmill.storage.listing import OtherFiles, list_sources
from corpusmill.storage.local import write_whole

SHARDS = 16
SMALLEST_SHARD_MIB, LARGEST_SHARD_MIB = 4, 256
LONGEST_NAME = 63


def write_starter(
    paths: Sequence[str], text_field: str | None, output: Path, *, force: bool = False, **settings: Any
) -> str:
    """Write a configuration for the sources at `paths`; returns a summary of the survey, for people. `settings` are
    those of `starter`; its paths start at the current folder.

    SourceError for sources without text or without a common key, TokenizerError for an unknown or missing tokenizer,
    ConfigError if the build would write into its sources, or if `output` exists; with `force` it is replaced, once all
    else is right. Of a folder that the build would write into, such as the current one, the files directly in it and
    its other folders become sources.
    """
    if not force:
        _refuse_existing(output)
    settings = _from_here(paths, output, settings)
    config = parse_config(starter(**settings), where=str(output))
    listing = list_dataset(config)
    survey = survey_sources(listing.files, config.source.endpoint, fields=(text_field or USUAL_FIELD, *USUAL_IDS))
    field = text_field or choose_text_field(survey)
    require_text_field(survey, field)
    text = starter(
        **settings, text_field=field, id_field=choose_id_field(survey), shard_bytes=shard_size(survey.size_bytes)
    )
    ready_tokenizer(parse_config(text, where=str(output)))
    output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(output, text.encode())
    return render_survey(", ".join(settings["paths"]), survey, field, listing.others)


def is_starter(file: BinaryIO) -> bool:
    """Whether a file begins as `starter` does."""
    return file.read(len(HEAD)).decode(errors="replace") == HEAD


def is_written(paths: Sequence[str], text_field: str | None, output: Path, **settings: Any) -> bool:
    """Whether `output` is what `write_starter` wrote for these arguments, maybe before sources were added, which
    another survey would cut otherwise; ConfigError if it is another configuration.
    """
    if not output.exists():
        return False
    there = load_config(output)
    asked = parse_config(starter(**_from_here(paths, output, settings)), where=str(output))
    surveyed = {key: getattr(there.source, key) for key in ("id_field", "shard_bytes", "text_field")}
    source = asked.source.model_copy(update=surveyed | ({"text_field": text_field} if text_field else {}))
    if asked.model_copy(update={"source": source}).model_dump() != there.model_dump():
        raise ConfigError(
            "config.output_differs: the configuration exists, and these options would write another one",
            where=output,
            next_step=f"build with it: corpusmill build {output}; replace it: --force; or name another --output",
        )
    return True


def _from_here(paths: Sequence[str], output: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a starter, with the paths that a command line has as a configuration has them."""
    if STANDARD in paths:
        raise MissingSourceError(
            "source.standard_input: a build reads its text more than once, and standard input can be read once",
            next_step="write it to a file first: cat > text.jsonl",
        )
    settings = {"name": dataset_name(output.stem), **settings}
    for key in {"destination", "work_folder"} & settings.keys():
        settings[key] = _from_root(settings[key])
    return settings | {"paths": [source for path in paths for source in _sources(path, settings)]}


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


def _sources(path: str, settings: dict[str, Any]) -> list[str]:
    """`path` from the root folder; where the build would write below it, the files directly in it and its folders that
    have sources, but for those that the build writes.
    """
    path = _from_root(path)
    config = parse_config(starter(**settings | {"paths": [path]}), where=path)
    try:
        require_no_overlap([absolute(path)], written_places(config))
    except ConfigError:
        written = {Path(absolute(place)).resolve() for place in (config.work_folder, config.destinations[0].path)}
        written |= {Path(place).resolve() for _, place in written_places(config)}
        folders = [folder for folder in sorted(Path(absolute(path)).glob("[!._]*/")) if folder.resolve() not in written]
        inside = [f"{path.rstrip('/')}/*" if path != "." else "*", *(_from_root(str(folder)) for folder in folders)]
        return [source for source in inside if has_sources(absolute(source))] or [path]
    return [path]


def has_sources(path: str) -> bool:
    """Whether a path, from the current folder, leads to files that commands read."""
    try:
        return bool(list_sources([absolute_here(path)], SOURCE_ENDINGS, named=tuple(NAMED_ENDINGS)))
    except SourceError as error:
        if error.code in {"source.no_known_files", "source.missing"}:
            return False
        raise


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
