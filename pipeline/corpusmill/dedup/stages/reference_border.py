"""Reference border: a reference's shard answers as the dataset's own do in `border`."""

from __future__ import annotations

from dataclasses import replace

from corpusmill.dedup.stages import border

STAGE = replace(border.STAGE, name="reference_border", per_shard=False, units_of="reference_context")
