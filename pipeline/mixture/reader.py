"""Sample k of a Nanoset, as nanotron reads it; for looking at a mixture before training on it.

Source: huggingface/nanotron data/nanoset.py, huggingface/datatrove utils/dataset.py. Not a data loader: it keeps one
map per file and reads a sample at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.export.nanoset import open_file
from pipeline.mixture.mixture import nanoset_windows
from pipeline.mixture.order import nanoset_file_order, nanoset_order
from pipeline.mixture.sources import Source


class Nanoset:
    """The samples of a run of `samples` over sources with weights (float64, summing to 1).

    Memory: 10 bytes a sample, and one memory map a file.
    """

    def __init__(
        self, sources: Sequence[Source], weights: NDArray[np.float64], *, sequence_tokens: int, samples: int, seed: int
    ) -> None:
        self.sequence_tokens = sequence_tokens
        self._files = [
            [open_file(source.nanoset[number].path) for number in nanoset_file_order(len(source.nanoset))]
            for source in sources
        ]
        self._window_ends = [
            np.cumsum([file.tokens.size // (sequence_tokens + 1) for file in files]) for files in self._files
        ]
        windows = nanoset_windows(sources, sequence_tokens)
        self.sources, self.windows = nanoset_order(windows, weights, samples, seed)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, sample: int) -> NDArray[np.int64]:
        """The sequence_tokens + 1 ids of one sample, as int64."""
        source, window = int(self.sources[sample]), int(self.windows[sample])
        ends = self._window_ends[source]
        number = int(np.searchsorted(ends, window, side="right"))
        first = (window - int(ends[number - 1] if number else 0)) * (self.sequence_tokens + 1)
        return self._files[source][number].tokens[first : first + self.sequence_tokens + 1].astype(np.int64)
