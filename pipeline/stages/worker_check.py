"""Are the workers fit to build together? Many short probes, wherever the scheduler puts them, then one comparison.

A build's steps meet only in finished files below the work folder, so every worker must see the same folder, run the
same versions (bytes depend on some of them), and have room. The probes leave nothing behind.
Source: data/test_cluster.py of JAXformer: many tasks of a millisecond, counted per host.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.errors import PermanentError, StorageFullError, TransientError

BEACON = ".worker-check"
LEAST_FREE_BYTES = 1 << 30


def begin(work_folder: Path, probes: int) -> list[int]:
    """Leave a file in the work folder that every worker must find; returns the numbers of the probes."""
    work_folder.mkdir(parents=True, exist_ok=True)
    (work_folder / BEACON).write_text(_versions_in_words())
    return list(range(probes))


def probe(work_folder: Path) -> dict[str, Any]:
    """What one worker finds: plain values for XCom."""
    beacon = work_folder / BEACON
    return {
        "host": socket.gethostname(),
        "cores": os.cpu_count() or 1,
        "versions": _versions_in_words(),
        "sees_the_folder": beacon.is_file(),
        "free_bytes": shutil.disk_usage(work_folder).free if work_folder.is_dir() else 0,
    }


def conclude(work_folder: Path, found: list[dict[str, Any]], *, least_free_bytes: int = LEAST_FREE_BYTES) -> str:
    """Probes per host, in words. Removes the file that `begin` left.

    PermanentError for a host with another folder or other versions, StorageFullError for one without room,
    TransientError when nothing was probed.
    """
    (work_folder / BEACON).unlink(missing_ok=True)
    if not found:
        raise TransientError("no probe came back", next_step="look whether any worker is running")
    for one in found:
        if not one["sees_the_folder"]:
            raise PermanentError(
                "a worker does not see the work folder of the others",
                where=f"{one['host']}: {work_folder}",
                expected="the same folder on every worker (a shared file system)",
                got="no such file as the others have there",
            )
    usual = Counter(one["versions"] for one in found).most_common(1)[0][0]
    for one in found:
        if one["versions"] != usual:
            raise PermanentError(
                "workers run different versions, so their bytes may differ",
                where=one["host"],
                expected=usual,
                got=one["versions"],
                next_step="install requirements.lock on every worker",
            )
        if one["free_bytes"] < least_free_bytes:
            raise StorageFullError(
                "a worker has no room in the work folder",
                where=f"{one['host']}: {work_folder}",
                expected=f"{least_free_bytes:,} bytes free",
                got=f"{one['free_bytes']:,}",
                next_step="free space there",
            )
    probes = Counter(str(one["host"]) for one in found)
    cores = {str(one["host"]): one["cores"] for one in found}
    lines = [f"{host}  {count:,} probes, {cores[host]} cores" for host, count in sorted(probes.items())]
    return "\n".join([*lines, f"{len(found):,} probes on {len(probes):,} hosts: one folder, one set of versions"])


def _versions_in_words() -> str:
    from pipeline.ledger.receipt import installed_versions

    return ", ".join(f"{name} {version}" for name, version in sorted(installed_versions().items()))
