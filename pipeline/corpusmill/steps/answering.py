"""Asks one step about one batch, and handles its answers, unusable ones included."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from corpusmill.errors import PermanentError
from corpusmill.steps.answers import Batch, Document, Drop, Keep, Reasons
from corpusmill.steps.loading import in_code

if TYPE_CHECKING:
    from corpusmill.config import StepConfig

REASON = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}")
MOST_REASONS = 100
ERROR = "error"  # the reason of `on_error: drop`


class StepError(PermanentError):
    """A step failed or gave an unusable answer: `step`, and for a single document `file`, `line` and `id`."""

    step = file = id = ""
    line = 0


class _UnusableError(Exception):
    """An unusable answer; its message states why and quotes no text."""


class _TooLongError(BaseException):
    """The time limit has passed; a step's own `except Exception` does not catch it."""


@dataclass
class Answers:
    """A step's answers for a batch, by the document's number in it. Documents without an entry are unchanged.

    `dropped`: the reason of a dropped document; `failed`: documents that are kept although the step failed on them.
    """

    dropped: dict[int, str] = field(default_factory=dict)
    texts: dict[int, bytes] = field(default_factory=dict)
    attributes: dict[int, bytes] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)

    def of(self, number: int) -> tuple[str | None, bytes | None, bytes | None, bool]:
        """Everything about one document."""
        return (
            self.dropped.get(number),
            self.texts.get(number),
            self.attributes.get(number),
            number in self.failed,
        )


class Asked:
    """A loaded step and how to call it: a function of documents, or an instance with `batch`."""

    def __init__(self, step: StepConfig, loaded: Any) -> None:
        self.step = step
        self._reasons: set[str] = set()
        self._instance = self._made(loaded) if isinstance(loaded, type) else loaded
        self._with: Mapping[str, Any] = {} if isinstance(loaded, type) else step.settings

    def _made(self, loaded: type) -> Any:
        try:
            return loaded(**self.step.settings)
        except (Exception, SystemExit) as error:
            raise self._error("custom_step.not_set_up: a step cannot be set up", in_code(error)) from None

    def answers(self, batch: Batch) -> Answers:
        """The step's answers for every document. StepError depending on the step's `on_error`."""
        answers, batch = Answers(), batch.asking(self.step.fields or ())
        if hasattr(self._instance, "batch"):
            self._ask_batch(batch, answers)
        else:
            with _clock(self.step.seconds) as restart:
                for number, document in enumerate(batch):
                    restart()
                    self._ask(answers, number, batch, partial(self._instance, document, **self._with))
        return answers

    def _ask_batch(self, batch: Batch, answers: Answers) -> None:
        try:
            with _clock(self.step.seconds):
                given = self._instance.batch(batch)
        except MemoryError:
            raise
        except (Exception, SystemExit, _TooLongError) as error:
            if len(batch) > 1 and not isinstance(error, _TooLongError):
                self._ask_singly(batch, answers)
                return
            self._failed(answers, 0, batch[0], error)
            return
        if isinstance(given, Reasons):
            self._take_reasons(given, len(batch), answers)
            return
        if not isinstance(given, (list, tuple)) or len(given) != len(batch):
            got = f"{len(given):,} answers" if isinstance(given, (list, tuple)) else f"a {type(given).__name__}"
            raise self._error(
                "custom_step.answers_missing: a step does not answer for every document",
                got,
                expected=f"{len(batch):,} answers",
            )
        for number, answer in enumerate(given):
            if answer is not None and answer is not True:
                self._ask(answers, number, batch, partial(given.__getitem__, number))

    def _ask_singly(self, batch: Batch, answers: Answers) -> None:
        """Ask again, one document at a time, so that the error names the document on which the step failed."""
        for number in range(len(batch)):
            alone = Answers()
            self._ask_batch(batch.taken(np.array([number])), alone)
            answers.dropped |= dict.fromkeys([number] * len(alone.dropped), alone.dropped.get(0, ""))
            answers.texts |= dict.fromkeys([number] * len(alone.texts), alone.texts.get(0, b""))
            answers.attributes |= dict.fromkeys([number] * len(alone.attributes), alone.attributes.get(0, b""))
            answers.failed |= {number for _ in alone.failed}

    def _take_reasons(self, given: Reasons, documents: int, answers: Answers) -> None:
        codes = np.asarray(given.codes)
        fits = codes.shape == (documents,) and codes.dtype.kind in "iu"
        if not fits or (documents and not 0 <= int(codes.min()) <= int(codes.max()) <= len(given.reasons)):
            expected = f"{documents:,} integers from 0 to {len(given.reasons)}"
            raise self._error(
                "custom_step.codes_invalid: a step has invalid codes", f"{codes.dtype} {codes.shape}", expected=expected
            )
        try:
            labels = ["", *map(self._label, given.reasons)]
        except _UnusableError as error:
            raise self._error("custom_step.reasons_invalid: a step has invalid reasons", str(error)) from None
        gone = np.flatnonzero(codes)
        answers.dropped.update(zip(gone.tolist(), [labels[code] for code in codes[gone].tolist()], strict=True))

    def _ask(self, answers: Answers, number: int, batch: Batch, ask: Callable[[], Any]) -> None:
        try:
            self._take(answers, number, batch, ask())
        except MemoryError:
            raise
        except (Exception, SystemExit, _TooLongError) as error:
            self._failed(answers, number, batch[number], error)

    def _take(self, answers: Answers, number: int, batch: Batch, answer: Any) -> None:
        if answer is None or answer is True:
            return
        if answer is False:
            answers.dropped[number] = self.step.called
        elif isinstance(answer, Drop):
            answers.dropped[number] = self._label(answer.reason)
        elif isinstance(answer, (str, Keep)):
            kept = answer if isinstance(answer, Keep) else Keep(answer)
            before = batch.text_of(number)
            text = _edited(before, kept)
            attributes = _json(kept.attributes)
            if text != before:
                answers.texts[number] = text
            if attributes:
                answers.attributes[number] = attributes
        else:
            raise _UnusableError(f"an answer of type {type(answer).__name__}")

    def _label(self, reason: object) -> str:
        if not isinstance(reason, str) or not REASON.fullmatch(reason):
            raise _UnusableError("a reason that is not 1 to 64 letters, digits, blanks, _, . and -")
        self._reasons.add(reason)
        if len(self._reasons) > MOST_REASONS:
            raise self._error(
                "custom_step.too_many_reasons: a step has too many reasons",
                "more",
                expected=f"at most {MOST_REASONS} different ones",
            )
        return f"{self.step.called}: {reason}"

    def _failed(self, answers: Answers, number: int, document: Document, error: BaseException) -> None:
        if isinstance(error, StepError):
            raise error
        if isinstance(error, _TooLongError):
            got = f"more than {self.step.seconds} seconds of CPU time"
            raise self._error("custom_step.too_slow: a step takes too long", got, document) from None
        if self.step.on_error == "fail":
            got = str(error) if isinstance(error, _UnusableError) else in_code(error)
            raise self._error("custom_step.failed: a step failed on a document", got, document) from None
        if self.step.on_error == "drop":
            answers.dropped[number] = f"{self.step.called}: {ERROR}"
        else:
            answers.failed.add(number)

    def differs(self, document: Document) -> StepError:
        """The error for a document for which the step gave another answer when asked again."""
        got = "a different answer when asked again, with the documents in reverse order"
        return self._error(
            "custom_step.not_deterministic: a step is not deterministic",
            got,
            document,
            expected="an answer that follows from the document",
        )

    def _error(self, what: str, got: str, document: Document | None = None, expected: str = "") -> StepError:
        place = f", {document.file}, line {document.line:,}, id {document.id or 'none'}" if document else ""
        error = StepError(
            what,
            where=f"step {self.step.called} ({self.step.use}){place}",
            expected=expected or None,
            got=got,
            next_step=f"corpusmill step try {self.step.use} FILE shows its answers; or set on_error: keep or drop",
        )
        error.step = self.step.called
        if document:
            error.file, error.line, error.id = document.file, document.line, document.id
        return error


def _edited(text: bytes, kept: Keep) -> bytes:
    """The text that a step gives a document, UTF-8."""
    if kept.text is None and not kept.cut:
        return text
    whole = text.decode() if kept.text is None else kept.text
    if not isinstance(whole, str):
        raise _UnusableError(f"a text of type {type(whole).__name__}")
    if not kept.cut:
        return _encoded(whole)
    spans = sorted(kept.cut)
    flat = [place for span in spans for place in span]
    if any(type(place) is not int for place in flat) or any(len(span) != 2 for span in spans):
        raise _UnusableError("stretches to cut that are not pairs of integers")
    if flat != sorted(flat) or flat[0] < 0 or flat[-1] > len(whole):
        raise _UnusableError(f"stretches to cut that overlap, or lie outside of a text of {len(whole):,} characters")
    stays = zip([0, *flat[1::2]], [*flat[::2], len(whole)], strict=True)
    return _encoded("".join(whole[first:last] for first, last in stays))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _UnusableError("a text with half of a surrogate pair, which is not UTF-8") from None


def _json(attributes: object) -> bytes:
    if not isinstance(attributes, Mapping):
        raise _UnusableError(f"attributes of type {type(attributes).__name__}")
    try:
        data = orjson.dumps(dict(attributes), option=orjson.OPT_SORT_KEYS) if attributes else b""
        if b"null" in data:  # orjson writes it for numbers that JSON does not have, too
            json.dumps(dict(attributes), allow_nan=False, default=_fields)
    except TypeError:
        raise _UnusableError("attributes that are not JSON") from None
    except ValueError:
        raise _UnusableError("attributes with a number that JSON does not have: NaN, or infinity") from None
    return data


def _fields(value: object) -> object:
    """What orjson writes of an object that json does not know: of a dataclass its fields, of all others a text."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


@contextmanager
def _clock(seconds: int) -> Iterator[Callable[[], None]]:
    """Raise _TooLongError after `seconds` of this process's CPU time without a call of the yielded function.

    CPU time does not pass while the machine is busy with other processes. Only a main thread can be interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def ring(_signal: int, _frame: object) -> None:
        raise _TooLongError

    def restart() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)

    before = signal.signal(signal.SIGVTALRM, ring)
    restart()
    try:
        yield restart
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
