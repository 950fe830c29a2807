"""Builds with `reclaim: eager` for tests, and what they hold and deliver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from tests.system.corpus import configuration, lines_of, make_documents
from tests.system.verified import NEAR, NOT_BUILT

RECLAIMED = tuple(stage.name for stage in GRAPH if stage.reclaimed)
HELD = [name for name in reversed(RECLAIMED) if name not in NOT_BUILT]  # of which these builds have steps


def write_files(folder: Path, *numbers: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"part{number}.jsonl").write_bytes(lines_of(make_documents(20, seed=number), 20 * number))


def configured(root: Path, reclaim: str = "eager", **changes: object) -> Any:
    """A shard per file."""
    source = {"paths": [str(root / "corpus")], "shard_bytes": 1}
    changes = {"near_duplicates": NEAR, **changes}
    return check_config(configuration(root, source=source, reclaim=reclaim, **changes), where="test")


def build(root: Path, reclaim: str = "eager", workers: int = 1, **changes: object) -> Build:
    return open_build(build_dataset(configured(root, reclaim, **changes), workers=workers))


def outputs(root: Path) -> dict[str, bytes]:
    folder = (root / "outputs" / "tiny" / "latest").resolve()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def held_bytes(built: Build) -> int:
    """Of the stages that are reclaimed; a file of two names counts once."""
    files = (path.stat() for stage in RECLAIMED for path in (built.work / stage).rglob("*") if path.is_file())
    return sum({status.st_ino: status.st_size for status in files}.values())


def require_reclaimed(built: Build) -> None:
    """Whatever may go is gone, and nothing else."""
    for stage in RECLAIMED:
        for unit in built.units(stage):
            receipt, folder = built.receipt(stage, unit), built.step_folder(stage, unit)
            there = {output.name for output in receipt.outputs if (folder / output.name).exists()}
            assert there == {output.name for output in receipt.outputs} - set(receipt.reclaimed), (stage, unit)
            assert receipt.reclaimed or not any(output.size_bytes for output in receipt.outputs), (stage, unit)
