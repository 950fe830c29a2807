"""What every section of a configuration is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every section: unknown keys are errors, and values do not change after checking."""

    model_config = ConfigDict(extra="forbid", frozen=True)
