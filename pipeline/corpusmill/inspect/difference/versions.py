"""Opens a delivered version: its dataset.json, and what the work folder still has of its build."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpusmill.builds.graph import open_build
from corpusmill.config import DatasetConfig, absolute, dataset_folder, version_folder, work_of
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import read_receipt
from corpusmill.engine.runs import plan_of_version
from corpusmill.engine.stage import StepMissingError
from corpusmill.errors import SourceError
from corpusmill.inspect.datasets.repair import version_store
from corpusmill.inspect.verify.delivered import read_file
from corpusmill.storage import Store
from corpusmill.upload.stages.description import DATASET, VERSION, VERSION_DIGITS, described, version_of
from corpusmill.upload.stages.manifest import UNIT


@dataclass(frozen=True)
class Version:
    """A version at one place. A field is None if no work folder is known, or if the work folder no longer has it.

    Of the plan that delivered it: `configuration`, what can change bytes; `made_by`, the versions of the program, its
    stages and libraries; `build`, if this program finds its steps.
    """

    store: Store
    version: str
    description: dict[str, Any]
    work: Path | None = None
    configuration: dict[str, Any] | None = None
    made_by: dict[str, Any] | None = None
    build: Build | None = None


def open_version(where: str, config: DatasetConfig | None, endpoint_url: str | None) -> Version:
    """A version in a folder or at an address, or by its name (12 digits, or latest) at a destination of `config`.

    SourceError if there is none, CorruptDataError if its dataset.json is damaged.
    """
    named = config if config and (where == "latest" or VERSION.fullmatch(where)) else None
    store = _named_store(where, named) if named else version_store(where, endpoint_url)
    text = read_file(store, DATASET) or b""
    version = hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]
    description = described(text, store.folder)
    if config is None or config.name != description["name"]:
        return Version(store, version, description)
    work = work_of(config)
    plan = plan_of_version(work, version)
    if plan is None:
        return Version(store, version, description, work)
    receipt, build = read_receipt(plan), open_build(plan)
    made_by = {**receipt.versions, **receipt.settings["code"]}
    is_whole = _made(build) == version
    return Version(store, version, description, work, receipt.settings["config"], made_by, build if is_whole else None)


def _made(build: Build) -> str:
    """The version that a build's steps delivered; "" if they are gone, or of another version of this program."""
    try:
        return version_of(build.receipt("manifest", UNIT))
    except StepMissingError:
        return ""


def _named_store(version: str, config: DatasetConfig) -> Store:
    """The version's store at the first destination that has it."""
    for destination in config.destinations:
        folder = dataset_folder(absolute(destination.path), config.name)
        with suppress(SourceError):
            return version_store(
                folder if version == "latest" else version_folder(folder, version), destination.endpoint_url
            )
    raise SourceError(
        "diff.no_such_version: no destination of the configuration has this version",
        where=", ".join(destination.path for destination in config.destinations) or "no destination",
        got=version,
        next_step="give the version's folder or address",
    )
