"""Shared set-up: the repository root on sys.path (for `tests.oracles`), numba's cache inside the repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".cache" / "numba"))

# The first call of a kernel compiles it, and two cores are shared with other tests: time says nothing about a property.
settings.register_profile("corpusmill", deadline=None)
settings.load_profile("corpusmill")
