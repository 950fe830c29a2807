"""What a form may name: paths and endpoints below configured roots. Configuration files are unbounded.

CORPUSMILL_FORM_ROOTS lists the roots, with commas between them: folders of this machine (relative ones start at the
root folder), ``s3://bucket/prefix``, ``gs://bucket``, ``hf://datasets/owner``. The endpoint of a store of your own
follows a bar, as in the form: ``s3://bucket | http://minio:9000``. Without one, in a root or in a form, it is that of
the environment (AWS_ENDPOINT_URL), which the store's client uses, or the provider's.
By default the root is CORPUSMILL_ROOT, the data folder.

Folders are compared after links and `..` are resolved. A form may keep every place that the operator's configuration
names, with the endpoint it has there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from corpusmill.config import FORGOTTEN, DatasetConfig, absolute
from corpusmill.errors import ConfigError
from corpusmill.storage import is_local
from corpusmill.storage.listing import GLOB
from corpusmill.storage.locations import ENDPOINT_MARK

FORM_ROOTS = "CORPUSMILL_FORM_ROOTS"
AGAINST = "dedup.against"
GLOBS = {"source.paths", AGAINST}  # the keys that hold patterns

Place = tuple[str, str | None]
"""(path or address as written, endpoint)."""


def form_roots() -> list[Place]:
    """The roots that forms may name."""
    written = os.environ.get(FORM_ROOTS) if FORM_ROOTS in os.environ else os.environ.get("CORPUSMILL_ROOT")
    roots = [entry.partition(ENDPOINT_MARK.strip()) for entry in (written or "").split(",") if entry.strip()]
    return [(location.strip(), endpoint.strip() or None) for location, _, endpoint in roots]


def named_places(config: DatasetConfig) -> Iterator[tuple[str, Place]]:
    """(key, place) of everything that a configuration reads or writes by its path or address."""
    for path in config.source.paths:
        yield "source.paths", (path, config.source.endpoint_url if path.startswith("s3://") else None)
    for reference in config.dedup.against or ():
        endpoint_url = reference.endpoint_url if reference.path.startswith("s3://") else None
        yield AGAINST, (reference.path, endpoint_url)
    for benchmark in config.decontamination.benchmarks if config.decontamination else ():
        endpoint_url = benchmark.endpoint_url if benchmark.path.startswith("s3://") else None
        yield "decontamination.benchmarks", (benchmark.path, endpoint_url)
    for decisions in config.listed_decisions():
        path = decisions.path or ""
        endpoint_url = decisions.endpoint_url if path.startswith("s3://") else None
        yield "forget" if decisions.name == FORGOTTEN else "decisions", (path, endpoint_url)
    for destination in config.destinations:
        yield (
            "destinations",
            (destination.path, destination.endpoint_url if destination.path.startswith("s3://") else None),
        )
    yield "work_folder", (config.work_folder, None)
    if vocabulary := config.tokenizer.path():
        yield "tokenizer.file" if config.tokenizer.file else "tokenizer.name", (vocabulary, None)


def require_bounded(config: DatasetConfig, operators: DatasetConfig) -> None:
    """ConfigError that names every place beyond the roots which `operators`, the operator's file, does not name."""
    own = set(named_places(operators))
    require_within((key, place) for key, place in named_places(config) if (key, place) not in own)


def require_folder(key: str, folder: str, own: Iterable[str]) -> None:
    """The same for one folder of a form; `own` are those that the operator's configurations name."""
    if absolute(folder) not in {absolute(known) for known in own}:
        require_within([(key, (folder, None))])


def require_listed(
    config: DatasetConfig,
    operators: DatasetConfig,
    locations: Iterable[str],
    of_references: Iterable[Iterable[str]] = (),
) -> None:
    """ConfigError for a source file that a link leads to outside the roots, unless the operator's file names the path.

    `of_references`: the locations of the files of each reference of `dedup.against`.
    """
    own = {(reference.path, reference.endpoint_url) for reference in operators.dedup.against or ()}
    for reference, files in zip(config.dedup.against or (), of_references, strict=False):
        if (reference.path, reference.endpoint_url) not in own:
            endpoint_url = reference.endpoint_url
            of_stores = ((path, endpoint_url if path.startswith("s3://") else None) for path in files)
            require_within(("file of a reference", place) for place in of_stores)
    if set(config.source.paths) <= set(operators.source.paths):
        return
    endpoint_url = config.source.endpoint_url
    require_within(("source file", (path, endpoint_url if path.startswith("s3://") else None)) for path in locations)


def require_within(places: Iterable[tuple[str, Place]]) -> None:
    """ConfigError that names every place that lies below no root."""
    roots = [(_resolved(location), _endpoint(location, endpoint)) for location, endpoint in form_roots()]
    beyond = [
        (key, f"{location} at {endpoint}" if endpoint else location)
        for key, (location, endpoint) in places
        if not any(
            _endpoint(location, endpoint) == at and _is_below(_resolved(location, glob=key in GLOBS), root)
            for root, at in roots
        )
    ]
    if beyond:
        written = [ENDPOINT_MARK.join(filter(None, root)) for root in form_roots()]
        raise ConfigError(
            "form.place_outside_roots: a form may not name a place outside the configured roots",
            details=tuple(beyond),
            expected=", ".join(written) or f"nothing: neither {FORM_ROOTS} nor CORPUSMILL_ROOT is set",
            next_step="write it into the configuration file of a dataset, or ask the operator of Airflow to add it to"
            f" {FORM_ROOTS} (docs/security.md)",
        )


def _endpoint(location: str, endpoint: str | None) -> str | None:
    """Where a bucket's requests go: the endpoint that is written, else that of the environment, as boto3 takes it."""
    if endpoint or not location.startswith("s3://"):
        return endpoint
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _resolved(location: str, *, glob: bool = False) -> tuple[str, ...]:
    """The parts of a location without links and `..`; of a glob, those of the folder that it searches.

    One that could leave that again (`..` behind a pattern, or in an address) lies nowhere: an empty tuple.
    """
    place = absolute(location)
    parts = place.split("/")
    fixed = next((number for number, part in enumerate(parts) if glob and GLOB.search(part)), len(parts))
    if ".." in parts[fixed:] or (not is_local(place) and ".." in parts):
        return ()
    if not is_local(place):
        return tuple(part for part in parts[:fixed] if part)
    return PurePosixPath(os.path.realpath("/".join(parts[:fixed]) or "/")).parts


def _is_below(place: tuple[str, ...], root: tuple[str, ...]) -> bool:
    return bool(root) and place[: len(root)] == root
