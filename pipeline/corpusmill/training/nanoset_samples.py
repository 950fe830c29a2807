"""Computes the order in which nanotron's Nanoset, or datatrove's folder reader, draws samples from our `.ds` files.

A sample is a window of sequence length + 1 tokens of one file; windows share no token, and each file's tail is in none.

    datatrove   DatatroveFolderDataset: files in order of name, windows in order of place
    nanotron    Nanoset: files shuffled always with seed 42, then all windows with the run's seed;
                every epoch in the same order

Source: huggingface/datatrove utils/dataset.py, huggingface/nanotron data/nanoset.py. Of several folders with weights
nanotron draws greedily and shuffles what it drew (training/mixture/order.py); the folders are those of `mixture.json`,
which `corpusmill mix` wrote.

Price: datatrove's order is arithmetic on the files' sizes. Nanoset's is one permutation of all windows of an epoch:
10 bytes and 50 ns a window.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import PermanentError, SourceError
from corpusmill.export.nanoset import NanosetFile, open_file, windows_of
from corpusmill.export.stages.layout import OutputPlan, output_plans
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.inspect.lineage.records import export_folder
from corpusmill.training.mixture.order import nanoset_epoch, nanoset_files
from corpusmill.training.sample import Drawn, RecordSpan
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


MOST_SAMPLES = 2**62  # a Nanoset repeats its epoch without end


class NanosetSamples:
    """The samples of a run on a dataset's Nanoset folder, alone or in a mixture, by their numbers from 0.

    With a seed, in nanotron's order, which never ends; without one, in datatrove's. A mixture always has a seed.
    PermanentError for files without a sample, or with another number of samples than the mixture states.
    """

    export = EXPORT

    def __init__(
        self, build: Build, sequence_tokens: int, seed: int | None = None, mixture: NanosetMixture | None = None
    ) -> None:
        self.build = build
        self._mixture = mixture
        self._window = sequence_tokens + 1
        self._seed = seed
        outputs = sorted(output_plans(build, EXPORT), key=lambda output: output.name)
        self._outputs = outputs if seed is None else [outputs[number] for number in nanoset_files(len(outputs))]
        self._files: dict[int, NanosetFile] = {}
        windows = [windows_of(self._file(number).total_tokens, sequence_tokens)[0] for number in range(len(outputs))]
        self._firsts = list(accumulate(windows, initial=0))
        if not self._firsts[-1]:
            raise PermanentError(
                "nanoset.no_sample_of_length: no file of the Nanoset has a sample of this length",
                where=f"{EXPORT}/{outputs[0].name if outputs else ''}",
                expected=f"{self._window:,} tokens",
            )
        if mixture and mixture.windows[mixture.ours] != self._firsts[-1]:
            raise PermanentError(
                "mixture.other_files: the mixture is for other files",
                where=mixture.folders[mixture.ours],
                expected=f"{mixture.windows[mixture.ours]:,} samples of {self._window:,} tokens, by the mixture",
                got=f"{self._firsts[-1]:,} samples",
                next_step="run corpusmill mix again",
            )

    def __len__(self) -> int:
        return self._firsts[-1] if self._seed is None else MOST_SAMPLES

    @property
    def title(self) -> str:
        order = "datatrove's order" if self._seed is None else f"a Nanoset with seed {self._seed}"
        if self._mixture:
            order = f"{order} of {len(self._mixture.folders)} folders"
        samples = int(self._mixture.windows.sum()) if self._mixture else self._firsts[-1]
        return f"{order}, {self._window - 1:,} tokens a sample, {samples:,} samples an epoch"

    def sample(self, number: int) -> Drawn:
        """The spans of a sample."""
        place = number
        if self._seed is not None:
            sources, windows = self._epoch
            source, place = int(sources[number % len(sources)]), int(windows[number % len(sources)])
            if self._mixture and source != self._mixture.ours:
                return Drawn(self._mixture.folders[source], None)
        at = int(np.searchsorted(self._firsts, place, side="right")) - 1
        file = self._file(at)
        first = (place - self._firsts[at]) * self._window
        last = first + self._window
        low, high = np.searchsorted(file.ends, np.array([first, last - 1], np.uint64), side="right").tolist()
        ends = file.ends[low : high + 1].tolist()
        begins = [int(file.ends[low - 1]) if low else 0, *ends[:-1]]
        spans = [
            RecordSpan(record, max(first, begin) - begin, min(last, end) - begin)
            for record, begin, end in zip(range(low, high + 1), begins, ends, strict=True)
        ]
        return Drawn(f"{EXPORT}/{self._outputs[at].name}.ds", self._outputs[at], tuple(spans))

    @cached_property
    def _epoch(self) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        if self._mixture:
            return nanoset_epoch(self._mixture.windows, self._mixture.weights, self._seed or 0)
        return nanoset_epoch(np.array(self._firsts[-1:], np.int64), np.ones(1), self._seed or 0)

    def _file(self, number: int) -> NanosetFile:
        if number not in self._files:
            output: OutputPlan = self._outputs[number]
            folder = export_folder(self.build, EXPORT, output, ".ds.metadata", ".ds.index")
            self._files[number] = open_file(folder / f"{output.name}.ds", data=False)
        return self._files[number]
