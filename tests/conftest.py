"""Shared set-up: the repository root on sys.path (for `tests.oracles`), numba's cache inside the repository."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".cache" / "numba"))

# The first call of a kernel compiles it, and two cores are shared with other tests: time says nothing about a property.
settings.register_profile("corpusmill", deadline=None)
settings.load_profile("corpusmill")


pytest_plugins = ["tests.servers"]


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a real S3 server (moto's) on loopback; tests remove the buckets that they make."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
