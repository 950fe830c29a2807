"""Importing this loads what most steps need; the server that workers are forked from imports it once (local.py).

Nothing here starts a thread, which a fork would lose.
"""

from __future__ import annotations

import msgspec
import numpy as np
import orjson  # noqa: F401
import zstandard  # noqa: F401

import corpusmill.builds.graph  # noqa: F401
from corpusmill.config.values import Section
from corpusmill.engine.ledger.receipt import Receipt, installed_versions
from corpusmill.engine.plan import Plan, PlanReceipt
from corpusmill.kernels.content_kernels import text_hashes

installed_versions()  # reading them takes 8 ms

# What decodes configurations, plans and receipts is otherwise made when the first is read, in 26 ms.
for section in Section.__subclasses__():
    section.model_rebuild()
for kind in (Plan, Receipt, PlanReceipt):
    msgspec.json.Decoder(kind)

_NOTHING = np.empty(0, np.uint64)
text_hashes(np.empty(0, np.uint8), _NOTHING, _NOTHING)  # numba fills its tables when the first kernel is called
