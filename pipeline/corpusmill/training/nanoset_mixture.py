"""Reads the sources of a Nanoset of several folders from `mixture.json`, which `corpusmill mix` wrote."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import PermanentError, SourceError
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.upload.stages.manifest import dataset_files, dataset_version

if TYPE_CHECKING:
    from corpusmill.engine.build import Build

EXPORT = "nanoset"


@dataclass(frozen=True)
class NanosetMixture:
    """The folders of a run in order, `weights` (float64, sum 1) and `windows` (int64) of each, the index of ours."""

    folders: tuple[str, ...]
    weights: NDArray[np.float64]
    windows: NDArray[np.int64]
    sequence_tokens: int
    seed: int
    ours: int


def read_mixture(path: Path, build: Build) -> NanosetMixture:
    """PermanentError for a file that is not a mixture of Nanosets, or a mixture without this version of the dataset."""
    try:
        stated = json.loads(path.read_bytes())
        sources = stated["sources"]
        folders = tuple(str(source["folder"]) for source in sources)
        weights = np.array([float(source["weight"]) for source in sources])
        windows = np.array([int(source[EXPORT]["samples"]) for source in sources], np.int64)
        sequence_tokens, seed = int(stated["sequence_tokens"]), int(stated["seed"])
        usable = len(sources) and windows.min() > 0 and weights.min() > 0 and math.isfinite(weights.sum())
    except (OSError, ValueError, LookupError, TypeError, OverflowError):
        usable = False
    if not usable:
        raise PermanentError(
            "mixture.not_of_nanosets: this is not a mixture of Nanosets",
            where=path,
            expected="mixture.json from corpusmill mix, for datasets that all have nanoset files",
            next_step="run corpusmill mix with the run's folders, weights, sequence tokens and seed",
        )
    # nanotron divides by the sum of the weights in nanotron.yaml, which is not always 1 in the last bit.
    return NanosetMixture(
        folders, weights / np.sum(weights), windows, sequence_tokens, seed, _ours(path, folders, build)
    )


def _ours(path: Path, folders: tuple[str, ...], build: Build) -> int:
    digests = {name: sha256 for name, _, sha256, _ in dataset_files(build) if name.startswith(f"{EXPORT}/")}
    version = dataset_version(build)
    for number, folder in enumerate(folders):
        there = _digests(folder)
        if there == digests or (there is None and Path(folder).name == version):
            return number
    raise PermanentError(
        "mixture.dataset_not_drawn: the mixture does not draw from this dataset",
        where=path,
        expected=f"version {version} of {build.config.name}",
        got="\n".join(folders),
        next_step="give the configuration that built one of them",
    )


def _digests(folder: str) -> dict[str, Any] | None:
    """The sha256 of the Nanoset's files in a folder; None if the dataset is not on this machine."""
    try:
        return {file["name"]: file["sha256"] for file in open_dataset(folder).files(EXPORT)}
    except SourceError:
        return None
