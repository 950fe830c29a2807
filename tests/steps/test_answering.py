"""What becomes of what steps answer, the hostile answers first."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.config import StepConfig
from corpusmill.steps import Batch, Document, Drop, Keep, Reasons
from corpusmill.steps.answering import Answers, Asked, StepError
from corpusmill.steps.answers import batch_of_texts

QUOTED = "a text that no error may quote"


def asked(loaded: Any, **changes: Any) -> Asked:
    # Unchecked: a plan keeps settings as JSON, and here they are objects.
    return Asked(StepConfig.model_construct(**{"use": "module:step", **changes}), loaded)


def answers(loaded: Any, *texts: str, **changes: Any) -> Answers:
    return asked(loaded, **changes).answers(batch_of_texts(texts))


def error_of(loaded: Any, *texts: str, **changes: Any) -> StepError:
    with pytest.raises(StepError) as caught:
        answers(loaded, *texts, **changes)
    assert QUOTED not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


def always(answer: Any) -> Any:
    return lambda _document: answer


@pytest.mark.parametrize("answer", [None, True, Keep(), Keep("text"), "text", Keep(cut=[(2, 2)])])
def test_answers_that_keep_change_nothing(answer: Any) -> None:
    assert answers(always(answer), "text") == Answers()


def test_false_and_drop_leave_out_with_their_reasons() -> None:
    assert answers(always(False), "text", name="own").dropped == {0: "own"}
    assert answers(always(Drop("too short")), "text", name="own").dropped == {0: "own: too short"}


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(st.integers(0, 30), max_size=8, unique=True),
)
def test_cut_takes_out_the_characters_between(text: str, places: list[int]) -> None:
    places = sorted(min(place, len(text)) for place in places[: len(places) // 2 * 2])
    spans = list(zip(places[::2], places[1::2], strict=True))
    gone = {place for first, last in spans for place in range(first, last)}
    expected = "".join(sign for place, sign in enumerate(text) if place not in gone)
    got = answers(always(Keep(cut=spans)), text).texts.get(0, text.encode())
    assert got.decode() == expected


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("\ud800", "half of a surrogate pair"),
        (Keep(cut=[(0, 99)]), "outside of a text of 30 characters"),
        (Keep(cut=[(-1, 2)]), "outside of a text"),
        (Keep(cut=[(0, 5), (3, 8)]), "overlap"),
        (Keep(cut=[(5, 3)]), "overlap"),
        (Keep(cut=[("a", "b")]), "pairs of integers"),  # type: ignore[list-item]
        (Keep(cut=[(1, 2, 3)]), "pairs of integers"),  # type: ignore[list-item]
        (Keep(cut=[(True, 2)]), "pairs of integers"),
        (Keep(b"bytes"), "a text of type bytes"),  # type: ignore[arg-type]
        (Keep(attributes={"a": {1}}), "attributes that are not JSON"),
        (Keep(attributes={1: 2}), "attributes that are not JSON"),  # type: ignore[dict-item]
        (Keep(attributes={"a": float("nan")}), "a number that JSON does not have"),
        (Keep(attributes={"a": [None, {"b": float("-inf")}]}), "a number that JSON does not have"),
        (Keep(attributes=[1]), "attributes of type list"),  # type: ignore[arg-type]
        (Drop(QUOTED * 3), "a reason that is not"),
        (Drop("two\nlines"), "a reason that is not"),
        (Drop(7), "a reason that is not"),  # type: ignore[arg-type]
        (7, "an answer of type int"),
        (b"bytes", "an answer of type bytes"),
    ],
)
def test_answer_that_cannot_be_used_names_the_document(answer: Any, message: str) -> None:
    error = error_of(always(answer), QUOTED)
    assert message in str(error)
    assert (error.step, error.line, error.id) == ("step", 1, "")
    assert answers(always(answer), QUOTED, on_error="keep").failed == {0}
    assert answers(always(answer), QUOTED, on_error="drop").dropped == {0: "step: error"}


def raises(document: Document) -> bool:
    if "bad" in document.text:
        raise ValueError(document.text)
    return True


def leaves(document: Document) -> bool:
    raise SystemExit(document.text)


def test_exception_names_document_and_line_of_code_and_quotes_nothing() -> None:
    error = error_of(raises, "good", f"bad {QUOTED}")
    assert error.line == 2
    assert "ValueError at test_answering.py:" in str(error)
    assert "in raises" in str(error)
    assert answers(raises, "good", "bad", on_error="drop").dropped == {1: "step: error"}
    assert answers(raises, "good", "bad", on_error="keep").failed == {1}


def test_step_that_leaves_the_program_is_an_error() -> None:
    assert "SystemExit" in str(error_of(leaves, QUOTED))


def test_full_memory_is_never_an_answer() -> None:
    def full(_document: Document) -> bool:
        raise MemoryError

    with pytest.raises(MemoryError):
        answers(full, "text", on_error="drop")


def endless(document: Document) -> bool:
    while document.text:
        with suppress(Exception):
            time.monotonic()
    return True


@pytest.mark.slow
def test_step_that_never_ends_is_stopped_whatever_on_error_says() -> None:
    for on_error in ("fail", "drop"):
        error = error_of(endless, "", "text", seconds=1, on_error=on_error)
        assert "more than 1 seconds of CPU time" in str(error)
        assert error.line == 2


class InBatches:
    """Answers as it is set up to."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers

    def batch(self, batch: Batch) -> Any:
        return self.answers(batch) if callable(self.answers) else self.answers


def in_batches(given: Any, *texts: str, **changes: Any) -> Answers:
    return answers(InBatches, *texts, **{"with": {"answers": given}, **changes})


def test_batch_answers_with_a_list_or_with_reasons() -> None:
    listed = in_batches([True, Drop("a"), "new"], "x", "y", "z")
    assert (listed.dropped, listed.texts) == ({1: "step: a"}, {2: b"new"})
    coded = in_batches(Reasons(("a", "b"), np.array([0, 2, 1], np.uint8)), "x", "y", "z")
    assert coded.dropped == {1: "step: b", 2: "step: a"}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([True], "1 answers"),
        ([True] * 4, "4 answers"),
        ("xyz", "a str"),
        (None, "a NoneType"),
        (iter([1, 2, 3]), "iterator"),
        (Reasons(("a",), np.array([0, 2, 1])), "custom_step.codes_invalid"),
        (Reasons(("a",), np.array([0, -1, 1])), "custom_step.codes_invalid"),
        (Reasons(("a",), np.array([0, 1])), "custom_step.codes_invalid"),
        (Reasons(("a",), np.array([0.0, 1.0, 1.0])), "custom_step.codes_invalid"),
        (Reasons(("a\n",), np.array([0, 1, 1])), "custom_step.reasons_invalid"),
    ],
)
def test_batch_without_an_answer_for_each_document_fails(given: Any, shown: str) -> None:
    with pytest.raises(StepError) as caught:
        in_batches(given, "x", "y", "z", on_error="drop")
    assert shown in str(caught.value)


def test_batch_that_raises_is_asked_singly_so_that_the_document_is_named() -> None:
    def first_bad(batch: Batch) -> list[bool]:
        return [raises(document) and "drop" not in document.text for document in batch]

    with pytest.raises(StepError) as caught:
        in_batches(first_bad, "x", "bad", "drop")
    assert caught.value.line == 2
    assert in_batches(first_bad, "x", "bad", "drop", on_error="keep") == Answers(dropped={2: "step"}, failed={1})


def test_step_with_a_reason_for_every_document_fails() -> None:
    texts = [str(number) for number in range(101)]
    assert "too many reasons" in str(error_of(lambda document: Drop(f"reason {document.text}"), *texts))


def test_step_sees_the_fields_that_it_asks_for_and_no_others() -> None:
    batch = batch_of_texts(["one", "two"], fields=[{"lang": "de", "url": "u"}, {"url": "v"}])
    seen: list[Any] = []
    assert asked(lambda document: seen.append(dict(document.fields)), fields=["lang"]).answers(batch) == Answers()
    assert asked(lambda document: seen.append(dict(document.fields))).answers(batch) == Answers()
    assert seen == [{"lang": "de"}, {"lang": None}, {}, {}]

    class Languages:
        def batch(self, batch: Batch) -> list[bool]:
            assert batch.field("lang") == [document.fields["lang"] for document in batch]
            with pytest.raises(KeyError):
                batch.field("url")
            return [lang == "de" for lang in batch.field("lang")]

    assert asked(Languages(), fields=["lang"], name="german").answers(batch).dropped == {1: "german"}
    turned = batch.taken(np.array([1, 0])).with_texts({0: b"other"})
    assert asked(Languages(), fields=["lang"], name="german").answers(turned).dropped == {0: "german"}
