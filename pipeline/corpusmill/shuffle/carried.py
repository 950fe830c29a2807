"""What the shuffle carries beside tokens, in the order of the records that it belongs to.

    pieces    of each context the slots of each of its documents, in order; uint32

These are records like others: scatter draws their places as those of the records they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.kernels.content_kernels import records_sum
from corpusmill.tokens.records import Packing, Records, RecordsContent, context_records
from corpusmill.tokens.token_shard import TokenShard


@dataclass(frozen=True)
class Pieces(Records):
    """The sizes of the pieces of contexts."""

    @cached_property
    def source(self) -> NDArray[Any]:
        """uint32: the slots of all pieces of the plan."""
        assert self.plan is not None  # noqa: S101 (see piece_records)
        return self.plan.sizes.astype("<u4")

    def copy(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """The sizes of the pieces of some contexts, back to back."""
        assert self.plan is not None  # noqa: S101 (see piece_records)
        return self.source[self.plan.pieces_of(self.ordinals[chosen].astype(np.int64))[0]]

    def content(self, chosen: NDArray[np.int64], copied: NDArray[Any], shard: int) -> RecordsContent:
        """The content sum of the sizes; document_tokens: all slots."""
        by_record = records_sum(copied, self.lengths[chosen], shard, self.ordinals[chosen])
        return RecordsContent(by_record, NOTHING, int(copied.sum()), 0)

    def repeated_content(self, _shard: int) -> ContentSum:
        """None: see the contexts."""
        return NOTHING


def piece_records(shard: TokenShard, context_tokens: int, packing: Packing) -> Pieces:
    """Of each context of a shard the sizes of its pieces."""
    contexts = context_records(shard, context_tokens, packing, padded=False)
    assert contexts.plan is not None  # noqa: S101 (they are contexts)
    lengths = np.diff(contexts.plan.bounds).astype(np.uint64)
    return Pieces(shard, contexts.ordinals, lengths, packing, contexts.plan)
