"""Opens buckets, with one client of each bucket per process."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from corpusmill.engine.work_folder.objects import Objects
from corpusmill.storage.mirrored import cache_folder

ENDPOINT = "AWS_ENDPOINT_URL"


def objects_of(bucket: str) -> Objects:
    """The objects of ``s3://bucket``; one client per process, since clients do not survive forks."""
    return _of_process(bucket, os.getpid(), cache_folder(), os.environ.get(ENDPOINT))


@lru_cache(maxsize=32)
def _of_process(bucket: str, _pid: int, _mirror: Path, _endpoint: str | None) -> Objects:
    return Objects(bucket)
