"""Reference context: a reference's shard answers as the dataset's own do in `context`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from corpusmill.stages import context

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def units(build: Build) -> list[str]:
    """The shards of references, where anchors are compared."""
    return build.units("reference") if build.units("anchor") else []


STAGE = replace(context.STAGE, name="reference_context", per_shard=False, units_of="", units=units)
