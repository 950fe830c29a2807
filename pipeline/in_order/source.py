"""A source's lines as tokens: what is read, what is rejected, and which tokens are trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError, RejectedDocumentsError, SourceError, TokenizerError
from corpusmill.export.files import whole_file
from corpusmill.export.framing import EmptyDocuments, Framing, SequenceBatch
from corpusmill.tokens.tokenizer import Tokenizer

REJECTED = "rejected.jsonl"


@dataclass(frozen=True)
class Written:
    """One output: its path without ending, and its writer's counts."""

    path: Path
    counts: dict[str, int]


@dataclass
class Source:
    """The files that are read (here, in a bucket, on a hub), what is wanted of their lines, and what was not taken."""

    inputs: list[str]
    keys: tuple[str, ...]
    quarantine: Path
    max_rejected_share: float = 0.001
    ranges_key: str | None = None
    endpoint_url: str | None = None
    rejected: Counter[str] = field(default_factory=Counter)
    lines: int = 0

    def read(self, key: str) -> Iterator[Any]:
        """The sequences of a key, file by file in natural order of name; RejectedDocumentsError at the end."""
        from corpusmill.documents.quarantine import append_rejections
        from corpusmill.documents.sequences import read_sequences
        from corpusmill.sources.copies import each_file

        self.rejected, self.lines = Counter(), 0
        with whole_file(self.quarantine) as quarantine:
            for name, lines in each_file(self.inputs, self.endpoint_url):
                with lines as stream:
                    for batch in read_sequences(
                        stream, source=name, key=key, keys=self.keys, ranges_key=self.ranges_key
                    ):
                        self.rejected.update(rejection.reason.value for rejection in batch.rejected.rejections)
                        self.lines += len(batch.sequences) + append_rejections(quarantine, batch.rejected)
                        yield batch
        lost = sum(self.rejected.values())
        if lost > self.max_rejected_share * self.lines:
            raise RejectedDocumentsError(
                f"{lost:,} of {self.lines:,} lines are malformed",
                where=self.quarantine,
                expected=f"at most {self.max_rejected_share:.4%}",
                got=", ".join(f"{count:,} {reason}" for reason, count in sorted(self.rejected.items())),
                next_step="fix the source, or allow more with --max-rejected-share if you accept losing these lines",
            )


def refuse_there(path: Path) -> None:
    if path.exists():
        raise ConfigError(
            "the output already exists; a trainer's index cache would not notice new content under an old name",
            where=path,
            expected="a new name",
            got=f"{path.stat().st_size:,} bytes",
        )


def require_tokens(source: Source, key: str, counts: dict[str, int]) -> None:
    if not counts["tokens"]:
        raise SourceError(
            "no document has any text",
            where=f"key {key}",
            expected="at least one token",
            got=f"{source.lines:,} lines",
            next_step="check the inputs and the key",
        )


Encoded = tuple[SequenceBatch, NDArray[np.bool_] | None]
"""A batch, and of each of its tokens whether it is trained on (None: all are)."""


def encoded(source: Source, key: str, tokenizer: Tokenizer) -> Iterator[Encoded]:
    for batch in source.read(key):
        tokens, ends = tokenizer.encode(batch.texts)
        mask = None
        if any(batch.no_loss):
            mask = np.ones(tokens.size, np.bool_)
            first = np.concatenate(([0], np.cumsum(batch.sequences))).astype(np.int64)
            for document, ranges in enumerate(batch.no_loss):
                if ranges:
                    text = batch.texts[first[document]]
                    start = int(ends[first[document] - 1]) if first[document] else 0
                    mask[start : int(ends[first[document]])] = trained_tokens(text, ranges, tokenizer)
        yield (tokens, ends, np.cumsum(batch.sequences, dtype=np.uint64)), mask


def trained_tokens(text: bytes, no_loss: Sequence[tuple[int, int]], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Of each token of a text, whether it lies outside all character ranges [first, last).

    As datatrove has it: from the token that holds the first character up to, without it, the token that holds the
    character behind the last. A range that reaches the text's end goes to its last token (datatrove cuts the document
    there, EOS and all).
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
    """Framing by the tokenizer's own special tokens; TokenizerError for BOS where it has none."""
    if bos and tokenizer.bos_id is None:
        raise TokenizerError(f"the tokenizer {tokenizer.name} has no BOS token", next_step="set it with --bos-token")
    framing = Framing(tokenizer.eot_id if eod else None, tokenizer.bos_id if bos else None, empty_documents)
    framing.refuse_unfit(tokenizer.vocabulary_size)
    return framing
