"""Reports a dataset's late run: Airflow's triggerer calls this, and Browse > Deadlines shows it."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)


async def missed(dataset: str, within: str, context: dict[str, Any] | None = None) -> None:
    """Log which dataset is late, and which run of it."""
    run = ((context or {}).get("dag_run") or {}).get("dag_run_id", "its run")
    log.error("the dataset %s is late: %s has not ended within %s (dag.deadline)", dataset, run, within)
