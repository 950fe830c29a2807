"""The last estimate of a dataset, as its work folder keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import DatasetConfig
from corpusmill.engine.work_folder.small import refresh, write
from corpusmill.fingerprint import fingerprint

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import SourceFile
    from corpusmill.storage import StoredFile

FILE = "estimate.json"
SUBJECT = "of"
HeldRow = tuple[str, float, float, str, str]
"""(stage, bytes it leaves in the work folder, bytes that `reclaim: eager` deletes, its units' kind, that they read)."""

# Keys that change no figure.
UNRELATED = {"card", "dag", "destinations", "estimate", "keep_versions", "reclaim", "work_folder"}
LATER = {"anonymous", "requester_pays", "fields"}


@dataclass(frozen=True)
class Estimate:
    """The estimate of a build. `tokens_low` to `tokens_high` is a 95 % interval; sizes are bytes.

    `tokens_low` is 0 where duplicates or near-duplicates are removed, because text may repeat text outside the sample.
    `held`, by stage and kind: rows of builds/room.py, which tell peak disk.
    `duplicate_share` is that within the sample: a lower bound; so is `near_duplicate_share`, of documents.
    `hours` is on `cores` cores like this machine's.
    `peak_rss_bytes` of a worker, measured in the sample; `most_rss_bytes`: what a stage may take by its settings.
    `shown_tokens`: those that a budget shows, repeats included; `documents`, too, those with tokens. `held_out`: by
    format, the share that is not for training, unless it is 0. `reference_bytes`: the files of `dedup.against`, as they
    are stored; `hours` counts them, too. `held_of_references`: as `held`, of these. `moved`, if the work folder is in a
    bucket: (requests, bytes) between it and one machine that keeps its cache, and machines that run one stage each;
    without references.
    """

    sampled_text_bytes: int
    scale: float
    text_bytes: int
    tokens: int
    tokens_low: int
    tokens_high: int
    duplicate_share: float
    cores: int
    hours: float
    peak_rss_bytes: int
    output_bytes: dict[str, int]
    held: Sequence[HeldRow]
    shown_tokens: int | None = None
    reference_bytes: int | None = None
    held_of_references: Sequence[HeldRow] = ()
    moved: Sequence[tuple[int, int]] = ()
    most_rss_bytes: int = 0
    near_duplicate_share: float | None = None
    documents: int = 0
    held_out: dict[str, float] = field(default_factory=dict)


def keep_estimate(estimate: Estimate, config: DatasetConfig, files: Iterable[StoredFile], work: Path) -> None:
    """Write an estimate of these source files to a dataset's work folder."""
    saved = {SUBJECT: _subject(config, files), **asdict(estimate)}
    work.mkdir(parents=True, exist_ok=True)
    write(work / FILE, json.dumps(saved, indent=1).encode() + b"\n")


def last_estimate(build: Build) -> Estimate | None:
    """The last estimate of a build's dataset; None if there is none, or if it was of other sources or settings."""
    return estimate_of(build.config, build.plan.files(), build.work)


def estimate_of(config: DatasetConfig, files: Iterable[SourceFile], work: Path) -> Estimate | None:
    """The same for a configuration with its lock, and the planned files; None, too, if the file is truncated."""
    refresh(work / FILE)
    try:
        saved = json.loads((work / FILE).read_bytes())
        return Estimate(**saved) if saved.pop(SUBJECT, None) == _subject(config, files) else None
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None


def _without_unset(value: Any) -> Any:
    """A configuration without the keys of LATER that are not set, so that earlier estimates keep their subjects."""
    if isinstance(value, dict):
        return {key: _without_unset(inner) for key, inner in value.items() if inner is not None or key not in LATER}
    return [*map(_without_unset, value)] if isinstance(value, list) else value


def _subject(config: DatasetConfig, files: Iterable[StoredFile | SourceFile]) -> str:
    """The identity of what was estimated: equal for equal settings and source files, on any machine."""
    settings = _without_unset(config.model_dump(mode="json", exclude=UNRELATED))
    return fingerprint({"settings": settings, "files": sorted({(file.location, file.identity) for file in files})})
