"""Where the lines of a sample are in the sources that it was drawn from.

The work folder of a sample's build holds this table, so that decisions and steps see every document's own file and
line. No other work folder has one.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from corpusmill.fingerprint import file_digest

SAMPLED = "sampled.json"


class SampledFile(msgspec.Struct, frozen=True):
    """A planned file, or part of one, with sampled lines; `whole`: the file's own name; `lines_before`: its lines
    before this part.
    """

    name: str
    whole: str
    lines_before: int


class Sampled(msgspec.Struct, frozen=True):
    """The drawn files; for each file of the sample the (index of its drawn file, 0-based line there) of every line."""

    files: list[SampledFile]
    lines: dict[str, list[tuple[int, int]]]

    def place_in_whole(self, source: str, line: int) -> tuple[str, int]:
        """(file, 0-based line in it) of a line of the sample."""
        number, drawn_line = self.lines[source][line]
        return self.files[number].whole, self.files[number].lines_before + drawn_line


def write_sampled(sampled: Sampled, path: Path) -> None:
    """Write the table."""
    path.write_bytes(msgspec.json.encode(sampled))


def read_table(path: Path) -> Sampled:
    """Read the table."""
    return msgspec.json.decode(path.read_bytes(), type=Sampled)


def sampled_settings(work: Path) -> dict[str, str]:
    """The part of a stage's settings that identifies the table of a work folder; empty without one."""
    path = work / SAMPLED
    return {"sampled": file_digest(path, "xxh3_128")} if path.exists() else {}


def read_sampled(work: Path) -> Sampled | None:
    """The table of a work folder; None unless a sample is built there."""
    return read_table(work / SAMPLED) if (work / SAMPLED).exists() else None
