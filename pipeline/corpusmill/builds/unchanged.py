"""Whether a planned build would change nothing, so that a scheduler need not start its tasks.

The plan has delivered; every stage is unchanged (engine/rollup.py), its report included; each destination lists the
version's files with their sizes, and `latest` is that version there. A hub is not asked: an upload to it is one commit,
which finds out. What a destination's files contain is read by `corpusmill verify`, or by a run with `verify`.

Price: that of engine/rollup.py, and one listing per destination.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.engine.rollup import is_unchanged
from corpusmill.engine.runs import DELIVERED
from corpusmill.engine.stage import StepMissingError
from corpusmill.engine.work_folder.small import refresh
from corpusmill.errors import CorpusmillError
from corpusmill.storage import is_hub
from corpusmill.upload.stages.description import latest_version
from corpusmill.upload.stages.manifest import dataset_version
from corpusmill.upload.stages.report import UNIT
from corpusmill.upload.stages.upload import destination_folder, require_delivered

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def last_report(build: Build) -> Path | None:
    """The receipt of the last report, if building again would change nothing; else None."""
    delivered = refresh(build.plan_folder / DELIVERED)
    if not delivered or not all(is_unchanged(build, stage) for stage in build.graph.names):
        return None
    try:
        if not all(_holds(build, unit) for unit in build.units("upload")):
            return None
        return build.step_folder("report", UNIT) / RECEIPT_NAME
    except (StepMissingError, CorpusmillError, OSError):  # the run will tell
        return None


def _holds(build: Build, unit: str) -> bool:
    destination = build.config.destinations[int(unit)]
    if is_hub(destination.path):
        return False
    folder = destination_folder(build, unit)
    require_delivered(build, folder, destination.endpoint_url)
    return latest_version(folder.rpartition("/")[0], endpoint_url=destination.endpoint_url) == dataset_version(build)
