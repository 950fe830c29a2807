"""The shuffle of records whose number is not known before, said plainly: one word of a generator a record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Record = TypeVar("Record")


def shuffled(records: Sequence[Record], seed: int) -> list[Record]:
    """In the order of the words 0, 1, 2 ... of the Philox stream whose key is the seed's; ties in the order given."""
    printed = json.dumps({"shuffle": "lines", "seed": seed}, sort_keys=True, separators=(",", ":")).encode()
    words = np.random.Philox(key=np.frombuffer(hashlib.sha256(printed).digest()[:16], "<u8"))
    keys = [int(words.random_raw()) for _ in records]
    return [records[place] for place in sorted(range(len(records)), key=lambda place: (keys[place], place))]
