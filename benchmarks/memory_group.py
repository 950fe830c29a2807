"""Runs a command in a memory control group, which counts the page cache, and says what it took.

cgroup v1: memory.limit_in_bytes bounds what the group's processes hold and what they read into the page cache.
memory.max_usage_in_bytes is the counted peak: a group that fills its limit with page cache peaks at its limit and is
not killed. Pages that others have read are not charged to the group, so callers whose input was written or read before
call `forget_pages` first.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

GROUPS, CPU_GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/cpuacct")


def forget_pages() -> None:
    """Empty the page cache. What is not yet written stays, so it is written first."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")


def within(
    limit_bytes: int, command: list[str], output: Path | None = None, surroundings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Run a command in a group of its own, with 0 without a limit; its standard output goes to `output`, else to ours.
    `surroundings`: further arguments of subprocess.run (env, cwd).

    Processor seconds are those of all processes of the group: other work on the machine disturbs them least.
    """
    group, cpu_group = (root / f"benchmark-{os.getpid()}" for root in (GROUPS, CPU_GROUPS))
    group.mkdir()
    cpu_group.mkdir()
    if limit_bytes:
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))

    def enter() -> None:
        for item in (group, cpu_group):
            (item / "cgroup.procs").write_text(str(os.getpid()))

    began = time.monotonic()
    try:
        with (output or Path("/dev/stderr")).open("wb") as printed:
            subprocess.run(command, check=True, preexec_fn=enter, stdout=printed, **surroundings or {})
    finally:
        seconds = time.monotonic() - began
        cpu_seconds = int((cpu_group / "cpuacct.usage").read_text()) / 1e9
        peak = int((group / "memory.max_usage_in_bytes").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        failures = int((group / "memory.failcnt").read_text())
        while (group / "cgroup.procs").read_text():  # servers of workers end after the command
            time.sleep(0.1)
        group.rmdir()
        cpu_group.rmdir()
    return {
        "limit_bytes": limit_bytes or None,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "group_peak_bytes_with_page_cache": peak,
        "group_was_full_times": failures,
        "major_faults": int(stat["total_pgmajfault"]),
    }
