"""Reads a source's lines as tokens, marks the tokens to train on, and sets malformed lines aside in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.direct.in_order.cores import in_order
from corpusmill.errors import ConfigError, CorruptDataError, RejectedDocumentsError, SourceError, TokenizerError
from corpusmill.export.files import whole_file
from corpusmill.export.framing import EmptyDocuments, Framing, SequenceBatch
from corpusmill.lazy import lazily
from corpusmill.tokens.tokenizer import Tokenizer

with lazily:
    from corpusmill.builds import overlap
    from corpusmill.config import dataset
    from corpusmill.documents import batch as batch_module
    from corpusmill.documents import quarantine as documents_quarantine
    from corpusmill.documents import sequences
    from corpusmill.sources import copies

if TYPE_CHECKING:
    from corpusmill.documents.batch import DocumentBatch
    from corpusmill.documents.sequences import NumberedBlock


REJECTED = "rejected.jsonl"


def rejected_beside(output: Path) -> Path:
    """The file of the lines that an output lacks: {output}.rejected.jsonl."""
    return output.with_name(f"{output.name}.{REJECTED}")


@dataclass
class RejectedLines:
    """The malformed lines among those read so far: `path` gets them, `max_share` of all lines may be malformed."""

    path: Path
    max_share: float = 0.001
    reasons: Counter[str] = field(default_factory=Counter)
    lines: int = 0

    def require_own(self, inputs: Iterable[str], option: str) -> None:
        """ConfigError if `path`, which follows from an option, would be read as one of the inputs, or is another file's
        name: a run replaces the rejected lines of an earlier run, and nothing else.
        """
        overlap.require_no_overlap(
            [dataset.absolute_here(path) for path in inputs if path != "-"],
            [(option, str(self.path.absolute()))],
            files=True,
        )
        if not self.path.exists():
            return
        try:
            with self.path.open("rb") as stream:
                next(documents_quarantine.read_quarantine(stream, name=self.path.name), None)
        except (CorruptDataError, OSError) as error:
            raise ConfigError(
                "in_order.rejected_file_of_others: the file for rejected lines exists and holds something else",
                where=self.path,
                expected="no file, or the rejected lines of an earlier run",
                got="another file",
                next_step=f"move it, or choose another {option}",
            ) from error

    @contextmanager
    def collect(self) -> Iterator[Callable[[DocumentBatch, int], None]]:
        """A function that takes the rejections of each batch, and its number of documents.

        RejectedDocumentsError at the end if too many lines were rejected.
        """
        self.reasons, self.lines = Counter(), 0
        with whole_file(self.path) as quarantine:

            def add(batch: DocumentBatch, documents: int) -> None:
                self.reasons.update(rejection.reason.value for rejection in batch.rejections)
                self.lines += documents + documents_quarantine.append_rejections(quarantine, batch)

            yield add
        lost = batch_module.malformed(self.reasons)
        if lost / max(self.lines, 1) > self.max_share:
            raise RejectedDocumentsError(
                f"documents.too_many_malformed: {lost:,} of {self.lines:,} lines are malformed",
                where=self.path,
                expected=f"at most {self.max_share:.4%}",
                got=self.render(),
                next_step=documents_quarantine.advice_on(self.path)
                or "fix the source, or allow more with --max-rejected-share if you accept losing these lines",
            )

    def render(self) -> str:
        """Counts by reason, for people."""
        return ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.reasons.items()))


Encoded = tuple[SequenceBatch, NDArray[np.bool_] | None]
"""A batch, and bool (tokens,): whether each token is trained on (None: all are, as no line has ranges)."""
EncodedBlock = tuple[Encoded, "DocumentBatch"]
"""The batch of a block of lines, and the rejected lines, as a batch without documents."""


@dataclass(frozen=True)
class Written:
    """One output: its path without ending, and its writer's counts."""

    path: Path
    counts: dict[str, int]


@dataclass
class Source:
    """The files to read (local, in a bucket, on the Hub), the keys to read from their lines, and the rejected lines.

    `processes` parse and encode concurrently; batches have the same order and bytes as with one.
    """

    inputs: list[str]
    keys: tuple[str, ...]
    quarantine: Path
    max_rejected_share: float = 0.001
    ranges_key: str | None = None
    endpoint_url: str | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        self.set_aside = RejectedLines(self.quarantine, self.max_rejected_share)

    @property
    def rejected(self) -> Counter[str]:
        """The number of rejected lines by reason."""
        return self.set_aside.reasons

    @property
    def lines(self) -> int:
        """The number of lines, rejected ones included."""
        return self.set_aside.lines

    def read(self, encode: Callable[[NumberedBlock], EncodedBlock]) -> Iterator[Encoded]:
        """The batches, file by file in natural order of name; at the end RejectedDocumentsError if too many lines were
        rejected, and SourceError if no line has the `ranges_key`.
        """
        has_ranges = False
        with self.set_aside.collect() as set_aside:
            for batch, rejected in in_order(encode, self._blocks(), self.processes):
                set_aside(rejected, len(batch[0][2]))
                has_ranges |= batch[1] is not None
                yield batch
        if self.ranges_key is not None and not has_ranges:
            raise SourceError(
                "in_order.no_ranges: no line has the key of the ranges: every token would be trained on",
                where=", ".join(self.inputs),
                expected=f"{self.ranges_key}: [[first, last], ...]",
                got=f"{self.lines:,} lines without it",
                next_step="check --loss-ranges-field, or leave it out",
            )

    def _blocks(self) -> Iterator[NumberedBlock]:
        others = [self.ranges_key] if self.ranges_key else []
        for file in copies.each_file(self.inputs, self.endpoint_url):
            with file.lines(self.keys, others) as stream:
                yield from sequences.numbered_blocks(stream, source=file.name)


def refuse_existing(path: Path) -> None:
    if path.exists():
        raise ConfigError(
            "output.exists: the output already exists; a trainer's index cache would not notice new content under an"
            " old name",
            where=path,
            expected="a new name",
            got=f"{path.stat().st_size:,} bytes",
        )


def require_tokens(source: Source, key: str, counts: dict[str, int]) -> None:
    if not counts["tokens"]:
        raise SourceError(
            "in_order.no_text: no document has any text",
            where=f"key {key}",
            expected="at least one token",
            got=f"{source.lines:,} lines",
            next_step="check the inputs and the key",
        )


def encoded(source: Source, key: str, tokenizer: Tokenizer) -> Iterator[Encoded]:
    return source.read(
        partial(_encode_block, tokenizer=tokenizer, key=key, keys=source.keys, ranges_key=source.ranges_key)
    )


def _encode_block(block: NumberedBlock, *, tokenizer: Tokenizer, **wanted: Any) -> EncodedBlock:
    batch = sequences.sequences_of(block, **wanted)
    tokens, ends = tokenizer.encode(batch.texts)
    mask = None
    if any(ranges is not None for ranges in batch.no_loss):
        mask = np.ones(tokens.size, np.bool_)
        first = np.concatenate(([0], np.cumsum(batch.sequences))).astype(np.int64)
        for document, ranges in enumerate(batch.no_loss):
            if ranges:
                text = batch.texts[first[document]]
                start = int(ends[first[document] - 1]) if first[document] else 0
                mask[start : int(ends[first[document]])] = trained_tokens(text, ranges, tokenizer)
    return ((tokens, ends, np.cumsum(batch.sequences, dtype=np.uint64)), mask), batch.rejected


def trained_tokens(text: bytes, no_loss: Sequence[tuple[int, int]], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """bool (tokens,): whether each token of a text lies outside all character ranges [first, last).

    As in datatrove, a range starts with the token that holds its first character and ends before the token that holds
    the character behind its last. A range up to the text's end includes the last token (datatrove cuts the document
    there, with its EOS).
    """
    ends = tokenizer.reference.token_ends(text)
    trained = np.ones(ends.size, np.bool_)
    # Byte position of each character, and the text's end.
    starts = [0, *accumulate(len(character.encode()) for character in text.decode())]
    for first, last in no_loss:
        low, high = (
            int(np.searchsorted(ends, starts[place], side="right")) if place < len(starts) - 1 else ends.size
            for place in (first, last)
        )
        trained[low:high] = False
    return trained


def framing_for(tokenizer: Tokenizer, *, eod: bool, bos: bool, empty_documents: EmptyDocuments) -> Framing:
    """Framing by the tokenizer's own special tokens; TokenizerError for BOS if it has none."""
    if bos and tokenizer.bos_id is None:
        raise TokenizerError(
            f"tokenizer.no_bos: the tokenizer {tokenizer.name} has no BOS token", next_step="set it with --bos-token"
        )
    framing = Framing(tokenizer.eot_id if eod else None, tokenizer.bos_id if bos else None, empty_documents)
    framing.refuse_unfit(tokenizer.vocabulary_size)
    return framing
