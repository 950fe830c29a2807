"""Plan: list the sources and group them into shards.

Files are taken in natural order of their names and grouped greedily: a shard is full when the next file would take it
past `source.shard_bytes` (a larger file is a shard alone). So files appended at the end make new shards, or refill the
last one, and leave the others as they were. At most MAXIMUM_SHARDS come out: while there are more, the target doubles,
which regroups everything; by doubling, that happens at few sizes as a dataset grows.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.config import DatasetConfig, absolute
from pipeline.errors import ConfigError
from pipeline.ledger import RECEIPT_NAME, Outcome, Step, run_once
from pipeline.stages.stage import VERSIONS
from pipeline.storage import StoredFile, list_sources

STARTED = ".started"  # its modification time says when the newest run began; receipts older than that were reused
MAXIMUM_SHARDS = 200  # mapped tasks per stage; beyond about that, a scheduler spends more than the tasks


class SourceFile(BaseModel):
    """A source file as the plan saw it; see storage.StoredFile."""

    model_config = ConfigDict(frozen=True)

    name: str
    location: str
    size_bytes: int
    identity: str


class Plan(BaseModel):
    """The source files of every shard; a shard's name is its number, `00000` upwards."""

    model_config = ConfigDict(frozen=True)

    shards: list[list[SourceFile]]

    def shard_names(self) -> list[str]:
        """`00000`, `00001`, ..."""
        return [f"{number:05d}" for number in range(len(self.shards))]

    def source_bytes(self) -> int:
        """Size of all source files, compressed as they are."""
        return sum(file.size_bytes for shard in self.shards for file in shard)


def plan_dataset(config: DatasetConfig) -> Path:
    """List the sources, group them, write the plan; returns the path of the plan's receipt.

    The plan is an observation: it is made anew at every build, and equal observations give the same folder.
    """
    from pipeline.stages.tokenize import locked

    config = locked(config)
    files = source_files(config)
    shards = group_into_shards(files, config.source.shard_bytes)
    plan = Plan(shards=[[SourceFile(**asdict(file)) for file in shard] for shard in shards])
    settings = {"config": config.model_dump(mode="json", exclude_none=True), "plan": plan.model_dump(mode="json")}
    step = Step("plan", VERSIONS["plan"], config.name, settings, inputs=())
    work = Path(absolute(config.work_folder)) / config.name

    def write(folder: Path) -> Outcome:
        (folder / "config.json").write_text(config.model_dump_json(indent=1, exclude_none=True) + "\n")
        (folder / "plan.json").write_text(plan.model_dump_json(indent=1) + "\n")
        return Outcome(counts={"files": len(files), "shards": len(shards), "source_bytes": plan.source_bytes()})

    return run_once(step, work, write)


def begin_run(plan_receipt: Path) -> Path:
    """Say that a run of this plan begins now; receipts older than that count as reused. Returns `plan_receipt`."""
    (plan_receipt.parent / STARTED).touch()
    return plan_receipt


def begun_at(plan_folder: Path) -> float:
    """When the newest run of a plan began; 0 if none has."""
    started = plan_folder / STARTED
    return started.stat().st_mtime if started.exists() else 0.0


def newest_plans(work: Path) -> list[Path]:
    """Receipts of the plans in a dataset's work folder, the one that was last begun first."""
    receipts = (work / "plan").glob(f"*/{RECEIPT_NAME}")
    ages = [(begun_at(path.parent), path.stat().st_mtime, path.parent.name, path) for path in receipts]
    return [path for *_, path in sorted(ages, reverse=True)]


def check_dataset(config: DatasetConfig) -> str:
    """Check what a configuration alone cannot say (tokenizer, sources); a sentence on what was found."""
    from pipeline.stages.tokenize import configured_tokenizer, locked

    tokenizer = configured_tokenizer(locked(config))
    files = source_files(config)
    shards = group_into_shards(files, config.source.shard_bytes)
    return (
        f"{config.name}: {len(files):,} source files, {sum(file.size_bytes for file in files):,} bytes,"
        f" {len(shards)} shards;"
        f" tokenizer {tokenizer.name} ({tokenizer.vocabulary_size:,} ids, sha256 {tokenizer.sha256[:12]}...)"
    )


def source_files(config: DatasetConfig) -> list[StoredFile]:
    from pipeline.documents.compression import ENDINGS

    paths = [absolute(path) for path in config.source.paths]
    _require_apart(config, paths)
    return list_sources(paths, tuple(ENDINGS), config.source.endpoint_url)


def _require_apart(config: DatasetConfig, sources: list[str]) -> None:
    """ConfigError if the build would write below one of its own sources: the next plan would take that for text."""
    written = [("work_folder", config.work_folder), *(("destinations", one.path) for one in config.destinations)]
    for key, path in written:
        place = absolute(path).rstrip("/") + "/"
        for source in sources:
            folder = re.split(r"[*?\[]", source)[0].rstrip("/") + "/"
            if place.startswith(folder):
                raise ConfigError(
                    f"{key} lies below a source, so the next build would read what this one wrote",
                    where=path,
                    expected="a folder outside of every source",
                    got=f"source {source}",
                    next_step=f"move {key} elsewhere, or list the source's subfolders",
                )


def group_into_shards(files: list[StoredFile], shard_bytes: int) -> list[list[StoredFile]]:
    """Consecutive files in groups of at most `shard_bytes`, doubled until there are MAXIMUM_SHARDS groups or fewer."""
    while True:
        shards: list[list[StoredFile]] = []
        filled = 0
        for file in files:
            if not shards or filled + file.size_bytes > shard_bytes:
                shards.append([])
                filled = 0
            shards[-1].append(file)
            filled += file.size_bytes
        if len(shards) <= MAXIMUM_SHARDS:
            return shards
        shard_bytes *= 2
