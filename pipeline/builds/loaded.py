"""Importing this loads what most steps need; the server that workers are forked from imports it once (local.py).

Nothing here starts a thread, which a fork would lose.
"""

from __future__ import annotations

import numpy as np
import orjson  # noqa: F401
import zstandard  # noqa: F401

import corpusmill.sources.plan  # noqa: F401
import corpusmill.stages.graph  # noqa: F401
from corpusmill.config import DatasetConfig
from corpusmill.content_kernels import text_hashes
from corpusmill.ledger.receipt import installed_versions

installed_versions()  # reading them takes 10 to 20 ms
DatasetConfig.model_rebuild()  # its schema takes 15 to 35 ms, else when the first configuration is read

_NOTHING = np.empty(0, np.uint64)
text_hashes(np.empty(0, np.uint8), _NOTHING, _NOTHING)  # numba fills its tables when the first kernel is called
