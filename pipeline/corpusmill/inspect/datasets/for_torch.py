"""Records as torch's datasets. Imported when one is asked for, since torch is no dependency of this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import distributed
from torch.utils.data import Dataset, IterableDataset, get_worker_info

if TYPE_CHECKING:
    from corpusmill.inspect.datasets.records import Records


class MapStyle(Dataset[torch.Tensor]):
    """Record `number` as a 1-D int64 tensor."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.from_numpy(self._records[number].astype(np.int64))


class Streamed(IterableDataset[torch.Tensor]):
    """All records in order as 1-D int64 tensors, each in one rank and one worker of its DataLoader.

    Of R ranks with W workers each, number k of the R x W reads records k, k + R W, ...: together the ranks are at the
    same place of the shuffled order.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    def __iter__(self) -> Iterator[torch.Tensor]:
        ranks, rank = 1, 0
        if distributed.is_available() and distributed.is_initialized():
            ranks, rank = distributed.get_world_size(), distributed.get_rank()
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        records = MapStyle(self._records[rank * workers + number :: ranks * workers])
        return (records[place] for place in range(len(records)))
