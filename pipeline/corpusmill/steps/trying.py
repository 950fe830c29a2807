"""What steps would do to the first documents of some files, without a build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from corpusmill.lazy import lazily
from corpusmill.report.tried import TriedDocument
from corpusmill.sources.copies import each_file
from corpusmill.steps.answering import StepError
from corpusmill.steps.answers import Where, batch_of_texts
from corpusmill.steps.chain import Chain

with lazily:
    from corpusmill.documents import jsonl


if TYPE_CHECKING:
    from corpusmill.config import StepConfig

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
        read = list(islice(_documents(inputs, text_field, id_field, endpoint_url), documents))
        batch = batch_of_texts([text for text, _ in read], lambda document: read[document][1])
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
        for number, (text, (identity, file, line)) in enumerate(read)
    ]


def _documents(
    inputs: list[str], text_field: str, id_field: str, endpoint_url: str | None
) -> Iterator[tuple[bytes, Where]]:
    for name, lines in each_file(inputs, endpoint_url):
        with lines as stream:
            for batch in jsonl.read_documents(stream, source=name, text_field=text_field, id_field=id_field):
                numbers = batch.line_numbers.tolist()
                for text, identity, number in zip(batch.texts(), batch.each_id(), numbers, strict=True):
                    yield text, (identity.decode(), name, number + 1)
