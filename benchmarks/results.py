"""Writes a benchmark's result file: what was measured, on which machine, of which commit, with which versions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from corpusmill.engine.ledger.receipt import installed_versions

HERE = Path(__file__).parent


def write_result(name: str, claim: str, figures: dict[str, object]) -> Path:
    """Write `benchmarks/results/<name>.json` and return its path."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True
    )
    dirty = subprocess.run(
        ["git", "status", "--porcelain", ":/", ":!results"], cwd=HERE, capture_output=True, text=True, check=True
    )
    result = {
        "claim": claim,
        "figures": figures,
        "machine": {"cores": os.cpu_count(), "processor": _processor(), "system": platform.platform()},
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit.stdout.strip() + (" and uncommitted changes" if dirty.stdout.strip() else ""),
        "versions": installed_versions(),
    }
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return path


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
