"""What later tasks of a run need of the section `dag`, kept beside the run's plan.

A form may have chosen the configuration, so that these tasks cannot know its file.
"""

from __future__ import annotations

from pathlib import Path

from corpusmill.config.schedule import ScheduleConfig
from corpusmill.engine.work_folder.small import refresh, write
from corpusmill.storage.mirrored import path_of

KEPT = ".dag"  # beside a plan's receipt, of the newest run: its KEYS
KEYS = {"approve_removal", "connections"}  # names of connections, never secrets


def keep_section(plan_receipt: Path, section: ScheduleConfig) -> None:
    """Record the section for every later task of a plan's run."""
    write(plan_receipt.with_name(KEPT), section.model_dump_json(include=KEYS).encode() + b"\n")


def section_of(plan_receipt: str | Path) -> ScheduleConfig:
    """The section kept beside a plan, given its receipt's path or address; the defaults if Airflow did not plan it."""
    path = path_of(plan_receipt).with_name(KEPT)
    return ScheduleConfig.model_validate_json(path.read_bytes()) if refresh(path) else ScheduleConfig()
