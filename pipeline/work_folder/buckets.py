"""Opens buckets, with one client of each bucket per process."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from corpusmill.mirrored import cache_folder
from corpusmill.work_folder.objects import Objects

ENDPOINTS = ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST")


def objects_of(bucket: str) -> Objects:
    """The objects of ``s3://bucket`` or ``gs://bucket``; one client per process, since clients do not survive forks."""
    return _of_process(bucket, os.getpid(), cache_folder(), *map(os.environ.get, ENDPOINTS))


@lru_cache(maxsize=32)
def _of_process(bucket: str, _pid: int, _mirror: Path, *_endpoints: str | None) -> Objects:
    if bucket.startswith("gs://"):
        from corpusmill.work_folder.gcs_objects import GcsObjects

        return GcsObjects(bucket)
    from corpusmill.work_folder.s3_objects import S3Objects

    return S3Objects(bucket)
