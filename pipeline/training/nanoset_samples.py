"""The order in which nanotron's Nanoset, or datatrove's reader of a folder, draws samples from our `.ds` files.

A sample is a window of sequence length + 1 tokens of one file; windows share no token, and each file's tail is in none.

    datatrove   DatatroveFolderDataset: files in order of name, windows in order of place
    nanotron    Nanoset: files shuffled with seed 42 whatever the run's seed is, then all windows with the run's seed;
                every epoch in the same order

Source: huggingface/datatrove utils/dataset.py, huggingface/nanotron data/nanoset.py. Of several folders with weights
the order is mixture/order.py's; here the run reads one folder.

Price: datatrove's order is arithmetic on the files' sizes. Nanoset's is one permutation of all windows of an epoch:
10 bytes and 50 ns a window.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import PermanentError
from corpusmill.export.nanoset import NanosetFile, open_file, windows_of
from corpusmill.lineage.records import export_folder
from corpusmill.mixture.order import nanoset_epoch, nanoset_files
from corpusmill.stages.layout import OutputPlan, output_plans
from corpusmill.training.sample import Drawn, RecordSpan

if TYPE_CHECKING:
    from corpusmill.engine.build import Build

EXPORT = "nanoset"
MOST_SAMPLES = 2**62  # a Nanoset begins its epoch again and again


class NanosetSamples:
    """The samples of a run on a dataset's Nanoset folder alone, by their numbers from 0.

    With a seed, in nanotron's order, which never ends; without one, in datatrove's.
    """

    export = EXPORT

    def __init__(self, build: Build, sequence_tokens: int, seed: int | None = None) -> None:
        self.build = build
        self._window = sequence_tokens + 1
        self._seed = seed
        outputs = sorted(output_plans(build, EXPORT), key=lambda output: output.name)
        self._outputs = outputs if seed is None else [outputs[number] for number in nanoset_files(len(outputs))]
        self._files: dict[int, NanosetFile] = {}
        windows = [windows_of(self._file(number).total_tokens, sequence_tokens)[0] for number in range(len(outputs))]
        self._firsts = list(accumulate(windows, initial=0))
        if not self._firsts[-1]:
            raise PermanentError(
                "no file of the Nanoset has a sample of this length",
                where=f"{EXPORT}/{outputs[0].name if outputs else ''}",
                expected=f"{self._window:,} tokens",
            )

    def __len__(self) -> int:
        return self._firsts[-1] if self._seed is None else MOST_SAMPLES

    @property
    def title(self) -> str:
        order = "datatrove's order" if self._seed is None else f"a Nanoset with seed {self._seed}"
        return f"{order}, {self._window - 1:,} tokens a sample, {self._firsts[-1]:,} samples an epoch"

    def sample(self, number: int) -> Drawn:
        """What a sample is cut from."""
        place = number if self._seed is None else int(self._epoch[number % self._firsts[-1]])
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
    def _epoch(self) -> NDArray[np.int64]:
        windows = np.array(self._firsts[-1:], np.int64)
        return nanoset_epoch(windows, np.ones(1), self._seed or 0)[1]

    def _file(self, number: int) -> NanosetFile:
        if number not in self._files:
            output: OutputPlan = self._outputs[number]
            self._files[number] = open_file(export_folder(self.build, EXPORT, output) / f"{output.name}.ds")
        return self._files[number]
