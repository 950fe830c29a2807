"""The samples of a training run as text."""

from __future__ import annotations

from corpusmill.errors import inline
from corpusmill.inspect.lineage.facts import PART_COLUMNS, Piece, number_of, part_row, table
from corpusmill.training.sample import SampleTrace


def render_sample(sample: SampleTrace) -> str:
    """A sample and its parts, one line per part; for one of another dataset, only the file."""
    if not sample.records:
        return f"sample {sample.number:,} of {inline(sample.file)}: another dataset's"
    rows, documents, tokens = [], set(), 0
    for record in sample.records:
        first, last = record.record_tokens
        for part in record.parts:
            place, *columns = part_row(part, tokens - first)
            rows.append((place, f"{record.record:,}", *columns))
            if isinstance(part, Piece):
                documents.add((part.document.shard, part.document.ordinal))
        tokens += last - first
    head = (
        f"sample {sample.number:,} of {inline(sample.file)}: {tokens:,} tokens, {number_of(len(documents), 'document')}"
    )
    return "\n".join([head, "", *table(("in the sample", "record", *PART_COLUMNS), rows)])
