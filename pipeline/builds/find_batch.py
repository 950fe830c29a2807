"""Measures the tokenizer's speed by batch size on this machine, and chooses a size.

    batch_bytes,tokens_per_s
    65536,21894412
    ...

Every size encodes the same sample for the same CPU time. A size that is in the table is not measured again, so an
interrupted sweep resumes. The choice is the smallest size within 2 % of the fastest, since a batch takes memory.
Source: data/scripts/batch_test.sh of JAXformer, which keeps the last digit of a rate and chooses nothing.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.errors import CorruptDataError, SourceError, full_device_explained

if TYPE_CHECKING:
    from corpusmill.tokens.tokenizer import Tokenizer

HEADER = ["batch_bytes", "tokens_per_s"]
SIZES = tuple(1 << power for power in range(16, 27))  # 64 KiB to 64 MiB
SAMPLE_BYTES = 64 << 20
NEARLY = 0.98


def find_batch(
    inputs: list[str],
    tokenizer: Tokenizer,
    table: Path,
    *,
    sizes: Iterable[int] = SIZES,
    seconds: float = 5.0,
    text_field: str = "text",
    endpoint_url: str | None = None,
) -> dict[int, int]:
    """Measure every size that `table` (CSV, made if missing) does not have; returns {batch_bytes: tokens per second}.

    SourceError if the inputs hold no text, CorruptDataError for a malformed table, StorageFullError for a full disk.
    """
    rates = read_rates(table)
    missing = sorted(set(sizes) - set(rates))
    sample = _sample(inputs, text_field, endpoint_url) if missing else []
    for size in missing:
        rates[size] = _rate(sample, tokenizer, size, seconds)
        _write_rates(table, rates)
    return dict(sorted(rates.items()))


def _write_rates(table: Path, rates: dict[int, int]) -> None:
    """Replace the table at once: on a full disk an appended row could be half of one."""
    partial = table.with_name(table.name + ".partial")
    next_step = "free space on that device, then run the command again: sizes in the table are not measured again"
    with full_device_explained("no space left for the table of batch sizes", where=table, next_step=next_step):
        table.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("w", newline="") as file:
                csv.writer(file).writerows([HEADER, *rates.items()])
            partial.replace(table)
        finally:
            partial.unlink(missing_ok=True)


def choose(rates: dict[int, int]) -> int:
    """The smallest size nearly as fast as the fastest."""
    return min(size for size, rate in rates.items() if rate >= NEARLY * max(rates.values()))


def read_rates(table: Path) -> dict[int, int]:
    """The rates in a table, {batch_bytes: tokens per second}; empty if there is no such file."""
    if not table.exists():
        return {}
    with table.open(newline="") as file:
        rows = list(csv.reader(file))
    valid = [row for row in rows[1:] if len(row) == len(HEADER) and all(cell.isdecimal() for cell in row)]
    if rows[:1] != [HEADER] or len(valid) != len(rows) - 1:
        raise CorruptDataError(
            "this is not a table of batch sizes",
            where=table,
            expected=",".join(HEADER),
            next_step="give --output another name",
        )
    return {int(size): int(rate) for size, rate in valid}


def _sample(inputs: list[str], text_field: str, endpoint_url: str | None) -> list[bytes]:
    from corpusmill.documents.jsonl import read_documents
    from corpusmill.sources.copies import each_file

    texts: list[bytes] = []
    held_bytes = 0
    for name, lines in each_file(inputs, endpoint_url):
        with lines as stream:
            for batch in read_documents(stream, source=name, text_field=text_field, id_field="id"):
                texts += batch.texts()
                held_bytes += int(batch.text_lengths.sum())
                if held_bytes >= SAMPLE_BYTES:
                    return texts
    if not held_bytes:
        raise SourceError("the inputs contain no text to measure", where=", ".join(inputs))
    return texts


def _rate(sample: list[bytes], tokenizer: Tokenizer, batch_bytes: int, seconds: float) -> int:
    """Tokens per CPU second; the first batch warms the engine's cache and is not counted."""
    import numpy as np

    from corpusmill.tokens.runs import runs

    ends = np.cumsum([len(text) for text in sample], dtype=np.uint64)
    bounds = list(runs(ends, batch_bytes))
    tokenizer.encode(sample[slice(*bounds[0])])
    tokens = 0
    began = time.process_time()
    for first, last in cycle(bounds):
        tokens += len(tokenizer.encode(sample[first:last])[0])
        spent = time.process_time() - began
        if spent >= seconds:
            return round(tokens / spent)
    raise AssertionError("unreachable: a sample has a batch")
