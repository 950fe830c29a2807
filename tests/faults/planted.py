"""The list of planted faults, chosen from the program's rooms before it was known what catches each of them."""

from __future__ import annotations

from tests.faults.planted_reading import READING
from tests.faults.planted_references import REFERENCES
from tests.faults.planted_reuse import REUSE
from tests.faults.planted_writing import WRITING

FAULTS = [*READING, *REFERENCES, *WRITING, *REUSE]
