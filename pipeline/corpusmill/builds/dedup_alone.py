"""Deduplication alone: the first stages of a build under a configuration made from a few arguments.

No step runs twice: steps have receipts below the work folder, so an interrupted command resumes, and a command with
more files reuses the shards of the last one. Results are copied to the output folder, each by an atomic rename and
checked against the sha256 of its receipt; a file that already has those bytes is left alone, and a file that only an
earlier run delivered is removed (storage/output_folder.py).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ByteSize

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import run_steps, run_watched
from corpusmill.builds.overlap import require_no_overlap
from corpusmill.builds.plan import list_dataset, plan_dataset
from corpusmill.builds.starting import LARGEST_SHARD_MIB, SHARDS, SMALLEST_SHARD_MIB
from corpusmill.config import DatasetConfig, absolute_here, check_config, work_of
from corpusmill.dedup.stages.annotating import PAIRS
from corpusmill.dedup.stages.union import ranges_match_check, references_found
from corpusmill.dedup.stages.writeback import FOLDER
from corpusmill.engine.build import Build
from corpusmill.engine.claim import claimed
from corpusmill.engine.ledger import Check
from corpusmill.lazy import lazily
from corpusmill.near_duplicates.stages.near_duplicates import copies_of_references, decided_check
from corpusmill.report.content import nothing_in_common
from corpusmill.report.figures import counted
from corpusmill.sources.stages.index import quarantine_of
from corpusmill.storage import local
from corpusmill.storage.output_folder import OutputFolder

with lazily:
    from corpusmill.upload.stages import summarize


@dataclass(frozen=True)
class Finished:
    """What a command did: its build, the accounts that balanced, and the files in the output folder."""

    build: Build
    checks: list[Check]
    files: int
    files_written: int


def dedup_config(
    inputs: Sequence[str], output: str, dedup: dict[str, Any], against: Sequence[str] | None = None, **sections: Any
) -> DatasetConfig:
    """A dataset configuration for deduplication alone; what later stages need is filled in and changes no byte here.

    The dataset is named after the output folder, so two outputs do not share a lock; `sections` are `source`,
    `work_folder` and `near_duplicates` as in the configuration. `inputs`, `output` and `against`, which is asked as the
    source is, start at the current folder.
    """
    name = re.sub(r"[^a-z0-9_-]+", "-", Path(output).name.lower()).strip("-_")[:63] or "dedup"
    of_later_stages = {"tokenizer": {"name": "cl100k_base"}, "shuffle": {"seed": 0}, "exports": {"nanoset": {}}}
    source = {"paths": [absolute_here(path) for path in inputs], **sections.pop("source", {})}
    store = {key: source[key] for key in ("endpoint_url", "anonymous") if key in source}
    if against:
        dedup = {**dedup, "against": [{"path": absolute_here(path), **store} for path in against]}
    values = {"name": name, "source": source, "dedup": dedup, "destinations": [{"path": absolute_here(output)}]}
    return check_config({**values, **of_later_stages, **sections}, where="the command's arguments")


def cut_for_cores(config: DatasetConfig) -> DatasetConfig:
    """A configuration with `source.shard_bytes` for about SHARDS shards of its sources, so that a machine's cores share
    them. Not below the largest file, which would be cut in two, up to the usual size. A power of two, which stays as it
    is when some files are added, so that the other shards are reused.
    """
    sizes = [file.size_bytes for file in list_dataset(config).files]
    even, largest = sum(sizes) // SHARDS, max(sizes, default=1) - 1
    shard_bytes = max(SMALLEST_SHARD_MIB << 20, 1 << even.bit_length() >> 1, 1 << largest.bit_length())
    update = {"shard_bytes": ByteSize(min(shard_bytes, LARGEST_SHARD_MIB << 20))}
    return config.model_copy(update={"source": config.source.model_copy(update=update)})


def run_stages(config: DatasetConfig, until: str, *, workers: int | None = None, watch: bool = False) -> Build:
    """Plan, and run or reuse every step up to a stage; `watch` shows progress bars (or lines)."""
    with claimed(work_of(config)):
        plan_receipt = plan_dataset(config)
        (run_watched if watch else run_steps)(plan_receipt, workers=workers, until=until)
    return open_build(plan_receipt)


def deduplicate(config: DatasetConfig, output: str, *, workers: int | None = None, watch: bool = False) -> Finished:
    """Deduplicate the sources and put the documents below `output`, under the sources' names."""
    delivered = output_folder(config, output, "dedup")
    if "shard_bytes" not in config.source.model_fields_set:
        config = cut_for_cores(config)
    build = run_stages(config, "writeback", workers=workers, watch=watch)
    files = {
        entry.name.removeprefix(f"{FOLDER}/"): (folder / entry.name, entry.sha256)
        for unit, folder in ((unit, build.folder("writeback", unit)) for unit in build.units("writeback"))
        for entry in build.receipt("writeback", unit).outputs
    }
    checks = [*balances(build, "writeback"), ranges_match_check(build)]
    return Finished(build, checks, len(files), deliver(build, delivered, files))


def write_near_duplicates(
    config: DatasetConfig, pairs: Path, *, workers: int | None = None, watch: bool = False
) -> Finished:
    """Write the near-duplicates of the sources to a file, which appears complete."""
    build = run_stages(cut_for_cores(config), "near_duplicates", workers=workers, watch=watch)
    pairs.parent.mkdir(parents=True, exist_ok=True)
    with local.arriving_at(pairs) as arriving, arriving.open("wb") as whole:
        for unit in build.units("near_duplicates"):
            with build.opened("near_duplicates", unit, PAIRS) as folder, (folder / PAIRS).open("rb") as own:
                shutil.copyfileobj(own, whole)
    return Finished(build, [*balances(build, "near_duplicates"), decided_check(build)], 1, 1)


def output_folder(config: DatasetConfig, output: str, command: str) -> OutputFolder:
    """ConfigError if what is read overlaps the folder, or if the folder holds files that this command did not write."""
    require_not_read(config, "--output", output)
    return OutputFolder(absolute_here(output), command)


def require_not_read(config: DatasetConfig, option: str, output: str, *, files: bool = False) -> None:
    """ConfigError if a source or a reference overlaps the folder, or the file, that a command writes."""
    references = [reference.path for reference in config.dedup.against or ()]
    require_no_overlap([*config.source.paths, *references], [(option, absolute_here(output))], files=files)


def balances(build: Build, stage: str) -> list[Check]:
    """The accounts of a stage and of all before it, summed over their units."""
    return [check for each in (*GRAPH.before(stage), stage) for check in summarize.merged_checks(build.checks(each))]


def deliver(build: Build, output: OutputFolder, files: dict[str, tuple[Path, str]]) -> int:
    """Put files, {name: (path, sha256)}, into the output folder; returns how many were not there yet."""
    planned = (file for shard in build.plan.shards for file in shard)
    output.replace({file.part.of if file.part else file.name for file in planned}, files)
    written = 0
    for name, (path, sha256) in files.items():
        if output.store.digest(name) != sha256:
            output.store.receive(path, name, sha256)
            written += 1
    return written


def render_finished(finished: Finished, output: str) -> str:
    """For people: what was found, removed or annotated, the balance checks, rejected lines, and where the output is."""
    build, dedup = finished.build, finished.build.config.dedup
    text_bytes, documents = build.total("index", "text_bytes_out"), build.total("index", "documents_out")
    lines = [f"{documents:,} documents, {text_bytes:,} bytes of text"]
    if build.config.near_duplicates:
        found = build.receipt("decide", "dataset").counts["documents_left_out"]
        lines += [
            f"{found:,} of {documents:,} documents are near-duplicates of an earlier one",
            *(f"{count:,} of these are copies of documents in {path}" for path, count in copies_of_references(build)),
        ]
    if dedup.mode != "none":
        references, removed_bytes = references_found(build), build.total("union", "removed_bytes")
        what = "removed" if dedup.mode == "remove" else "annotated"
        lines += [
            f"{removed_bytes:,} bytes {what} ({removed_bytes / max(1, text_bytes):.1%}):"
            f" repeats of at least {dedup.minimum_bytes} bytes",
            *(f"{reference.held_bytes:,} of these are in {reference.path}" for reference in references),
            *(f"note     {sentence}" for sentence in nothing_in_common(references, dedup.minimum_bytes or 0)),
            f"{build.total('union', 'documents_touched'):,} documents touched,"
            f" {build.total('union', 'documents_emptied'):,} of them nothing but repeats",
        ]
    lines += [f"balance  {check.name}: {check}" for check in finished.checks]
    quarantines = (quarantine_of(build, unit) for unit in build.units("index"))
    lines += [f"rejected lines  {path}" for path in quarantines if path.stat().st_size]
    files = counted(finished.files, "file")
    lines.append(f"output   {absolute_here(output)}: {files}, {finished.files_written:,} written now")
    return "\n".join(lines)
