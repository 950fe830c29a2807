"""Digests of everything that is delivered, and the file that holds those of the family and of the commands.

A digest covers the files of one format: 64 bits of the sha256 of their names and contents. "dataset" covers the files
beside the formats: dataset.json, SHA256SUMS, shuffle_quality.json and latest.json. They are digested whole, because
none holds a time, a version of this program or a path of this machine. dataset.json's own sha256 is the dataset's
version, which must not change either. The digests do depend on the pinned libraries that compress and write parquet:
an upgrade of one may need the digests written anew, in a commit that changes nothing else:

    python -m tests.sameness.write
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from tests.sameness.corpus import write_sources
from tests.search.folders import built_from_scratch, small_limits
from tests.search.settings import Settings, configuration

FILE = Path(__file__).with_name("digests.json")
DIGITS = 16

Digests = dict[str, str]
"""Format (the folder below the dataset), or "dataset" -> digest."""


class NothingDeliveredError(Exception):
    """A build of the family ended in an error."""


def digest_of(files: Mapping[str, bytes]) -> str:
    """Of files by their names below one folder."""
    lines = (f"{name}\n{hashlib.sha256(content).hexdigest()}\n" for name, content in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:DIGITS]


def digests_by_format(files: Mapping[str, bytes]) -> Digests:
    """Of a delivered dataset's files."""
    formats: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        top = name.partition("/")[0]
        formats.setdefault("dataset" if top in {name, ".."} else top, {})[name] = content
    return {name: digest_of(held) for name, held in sorted(formats.items())}


def built_digests(settings: Settings, folder: Path) -> Digests:
    """Of the dataset that these settings make of the sources in `folder`. NothingDeliveredError if the build fails.

    Paths are relative to the build's own root below `folder`, because exp_data.json holds them as configured.
    """
    config = configuration(settings, Path(".."), Path("..") / settings["tokenizer"]["file"])
    with small_limits():
        result = built_from_scratch(folder / "root", config)
    if result.error:
        raise NothingDeliveredError(result.error)
    return digests_by_format(result.files)


def prepared(folder: Path) -> Path:
    """The folder, with the sources in it."""
    write_sources(folder)
    return folder


def recorded() -> dict[str, Digests]:
    """The digests that were written down."""
    return json.loads(FILE.read_text())


def record(digests: Mapping[str, Digests]) -> None:
    """Write them down, a line each, so that a difference between two versions of the file is read at a glance."""
    lines = [f"{json.dumps(name)}: {json.dumps(held)}" for name, held in digests.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
