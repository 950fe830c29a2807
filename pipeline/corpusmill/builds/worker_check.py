"""Checks that workers can build together: many short probes, placed by the scheduler, then one comparison.

A build's steps meet only in finished files below the work folder, so every worker must see the same folder, run the
same versions (bytes depend on some of them), and have room.

    <work folder>/.worker-check/begun        which a probe must find
                                00003.json   what probe 3 found: host, cores, versions, free bytes

`conclude` removes the folder. Source: data/test_cluster.py of JAXformer: many short tasks, counted per host.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections import Counter
from pathlib import Path
from typing import Any

from corpusmill.engine.ledger.receipt import installed_versions
from corpusmill.engine.work_folder.small import refresh, remove, write
from corpusmill.errors import PermanentError, StorageFullError, TransientError

FOLDER = ".worker-check"
BEGUN = "begun"
LEAST_FREE_BYTES = 1 << 30


def begin(work_folder: Path, probes: int) -> list[str]:
    """Leave a file in the work folder that every worker must find; returns the names of the probes."""
    shutil.rmtree(work_folder / FOLDER, ignore_errors=True)
    (work_folder / FOLDER).mkdir(parents=True)
    write(work_folder / FOLDER / BEGUN, b"")
    return [f"{number:05d}" for number in range(probes)]


def probe(work_folder: Path, name: str, *, host: str | None = None) -> Path:
    """Write what this worker sees; returns the file's path. PermanentError if it does not see the others' folder."""
    folder = work_folder / FOLDER
    host = host or socket.gethostname()
    if not refresh(folder / BEGUN, again=True):
        raise PermanentError(
            "workers.work_folder_not_shared: a worker does not see the others' work folder",
            where=f"{host}: {work_folder}",
            expected=f"the file {FOLDER}/{BEGUN}, which the first task left there",
            next_step="mount one shared file system on every worker, under the same path",
        )
    free_bytes = shutil.disk_usage(folder).free
    answer = {"host": host, "cores": os.cpu_count() or 1, "versions": _versions_in_words(), "free_bytes": free_bytes}
    write(folder / f"{name}.json", json.dumps(answer).encode() + b"\n")
    return folder / f"{name}.json"


def conclude(work_folder: Path, probes: list[Path], *, least_free_bytes: int = LEAST_FREE_BYTES) -> str:
    """Probes per host, in words.

    PermanentError for a host with other versions, StorageFullError for one without room, TransientError if no probe
    ran.
    """
    for path in probes:
        refresh(path)
    probed: list[dict[str, Any]] = [json.loads(path.read_bytes()) for path in probes]
    for path in (work_folder / FOLDER / BEGUN, *probes):
        remove(path)
    shutil.rmtree(work_folder / FOLDER)
    if not probed:
        raise TransientError("workers.no_probe: no probe came back", next_step="check whether any worker is running")
    usual = Counter(probe["versions"] for probe in probed).most_common(1)[0][0]
    for probe in probed:
        if probe["versions"] != usual:
            raise PermanentError(
                "workers.versions_differ: workers run different versions, so their bytes may differ",
                where=probe["host"],
                expected=usual,
                got=probe["versions"],
                next_step="install requirements.lock on every worker",
            )
        if probe["free_bytes"] < least_free_bytes:
            raise StorageFullError(
                "workers.disk_too_small: a worker has too little free space in the work folder",
                where=f"{probe['host']}: {work_folder}",
                expected=f"{least_free_bytes:,} bytes free",
                got=f"{probe['free_bytes']:,}",
                next_step="free space there",
            )
    counted = Counter(str(probe["host"]) for probe in probed)
    cores = {str(probe["host"]): probe["cores"] for probe in probed}
    lines = [f"{host}  {count:,} probes, {cores[host]} cores" for host, count in sorted(counted.items())]
    return "\n".join([*lines, f"{len(probed):,} probes on {len(counted):,} hosts: one folder, one set of versions"])


def _versions_in_words() -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(installed_versions().items()))
