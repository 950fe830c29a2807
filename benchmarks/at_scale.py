"""Claim: FineWeb-Edu's sample of ten billion tokens becomes a Megatron dataset in the time that the model states.

benchmarks/at_scale.md says on which machine, and prints what `--expected` prints: figures of the model, not measured.
Anybody who runs the script measures them. It writes at_scale.yaml and benchmarks/results/at_scale.json; interrupted, it
goes on.

    corpusmill --version && .venv/bin/python -m benchmarks.at_scale --work-folder /mnt/nvme/work --output /mnt/nvme/edu
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.results import write_result

SOURCE = "hf://datasets/HuggingFaceFW/fineweb-edu/sample/10BT"
TEXT_GB = 48  # ten billion tokens of about 4.8 bytes
STORED_GB = 28  # as parquet, by the dataset's page
MACHINE, CORES, DOLLARS_PER_HOUR = "m7gd.8xlarge (AWS, 32 vCPU, 128 GB, 1.9 TB of NVMe)", 32, 1.71
DISK_GB_PER_SECOND, NETWORK_GB_PER_SECOND = 1.0, 0.5  # cautious: half of what such a machine is sold with
# Of each byte of text; docs/sizing.md says where they were measured. They are of four formats: one takes less.
READ, WRITTEN = 17.7, 7.8


def mb_per_core_second() -> float:
    """Of text, everything enabled, measured on two shared cores (docs/sizing.md)."""
    from tests.docs.sizing import rate

    return rate()


def expected() -> dict[str, float]:
    """Minutes by what bounds them, hours in all if nothing overlaps, and dollars."""
    minutes = {
        "download, minutes": STORED_GB / NETWORK_GB_PER_SECOND / 60,
        "cores, minutes": TEXT_GB * 1000 / mb_per_core_second() / CORES / 60,
        "disk, minutes": TEXT_GB * (READ + WRITTEN) / DISK_GB_PER_SECOND / 60,
    }
    hours = sum(minutes.values()) / 60
    rounded = {name: round(value, 1) for name, value in minutes.items()}
    return {**rounded, "hours": round(hours, 1), "dollars": round(hours * DOLLARS_PER_HOUR, 2)}


def table() -> str:
    """The expected figures as Markdown."""
    rows = [f"| {name} | {value:g} |" for name, value in expected().items()]
    return "\n".join(["| expected, not measured | |", "|---|---|", *rows]) + "\n"


def main() -> None:
    """Build, and write what it took beside what was expected."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--expected", action="store_true")
    parser.add_argument("--source", default=SOURCE)
    parser.add_argument("--output", default="edu")
    parser.add_argument("--work-folder", default="work")
    given = parser.parse_args()
    if given.expected:
        print(table(), end="")
        return
    built = [given.source, "--tokenizer", "cl100k_base", "--export", "megatron", "--output", given.output]
    command = [sys.executable, "-m", "corpusmill.cli", "build", *built, "--work-folder", given.work_folder]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    hours = (time.perf_counter() - began) / 3600
    summary = json.loads((Path(given.output) / "latest" / "dataset.json").read_text())
    figures = {"source": given.source, "hours": round(hours, 3), "expected": expected(), "files": summary["files"]}
    write_result("at_scale", "FineWeb-Edu's sample of ten billion tokens takes what the model states", figures)


if __name__ == "__main__":
    main()
