"""What a planted fault is.

A fault is one line of source replaced. `scenario` names the build that it is tried in (planted_builds.py); with `edit`
a second build in the same work folder follows a change of sources or configuration, and must deliver what a fresh one
would: those faults are in what decides on reuse.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """What is wrong, and how it comes about."""

    what: str
    module: str
    old: str
    new: str
    scenario: str = "plain"
    edit: str = ""

    @property
    def room(self) -> str:
        """The package below corpusmill."""
        return self.module.split(".")[0]
