"""Plan: list the sources and group them into shards.

Files are taken in natural order of their names and grouped greedily: a shard is full when the next file would take it
past `source.shard_bytes` (a larger file is a shard alone). So files appended at the end make new shards, or refill
the last one, and leave the others as they were. At most MAXIMUM_SHARDS come out: beyond that the target doubles, and
doubles again, which regroups everything at 200, 400, 800 ... times shard_bytes, and at no other size.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.config import DatasetConfig, absolute
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
    files = _source_files(config)
    shards = group_into_shards(files, config.source.shard_bytes)
    plan = Plan(shards=[[SourceFile(**vars(file)) for file in shard] for shard in shards])
    settings = {"config": config.model_dump(mode="json", exclude_none=True), "plan": plan.model_dump(mode="json")}
    step = Step("plan", VERSIONS["plan"], config.name, settings, inputs=())
    work = Path(absolute(config.work_folder)) / config.name

    def write(folder: Path) -> Outcome:
        (folder / "config.json").write_text(config.model_dump_json(indent=1, exclude_none=True) + "\n")
        (folder / "plan.json").write_text(plan.model_dump_json(indent=1) + "\n")
        return Outcome(counts={"files": len(files), "shards": len(shards), "source_bytes": plan.source_bytes()})

    receipt = run_once(step, work, write)
    (receipt.parent / STARTED).touch()
    return receipt


def newest_plans(work: Path) -> list[Path]:
    """Receipts of the plans in a dataset's work folder, the one that was last begun first."""
    receipts = (work / "plan").glob(f"*/{RECEIPT_NAME}")
    return sorted(receipts, key=lambda path: (_begun_at(path.parent), path.parent.name), reverse=True)


def _begun_at(folder: Path) -> float:
    started = folder / STARTED
    return (started if started.exists() else folder / RECEIPT_NAME).stat().st_mtime


def check_dataset(config: DatasetConfig) -> str:
    """Check what a configuration alone cannot say (tokenizer, sources); a sentence on what was found."""
    from pipeline.stages.tokenize import configured_tokenizer

    tokenizer = configured_tokenizer(config.tokenizer)
    files = _source_files(config)
    shards = group_into_shards(files, config.source.shard_bytes)
    return (
        f"{config.name}: {len(files):,} source files, {sum(file.size_bytes for file in files):,} bytes,"
        f" {len(shards)} shards;"
        f" tokenizer {tokenizer.name} ({tokenizer.vocabulary_size:,} ids, sha256 {tokenizer.sha256[:12]}...)"
    )


def _source_files(config: DatasetConfig) -> list[StoredFile]:
    from pipeline.documents.compression import ENDINGS

    paths = [absolute(path) for path in config.source.paths]
    return list_sources(paths, tuple(ENDINGS), config.source.endpoint_url)


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
