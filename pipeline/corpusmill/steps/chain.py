"""All steps of a configuration, one after another, over batches of documents; or tried on the first documents of some
files, without a build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from corpusmill.report.tried import TriedDocument
from corpusmill.sources.copies import each_file
from corpusmill.steps.answering import Answers, Asked, StepError
from corpusmill.steps.answers import Batch, Where, batch_of_texts
from corpusmill.steps.loading import Identity, load

if TYPE_CHECKING:
    from corpusmill.config import StepConfig


BATCH_BYTES = 1 << 20
TWICE = 64  # one of this many batches runs twice, the first


@dataclass
class Outcomes:
    """The outcomes of a batch's documents, by number: why one is dropped, its new text, its attributes (JSON) by step.

    `failed`: for each step, the number of documents that are kept although it failed on them.
    """

    dropped: dict[int, str] = field(default_factory=dict)
    texts: dict[int, bytes] = field(default_factory=dict)
    attributes: dict[int, dict[str, bytes]] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)

    def drop(self, documents: Iterable[int], reason: str) -> None:
        """Drop documents, and what was changed of them."""
        for document in documents:
            self.dropped[document] = reason
            self.texts.pop(document, None)
            self.attributes.pop(document, None)


class Chain:
    """The loaded steps. ConfigError or StepChangedError if one cannot be loaded (see load)."""

    def __init__(self, steps: Sequence[StepConfig], planned: Sequence[Identity] | None = None) -> None:
        identities = planned if planned is not None else [None] * len(steps)
        loaded = [load(step, identity) for step, identity in zip(steps, identities, strict=True)]
        self._loaded = list(zip(steps, loaded, strict=True))
        self._asked = [Asked(step, call) for step, call in self._loaded]
        self._planned = identities

    def require_same_code(self) -> None:
        """StepChangedError if the code changed since: what a step imported meanwhile may be of either version."""
        for (step, _), identity in zip(self._loaded, self._planned, strict=True):
            load(step, identity)

    def outcomes(self, batch: Batch, *, twice: bool) -> Outcomes:
        """Ask every step about the documents that earlier steps kept, with the texts that they made.

        With `twice` a new instance of each step is asked again, with the documents in reverse; StepError if its
        answers differ, or as `Asked` raises it.
        """
        outcomes = Outcomes()
        left = np.arange(len(batch))
        for place, asked in enumerate(self._asked):
            answers = asked.answers(batch)
            if twice:
                _require_same(
                    answers, Asked(*self._loaded[place]).answers(batch.taken(np.arange(len(batch))[::-1])), batch, asked
                )
            numbers = left.tolist()
            outcomes.dropped.update({numbers[ordinal]: reason for ordinal, reason in answers.dropped.items()})
            outcomes.texts.update({numbers[ordinal]: text for ordinal, text in answers.texts.items()})
            for ordinal, attributes in answers.attributes.items():
                outcomes.attributes.setdefault(numbers[ordinal], {})[asked.step.called] = attributes
            outcomes.failed[asked.step.called] += len(answers.failed)
            stay = np.delete(np.arange(len(left)), list(answers.dropped))
            batch, left = batch.with_texts(answers.texts).taken(stay), left[stay]
        for ordinal in outcomes.dropped:
            outcomes.texts.pop(ordinal, None)
            outcomes.attributes.pop(ordinal, None)
        return outcomes


def _require_same(first: Answers, second: Answers, batch: Batch, asked: Asked) -> None:
    last = len(batch) - 1
    for number in range(len(batch)):
        if first.of(number) != second.of(last - number):
            raise asked.differs(batch[number])


NEXT_STEP = "fix the step, or set on_error: keep or drop"  # a build advises `corpusmill step try`


def try_steps(
    steps: Sequence[StepConfig],
    inputs: list[str],
    *,
    documents: int,
    text_field: str = "text",
    id_field: str = "id",
    endpoint_url: str | None = None,
) -> list[TriedDocument]:
    """Every document with its outcome, in order. StepError as a build raises it, ConfigError as a plan does."""
    try:
        chain = Chain(steps)
        fields = sorted({name for step in steps for name in step.fields or ()})
        read = list(islice(_documents(inputs, text_field, id_field, fields, endpoint_url), documents))
        batch = batch_of_texts(
            [text for text, *_ in read], lambda document: read[document][1], [found for *_, found in read]
        )
        outcomes = chain.outcomes(batch, twice=True)
    except StepError as error:
        error.details = tuple((label, NEXT_STEP if label == "next" else value) for label, value in error.details)
        raise
    return [
        TriedDocument(
            source_file=file,
            line=line,
            id=identity,
            dropped=outcomes.dropped.get(number, ""),
            attributes={name: data.decode() for name, data in outcomes.attributes.get(number, {}).items()},
            before=text.decode(),
            after=outcomes.texts[number].decode() if number in outcomes.texts else None,
        )
        for number, (text, (identity, file, line), _) in enumerate(read)
    ]


def _documents(
    inputs: list[str], text_field: str, id_field: str, fields: list[str], endpoint_url: str | None
) -> Iterator[tuple[bytes, Where, dict[str, Any]]]:
    for file in each_file(inputs, endpoint_url):
        for batch in file.documents(text_field, id_field, fields):
            numbers, found = batch.line_numbers.tolist(), batch.fields or [b"{}"] * batch.documents
            for text, identity, number, values in zip(batch.texts(), batch.each_id(), numbers, found, strict=True):
                yield text, (identity.decode(), file.name, number + 1), orjson.loads(values)
