"""Shared set-up: the repository root on sys.path (for `tests.oracles`), numba's cache inside the repository."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.testing
from hypothesis import settings
from typer.main import get_command

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".cache" / "numba"))

# Receipts and deliveries are flushed to the device. In memory that costs nothing, and whole builds take less time:
# at most 1.3 GB lie there, in pytest's own folder, which nobody else may read.
MEMORY = Path("/dev/shm")  # noqa: S108
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# The first call of a kernel compiles it, and two cores are shared with other tests: time says nothing about a property.
# `make test-thorough` runs every property once more, with `--hypothesis-profile thorough`.
settings.register_profile("thorough", deadline=None, max_examples=100)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("quick")

# 40 commands from their signatures take 0.05 s, and CliRunner made them anew each of a thousand times.
typer.testing._get_command = cache(get_command)


# The command line's threshold: at Python's 700, a fortieth of the time goes to garbage among the tests' modules.
gc.set_threshold(50_000)


pytest_plugins = ["tests.servers", "tests.hub_writing"]


# Where whole builds and an Airflow are: files there take up to half a minute, most others a second or less.
LONGEST = ("dags", "system", "sameness", "search", "work_folder", "dedup", "commands", "docs", "difference", "fuzz")
# Runs nearly every kernel. Meanwhile the other worker is at the DAGs, which need few: otherwise each compiles all.
KERNELS = "test_same_bytes.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of slow tests alone come first, then KERNELS and those of LONGEST: the last file to begin keeps the other
    worker waiting, so it should be a short one."""
    mixed = {item.path for item in items if not item.get_closest_marker("slow")}
    rooms = {name: number for number, name in enumerate(LONGEST)}

    def place(path: Path) -> tuple[bool, bool, int]:
        return path in mixed, path.name != KERNELS, rooms.get(path.parent.name, len(rooms))

    items.sort(key=lambda item: place(item.path))


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a real S3 server (moto's) on loopback; tests remove the buckets that they make."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def moto_client(s3_endpoint: str) -> Any:
    """A client of that server."""
    import boto3

    return boto3.Session("testing", "testing", region_name="us-east-1").client("s3", endpoint_url=s3_endpoint)


@pytest.fixture
def moto(s3_endpoint: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The server's address, with credentials in the environment and a bucket `corpus` that is there for one test."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    moto_client.create_bucket(Bucket="corpus")
    yield s3_endpoint
    for page in moto_client.get_paginator("list_objects_v2").paginate(Bucket="corpus"):
        for item in page.get("Contents", []):
            moto_client.delete_object(Bucket="corpus", Key=item["Key"])
    moto_client.delete_bucket(Bucket="corpus")


@pytest.fixture
def page() -> Iterator[np.ndarray]:
    """One writable page between two that fault when they are touched."""
    pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    array = np.frombuffer(pages, np.uint8)
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for outside in (array.ctypes.data, array.ctypes.data + 2 * mmap.PAGESIZE):
        assert mprotect(outside, mmap.PAGESIZE, 0) == 0
    yield array[mmap.PAGESIZE : 2 * mmap.PAGESIZE]
    for outside in (array.ctypes.data, array.ctypes.data + 2 * mmap.PAGESIZE):
        assert mprotect(outside, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
