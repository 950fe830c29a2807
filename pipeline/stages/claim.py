"""One run of a dataset at a time, also when a scheduler's runs have no process that lives as long as they do.

A run says in the dataset's work folder that it has the dataset. Another run asks the scheduler whether that one is
still under way; if it is not (it ended, failed or was deleted), the claim is void and goes to the asker. Steps are safe
either way: each has a lock of its own. What a claim spares people is two configurations mixed in one report.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.config import DatasetConfig, absolute
from pipeline.errors import TransientError
from pipeline.ledger import RUN_LOCK, held

CLAIM = ".run.json"


class RunUnderWayError(TransientError):
    """Another run of the dataset is under way."""


@dataclass(frozen=True)
class ScheduledRun:
    """A run of a scheduler's job."""

    job: str
    run: str


def claim_dataset(config: DatasetConfig, me: ScheduledRun, is_under_way: Callable[[ScheduledRun], bool]) -> None:
    """Let run `me` have the dataset.

    Raises RunUnderWayError if another scheduled run has it, LockHeldError if a process on this machine builds it.
    """
    work = Path(absolute(config.work_folder)) / config.name
    work.mkdir(parents=True, exist_ok=True)
    with held(work / RUN_LOCK, wait=False):
        other = _claimed(work / CLAIM)
        if other is not None and other != me and is_under_way(other):
            raise RunUnderWayError(
                f"another run of the dataset {config.name} is under way",
                where=work,
                got=f"run {other.run} of {other.job}",
                next_step="wait: this run goes on when that one has ended; or mark that one as failed",
            )
        temporary = work / f"{CLAIM}.new"
        temporary.write_text(json.dumps(asdict(me)) + "\n", encoding="utf-8")
        temporary.replace(work / CLAIM)


def _claimed(path: Path) -> ScheduledRun | None:
    try:
        return ScheduledRun(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):  # none, or torn by a power cut: nobody holds it
        return None
