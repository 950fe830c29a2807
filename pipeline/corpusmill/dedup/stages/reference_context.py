"""Reference context: a reference's shard answers as the dataset's own do in `context`."""

from __future__ import annotations

from dataclasses import replace

from corpusmill.dedup.stages import context

STAGE = replace(context.STAGE, name="reference_context", per_shard=False, units_of="reference")
