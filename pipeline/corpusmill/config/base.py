"""What every section of a configuration is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every section: unknown keys are errors, and values do not change after checking."""

    # Sections are checked as parts of a whole configuration, so none needs a validator of its own at import.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
